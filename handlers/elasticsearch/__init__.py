"""The `elasticsearch` handler, also for OpenSearch: a document for each row, in an index for each table."""

from handlers.elasticsearch.handler import ElasticsearchHandler

__all__ = ["ElasticsearchHandler"]
