"""`binlane check --connect`: which cluster is there, and what may be done in it."""

from __future__ import annotations

import re

from handlers.elasticsearch.client import SearchClient
from handlers.elasticsearch.options import ElasticsearchOptions
from handlers.http.parts import RequestRefused
from handlers.options.templates import Template
from handlers.versioned.memory import Unfit

# manage: for what an index remembers in its mapping's _meta, whoever makes it.
_PRIVILEGES = ("read", "write", "view_index_metadata", "maintenance", "manage")
_MAKING = ("create_index",)
_OLDEST = {"elasticsearch": 7, "opensearch": 1}


def check_cluster(client: SearchClient, options: ElasticsearchOptions) -> None:
    """Changes nothing. Raises Unfit, and as SearchClient."""
    body = client.request("GET", "/").body
    told = body.get("version") if isinstance(body, dict) else None
    number = told.get("number") if isinstance(told, dict) else None
    if not isinstance(told, dict) or not isinstance(number, str) or not re.match(r"\d+\.", number):
        raise Unfit(f"{options.url} is neither Elasticsearch nor OpenSearch: it tells no version")
    product = "opensearch" if told.get("distribution") == "opensearch" else "elasticsearch"
    if int(number.partition(".")[0]) < _OLDEST[product]:
        raise Unfit(
            f"{options.url} is {product} {number}; needed: Elasticsearch 7.10 or OpenSearch 1, or later"
        )
    if product == "elasticsearch":
        _check_privileges(client, options)


def _check_privileges(client: SearchClient, options: ElasticsearchOptions) -> None:
    """OpenSearch has nothing to ask; Elasticsearch without its security answers 400, 404 or 405."""
    pattern = Template(options.index, row=False).of_table("*", "*").lower()
    wanted = (*_PRIVILEGES, *(_MAKING if options.create else ()))
    body = {"index": [{"names": [pattern], "privileges": list(wanted)}]}
    try:
        found = client.request("POST", "/_security/user/_has_privileges", body).body
    except RequestRefused:
        return
    if not isinstance(found, dict) or found.get("has_all_requested", True):
        return
    has = found.get("index", {}).get(pattern, {})
    lacking = ", ".join(name for name in wanted if not has.get(name))
    raise Unfit(f"{options.url}: the user lacks, for indexes {pattern}: {lacking}")
