"""The `elasticsearch` handler, also for OpenSearch: a document for each row, in an index for each table."""

from handlers.elasticsearch.indexes import Indexes
from handlers.elasticsearch.options import ElasticsearchOptions
from handlers.versioned.handler import VersionedHandler

__all__ = ["ElasticsearchHandler"]


class ElasticsearchHandler(VersionedHandler):
    """Keeps each row under a version of the source's order."""

    options_model = ElasticsearchOptions
    dialect = Indexes
