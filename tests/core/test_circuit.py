"""The circuit of a target: who may call it while it is down, and who learns that it is back."""

from __future__ import annotations

import pytest
from building import Clock
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from worker.attempts.circuit import Circuit


def doubling(failures: int) -> float:
    return float(2**failures)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def circuit(clock: Clock) -> Circuit:
    return Circuit(clock)


def opened(circuit: Circuit) -> None:
    turn, wait = circuit.admit()
    assert wait == 0
    assert circuit.failed(turn, "refused", doubling).opened


def test_a_closed_circuit_lets_everybody_pass(circuit: Circuit) -> None:
    assert [circuit.admit().wait for _ in range(3)] == [0, 0, 0]
    assert circuit.down() is None


def test_an_open_circuit_lets_nobody_pass_until_its_time(circuit: Circuit, clock: Clock) -> None:
    opened(circuit)
    assert circuit.admit().wait == 2.0
    clock.now += 1.5
    assert circuit.admit().wait == 0.5
    assert circuit.down() == ("refused", 1.5)


def test_then_exactly_one_passes_as_the_probe(circuit: Circuit, clock: Clock) -> None:
    opened(circuit)
    clock.now += 2
    assert [circuit.admit().wait > 0 for _ in range(4)] == [False, True, True, True]


def test_asking_how_long_to_wait_takes_no_turn(circuit: Circuit, clock: Clock) -> None:
    opened(circuit)
    assert circuit.waiting() == 2.0
    clock.now += 2
    assert [circuit.waiting(), circuit.waiting(), circuit.admit().wait] == [0, 0, 0]
    assert circuit.waiting() > 0, "a probe is under way"


def test_a_probe_that_goes_well_closes_it_and_tells_how_long_it_was(circuit: Circuit, clock: Clock) -> None:
    opened(circuit)
    clock.now += 2
    turn, _ = circuit.admit()
    clock.now += 1
    assert circuit.answered(turn) == 3.0
    assert circuit.closed
    assert circuit.admit().wait == 0
    assert circuit.answered(turn) is None, "told once"


def test_a_patient_table_does_not_make_an_eager_one_wait(circuit: Circuit, clock: Clock) -> None:
    opened(circuit)
    clock.now += 2
    turn, _ = circuit.admit()
    circuit.failed(turn, "still refused", lambda _: 60.0)
    assert circuit.admit().wait == 60.0
    assert circuit.admit(doubling).wait == 4.0
    clock.now += 4
    assert circuit.admit(lambda _: 60.0).wait == 56.0
    assert circuit.admit(doubling).wait == 0


def test_who_has_not_called_in_this_outage_does_not_wait_as_long_as_who_has(
    circuit: Circuit, clock: Clock
) -> None:
    for _ in range(2):
        clock.now += 8
        circuit.failed(circuit.admit(doubling, "held").turn, "refused", doubling, who="held")
        assert circuit.admit(doubling, "other").wait == 2.0
    assert circuit.admit(doubling, "held").wait == 4.0
    clock.now += 2
    circuit.failed(circuit.admit(doubling, "other").turn, "refused", doubling, who="other")
    assert circuit.admit(doubling, "other").wait == 4.0
    clock.now += 4
    circuit.answered(circuit.admit(doubling, "held").turn)
    circuit.failed(circuit.admit(doubling, "held").turn, "refused anew", doubling, who="held")
    clock.now += 2
    circuit.failed(circuit.admit(doubling, "held").turn, "refused", doubling, who="held")
    assert circuit.admit(doubling, "other").wait == 2.0, "in the next outage it has not called yet"


def test_many_tables_that_each_call_once_find_out_as_soon_as_one_that_the_target_is_back(
    circuit: Circuit, clock: Clock
) -> None:
    begin = clock.now
    for number in range(20):
        clock.now += circuit.admit(doubling, number).wait
        circuit.failed(circuit.admit(doubling, number).turn, "refused", doubling, who=number)
    assert clock.now - begin == 2.0 * 19
    assert [circuit.admit(doubling, who).wait for who in (0, 19, "new")] == [2.0] * 3
    clock.now += 2
    circuit.failed(circuit.admit(doubling, 0).turn, "refused", doubling, who=0)
    assert circuit.admit(doubling, 1).wait == 4.0, "from their second calls on it is left alone for longer"


