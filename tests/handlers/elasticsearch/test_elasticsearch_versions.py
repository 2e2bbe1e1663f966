"""Versions: in the source's order, over topics that are made anew, with everything that is written."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from servers.hook_server import Answer, HookServer

from handlers import Batch, Rejected
from handlers.elasticsearch import ElasticsearchHandler
from handlers.progress import FormerTopic
from handlers.testing import make_batch, opened
from handlers.versioned.row_states import RowMoved
from handlers.versioned.versions import BeyondVersions, Topic, followed, version_of


def test_versions_are_in_the_order_of_their_places() -> None:
    random = Random(5)
    offsets = [0, 1, *(random.randrange(1 << 40) for _ in range(40))]
    rows = [0, 65_534, *(random.randrange(65_535) for _ in range(5))]
    places = sorted(set(itertools.product((0, 1, 64, 127), offsets, rows)))
    versions = [version_of(*place) for place in places]
    assert all(one < other for one, other in itertools.pairwise(versions))
    assert 0 < version_of(0, 0, 0) < version_of(127, (1 << 40) - 1, 65_534) < 1 << 63


@pytest.mark.parametrize("place", [(128, 0, 0), (0, 1 << 40, 0), (0, 0, 65_535)])
def test_a_place_beyond_what_versions_hold_is_no_other_place(place: tuple[int, int, int]) -> None:
    with pytest.raises(BeyondVersions):
        version_of(*place)


def test_epochs_of_topics() -> None:
    topics: Any = []
    epochs = []
    for name, found in [
        ("a", None),
        ("a", "A"),
        ("b", "B"),
        ("a", "A"),
        ("a", "A2"),
        ("a", None),
        ("b", "B"),
    ]:
        topics, epoch = followed(topics, name, found, {})
        epochs.append(epoch)
    assert epochs == [0, 0, 1, 0, 2, 2, 1]
    assert topics == [Topic("a", "A"), Topic("b", "B"), Topic("a", "A2")]
    with pytest.raises(FormerTopic):
        followed(topics, "a", "A", {})
    with pytest.raises(FormerTopic):
        followed(topics, "a", "A", {"A": ["other"]})
    assert followed(topics, "a", "A", {"A": ["A2"]})[1] == 3


@contextmanager
def cluster(held: str | None) -> Iterator[tuple[ElasticsearchHandler, list[dict[str, Any]]]]:
    """One that has a higher version of every document, last changed in the partition `held`; the actions that
    it was sent."""
    sent: list[dict[str, Any]] = []
    mapping: dict[str, Any] = {"properties": {"_binlane": {}, "id": {}, "name": {}}}
    conflict = {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "r"}}

    def answer(request: Any) -> Answer:
        if request.method == "PUT":
            mapping["properties"] |= request.json["properties"]
        body: Any = {"hits": {"hits": []}} if "_search" in request.path else {"t.t": {"mappings": mapping}}
        if "_bulk" in request.path:
            actions = [one for one in map(json.loads, request.body.splitlines()) if "id" not in one]
            sent.extend(actions)
            body = {"errors": True, "items": [{next(iter(one)): conflict} for one in actions]}
        elif "_mget" in request.path:
            source = {} if held is None else {"_binlane": {"partition": held}}
            ids = json.loads(request.body)["ids"]
            found = {"found": True, "_version": 1 << 50, "_source": source}
            body = {"docs": [{"_id": one, **found} for one in ids]}
        return Answer(200, {}, json.dumps(body).encode())

    with HookServer() as server:
        server.answer = answer
        with opened(ElasticsearchHandler(url=server.url)) as handler:
            yield handler, sent


def batch(*changes: Any, **more: Any) -> Batch:
    return make_batch("t.t", changes, key="id", types={"id": "int", "name": "text"}, topic="cdc", **more)


def test_a_delete_has_a_version_as_any_other_write() -> None:
    with cluster("cdc[0]") as (handler, sent):
        handler.handle(batch({"id": 1}, {"before": {"id": 2}, "op": "delete"}, offset=7))
    kept = {"version_type": "external"}
    assert sent == [
        {"index": {"_id": "1", "version": version_of(0, 7, 0), **kept}},
        {"delete": {"_id": "2", "version": version_of(0, 8, 0), **kept}},
    ]


def test_a_replayed_letter_has_the_version_of_where_it_stood() -> None:
    letter = batch({"id": 1}, offset=5_000)
    letter.replay_of = ("shop", 3, 12)
    with cluster("shop[3]") as (handler, sent):
        handler.handle(letter)
    assert [one["index"]["version"] for one in sent] == [version_of(0, 12, 0)]


@pytest.mark.parametrize(("held", "told"), [("cdc[1]", r"is of cdc\[1\]"), (None, "not written by binlane")])
def test_only_a_document_of_the_same_partition_makes_a_change_late(held: str | None, told: str) -> None:
    with cluster(held) as (handler, _), pytest.raises(RowMoved, match=told):
        handler.handle(batch({"id": 1}))


def test_what_has_no_version_or_no_id_is_rejected_alone() -> None:
    with cluster("cdc[0]") as (handler, sent):
        for wrong in (
            {"after": {"id": 2}, "index": 65_535, "offset": 9},
            {"id": None},
            {"id": 3, "_binlane": 1},
        ):
            with pytest.raises(Rejected) as found:
                handler.handle(batch({"id": 1}, wrong))
            assert found.value.at == 1
    assert sent == []
