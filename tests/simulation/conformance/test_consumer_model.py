"""The same scripts on the model of librdkafka and on librdkafka itself, with its mock brokers and with Kafka:
what they see has to be the same, or the model is a wish."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition

from worker.local.broker import Broker

from .evictions import EVICTED, reads_on_until_it_hears_that_it_was_evicted
from .sites import PARTITIONS, ModelSite, RealSite, Script, Site, ends, errors, place, quiet, read, refusal

_SEEDS = 20


def leaves_paused_and_comes_back(site: Site, strategy: str) -> list[Any]:
    """The flag outlives the assignment."""
    site.write(0, 20)
    site.write(1, 20)
    it = site.consumer(strategy)
    seen: list[Any] = []
    give(it, strategy, [place(site, 0, 0)])
    seen.append(read(site, it, {0: 20}))
    it.pause([place(site, 0)])
    take(it, strategy, [place(site, 0)])
    give(it, strategy, [place(site, 0, 0), place(site, 1, 0)])
    seen.append(read(site, it, {1: 20}))
    seen.append(quiet(site, it))
    it.resume([place(site, 0)])
    seen.append(read(site, it, {0: 20}))
    return seen


def goes_on_where_the_program_was(site: Site, strategy: str) -> list[Any]:
    """What was fetched ahead is dropped by a pause, and comes again."""
    site.write(0, 20)
    it = site.consumer(strategy)
    give(it, strategy, [place(site, 0, 0)])
    seen: list[Any] = [position(it, site)]
    seen.append(read(site, it, {0: 5}, most=1))
    seen.append(position(it, site))
    it.pause([place(site, 0)])
    seen += [quiet(site, it), position(it, site)]
    it.resume([place(site, 0)])
    it.resume([place(site, 0)])  # once more does no harm
    seen += [read(site, it, {0: 15}), position(it, site)]
    take(it, strategy, [place(site, 0)])
    give(it, strategy, [place(site, 0, 12)])
    seen += [position(it, site), read(site, it, {0: 8}), position(it, site)]
    return seen


def tells_an_end_once(site: Site, strategy: str) -> list[Any]:
    site.write(0, 3)
    it = site.consumer(strategy)
    give(it, strategy, [place(site, 0, OFFSET_BEGINNING), place(site, 1, OFFSET_BEGINNING)])
    seen: list[Any] = [ends(site, it, 2)]
    site.write(0, 2)
    seen.append(ends(site, it, 1))
    take(it, strategy, [place(site, 0), place(site, 1)])
    give(it, strategy, [place(site, 0, 5)])
    seen.append(ends(site, it, 1))
    return seen


def is_told_once_that_an_offset_is_not_there(site: Site, strategy: str) -> list[Any]:
    """And stands until it is assigned anew."""
    site.write(0, 5)
    it = site.consumer(strategy)
    give(it, strategy, [place(site, 0, 100)])
    seen: list[Any] = [errors(site, it), quiet(site, it)]
    site.write(0, 2)
    seen.append(quiet(site, it))
    take(it, strategy, [place(site, 0)])
    give(it, strategy, [place(site, 0, 4)])
    seen.append(read(site, it, {0: 3}))
    return seen


def knows_an_end_when_it_has_fetched(site: Site, strategy: str) -> list[Any]:
    """Cached watermarks ask no broker, so they tell of the last fetch."""
    site.write(0, 5)
    it = site.consumer(strategy)
    seen: list[Any] = [it.get_watermark_offsets(place(site, 0), cached=True)[1]]
    give(it, strategy, [place(site, 0, 0)])
    seen.append(read(site, it, {0: 5}))
    seen.append(it.get_watermark_offsets(place(site, 0), cached=True)[1])
    it.pause([place(site, 0)])
    for _ in range(3):  # a busy machine ends its last fetch late
        quiet(site, it)
    site.write(0, 5)
    quiet(site, it)
    seen.append(it.get_watermark_offsets(place(site, 0), cached=True)[1])
    seen.append(it.get_watermark_offsets(place(site, 0), timeout=5))
    it.resume([place(site, 0)])
    seen.append(read(site, it, {0: 5}))
    seen.append(it.get_watermark_offsets(place(site, 0), cached=True)[1])
    return seen


def keeps_what_is_committed(site: Site, strategy: str) -> list[Any]:
    site.write(0, 5)
    it = site.consumer(strategy)
    answers: list[str] = []
    it.subscribe([site.topic], on_assign=lambda c, p: answers.append("assigned"))
    until(site, it, lambda: answers)
    seen: list[Any] = [[p.offset for p in it.committed([place(site, 0), place(site, 1)], timeout=10)]]
    it.commit(offsets=[TopicPartition(site.topic, 0, 3, "finished ahead")], asynchronous=False)
    found = it.committed([place(site, 0), place(site, 1)], timeout=10)
    seen += [(p.offset, p.metadata or "") for p in found]
    return seen


def answers_a_commit_in_a_poll(site: Site, strategy: str) -> list[Any]:
    site.write(0, 5)
    answers: list[Any] = []
    assigned: list[str] = []

    def told(error: Any, partitions: list[Any]) -> None:
        answers.append((error, [(each.offset, each.partition) for each in partitions]))

    it = site.consumer(strategy, on_commit=told)
    it.subscribe([site.topic], on_assign=lambda c, p: assigned.append("assigned"))
    until(site, it, lambda: assigned)
    it.commit(offsets=[place(site, 1, 4)], asynchronous=True)
    seen: list[Any] = [list(answers)]
    until(site, it, lambda: answers)
    return [*seen, answers]


def reads_again_what_a_callback_has_paused(site: Site, strategy: str) -> list[Any]:
    """A call that has found records runs callbacks before it returns. One of them pauses their partition."""
    site.write(0, 20)
    answers: list[str] = []

    def told(error: Any, partitions: list[Any]) -> None:
        answers.append("answered")
        it.pause([place(site, 0)])

    it = site.consumer(strategy, on_commit=told)
    give(it, strategy, [place(site, 0, 0)])
    seen: list[Any] = [read(site, it, {0: 1}, most=1)]
    it.commit(offsets=[place(site, 1, 4)], asynchronous=True)
    seen += [[each.offset() for each in it.consume(100, 2)], list(answers), position(it, site)]
    it.resume([place(site, 0)])
    return [*seen, read(site, it, {0: 19}), position(it, site)]


def refuses_what_is_assigned_already(site: Site, strategy: str) -> list[Any]:
    it = site.consumer("cooperative-sticky")
    it.incremental_assign([place(site, 0, 0)])
    return [
        refusal(lambda: it.incremental_assign([place(site, 0, 0)])),
        refusal(lambda: it.incremental_unassign([place(site, 1)])),
    ]


def shares_with_another_member(site: Site, strategy: str) -> list[Any]:
    """Callbacks come in polls; empty ones do not count."""
    seen: dict[str, list[Any]] = {"a": [], "b": []}
    inside: list[bool] = []
    polling = [False]

    def told(name: str, kind: str) -> Any:
        def callback(_: Any, partitions: list[Any]) -> None:
            inside.append(polling[0])
            if partitions:
                seen[name].append((kind, len(partitions)))

        return callback

    def poll(*members: Any) -> None:
        for each in members:
            polling[0] = True
            each.poll(0.05)
            polling[0] = False

    a, b = site.consumer(strategy), site.consumer(strategy)
    for name, each in (("a", a), ("b", b)):
        each.subscribe([site.topic], on_assign=told(name, "assign"), on_revoke=told(name, "revoke"))
        wanted = PARTITIONS if each is a else PARTITIONS // 2
        end = site.now() + 40
        while share(seen[name]) != wanted and site.now() < end:
            poll(*((a,) if each is a else (a, b)))
    end = site.now() + 40
    while share(seen["a"]) != PARTITIONS // 2 and site.now() < end:
        poll(a, b)
    outcome: list[Any] = [seen["a"][:], seen["b"][:], all(inside)]
    polling[0] = True
    b.close()
    polling[0] = False
    end = site.now() + 40
    while share(seen["a"]) != PARTITIONS and site.now() < end:
        poll(a)
    return [*outcome, share(seen["a"]), seen["b"][-1], all(inside), bool(a.memberid())]


def share(told: list[Any]) -> int:
    return sum(count if kind == "assign" else -count for kind, count in told)


def give(it: Any, strategy: str, places: list[Any]) -> None:
    (it.incremental_assign if strategy == "cooperative-sticky" else it.assign)(places)


def take(it: Any, strategy: str, places: list[Any]) -> None:
    if strategy == "cooperative-sticky":
        it.incremental_unassign(places)
    else:
        it.unassign()


def position(it: Any, site: Site) -> int:
    return it.position([place(site, 0)])[0].offset


def until(site: Site, it: Any, so: Any) -> None:
    end = site.now() + 40
    while not so() and site.now() < end:
        it.consume(1, 0.05)


NONE = -1001
EXPECTED: dict[Script, list[Any]] = {
    leaves_paused_and_comes_back: [{0: 20}, {1: 20}, [], {0: 20}],
    goes_on_where_the_program_was: [NONE, {0: 5}, 5, [], 5, {0: 15}, 20, NONE, {0: 8}, 20],
    tells_an_end_once: [[(0, 3), (1, 0)], [(0, 5)], [(0, 5)]],
    is_told_once_that_an_offset_is_not_there: [["_AUTO_OFFSET_RESET"], [], [], {0: 3}],
    knows_an_end_when_it_has_fetched: [NONE, {0: 5}, 5, 5, (0, 10), {0: 5}, 10],
    keeps_what_is_committed: [[NONE, NONE], (3, "finished ahead"), (NONE, "")],
    answers_a_commit_in_a_poll: [[], [(None, [(4, 1)])]],
    reads_again_what_a_callback_has_paused: [{0: 1}, [], ["answered"], 1, {0: 19}, 20],
    refuses_what_is_assigned_already: ["_CONFLICT", "_INVALID_ARG"],
    reads_on_until_it_hears_that_it_was_evicted: EVICTED,
}
SHARED = {
    "range": [[("assign", 4), ("revoke", 4), ("assign", 2)], [("assign", 2)]],
    "cooperative-sticky": [[("assign", 4), ("revoke", 2)], [("assign", 2)]],
}

both: Any = pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
# Their group does not let a second member in for half a minute, nor one that was evicted.
with_mock_brokers = [each for each in EXPECTED if each is not reads_on_until_it_hears_that_it_was_evicted]
scripts: Any = pytest.mark.parametrize("script", [*EXPECTED, shares_with_another_member])


def expected(script: Any, strategy: str) -> list[Any]:
    if script is shares_with_another_member:
        return [*SHARED[strategy], True, PARTITIONS, ("revoke", 2), True, True]
    return EXPECTED[script]


@pytest.fixture(scope="session")
def mock_brokers() -> Iterator[str]:
    """librdkafka's own; a topic comes with four partitions when it is asked for."""
    producer = Producer({"bootstrap.servers": "mock:1", "test.mock.num.brokers": 1, "log_level": 2})
    (node,) = producer.list_topics(timeout=10).brokers.values()
    yield f"{node.host}:{node.port}"
    producer.flush(0)


@both
@scripts
def test_the_model_does_as_expected_whoever_runs_when(script: Any, strategy: str) -> None:
    for seed in range(_SEEDS):
        assert ModelSite(seed).run(lambda site: script(site, strategy)) == expected(script, strategy), seed


@pytest.mark.soak
@both
@pytest.mark.parametrize("script", with_mock_brokers)
def test_librdkafka_does_so_with_its_mock_brokers(script: Any, strategy: str, mock_brokers: str) -> None:
    site = RealSite(mock_brokers, f"{script.__name__}-{strategy}")
    assert site.run(lambda site: script(site, strategy)) == expected(script, strategy)


@pytest.mark.soak  # only another librdkafka or Kafka changes what it shows
@both
@scripts
def test_librdkafka_does_so_with_kafka(script: Any, strategy: str, broker: Broker, make_topic: Any) -> None:
    site = RealSite(broker.bootstrap_servers, make_topic(PARTITIONS))
    assert site.run(lambda site: script(site, strategy)) == expected(script, strategy)