def test_what_the_target_asks_for_is_waited_by_everybody(circuit: Circuit, clock: Clock) -> None:
    turn, _ = circuit.admit()
    assert circuit.failed(turn, "too many requests", doubling, asked=30.0).wait > 30.0
    assert circuit.admit(doubling).wait == circuit.admit().wait == 30.0
    clock.now += 30
    assert circuit.admit(doubling).wait == 0


def test_a_probe_that_fails_waits_longer_and_is_no_news(circuit: Circuit, clock: Clock) -> None:
    opened(circuit)
    clock.now += 2
    turn, _ = circuit.admit()
    refusal = circuit.failed(turn, "still refused", doubling)
    assert not refusal.opened
    assert circuit.admit().wait == 4.0
    assert refusal.wait > 4.0, "others come before it"
    assert circuit.down() == ("still refused", 2.0)


def test_after_an_outage_the_waits_begin_anew(circuit: Circuit, clock: Clock) -> None:
    opened(circuit)
    clock.now += 2
    circuit.answered(circuit.admit().turn)
    opened(circuit)
    assert circuit.admit().wait == 2.0


def test_calls_that_were_under_way_when_it_opened_lengthen_nothing(circuit: Circuit, clock: Clock) -> None:
    turns = [circuit.admit().turn for _ in range(16)]
    refusals = [circuit.failed(turn, "refused", doubling) for turn in turns]
    assert [refusal.opened for refusal in refusals] == [True] + [False] * 15
    assert circuit.admit().wait == 2.0
    assert all(refusal.wait == pytest.approx(2.0, abs=0.02) for refusal in refusals)


def test_a_call_from_before_the_outage_neither_closes_nor_opens_it(circuit: Circuit, clock: Clock) -> None:
    early = circuit.admit().turn
    opened(circuit)
    assert circuit.answered(early) is None
    assert not circuit.closed
    clock.now += 2
    probe = circuit.admit().turn
    assert circuit.answered(early) is None, "it is not the probe"
    circuit.answered(probe)
    assert not circuit.failed(early, "too late", doubling).opened
    assert circuit.closed


class AnyOrder(RuleBasedStateMachine):
    """Whatever the order of events: since it opened, at most one call is under way that began since."""

    @initialize()
    def begin(self) -> None:
        self.clock = Clock()
        self.circuit = Circuit(self.clock)
        self.calls: list[int] = []
        self.since_open: list[int] = []

    @rule()
    def ask(self) -> None:
        was_closed = self.circuit.closed
        turn, wait = self.circuit.admit()
        if wait == 0:
            (self.calls if was_closed else self.since_open).append(turn)

    @precondition(lambda self: self.calls or self.since_open)
    @rule(data=st.data(), well=st.booleans())
    def end(self, data: st.DataObject, well: bool) -> None:
        pool = data.draw(st.sampled_from([each for each in (self.calls, self.since_open) if each]))
        turn = pool.pop(data.draw(st.integers(0, len(pool) - 1)))
        probing = pool is self.since_open
        was_closed = self.circuit.closed
        if well:
            assert (self.circuit.answered(turn) is not None) == (probing and not was_closed)
        else:
            self.circuit.failed(turn, "refused", doubling)
            assert not (probing and self.circuit.closed and not was_closed)

    @rule(seconds=st.floats(0, 10))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    def one_probe_at_most(self) -> None:
        assert len(self.since_open) <= 1

    @precondition(lambda self: not self.circuit.closed and not self.since_open)
    @rule()
    def its_time_comes(self) -> None:
        self.clock.now += self.circuit.waiting() + 1e-6
        turn, wait = self.circuit.admit()
        assert wait == 0, "it never stays shut"
        self.since_open.append(turn)


TestAnyOrder = AnyOrder.TestCase
