"""The `elasticsearch` handler: a document for each row, under a version of the source's order."""

from __future__ import annotations

from handlers.elasticsearch.indexes import Indexes
from handlers.elasticsearch.options import ElasticsearchOptions
from handlers.versioned.handler import VersionedHandler


class ElasticsearchHandler(VersionedHandler):
    options_model = ElasticsearchOptions
    dialect = Indexes
