"""The `elasticsearch` handler, also for OpenSearch: stores each row as a document, each table as an index.
At least once: a repeated change has the same version, so it changes nothing."""

from handlers.elasticsearch.client import ElasticsearchOptions
from handlers.elasticsearch.indexes import Indexes
from handlers.versioned.target import VersionedHandler

__all__ = ["ElasticsearchHandler"]


class ElasticsearchHandler(VersionedHandler):
    """Stores each row with a version that follows the source's order."""

    options_model = ElasticsearchOptions
    dialect = Indexes
