"""Notes of a DDL statement's finished steps, in the user metadata of their commits."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from handlers.spark.delta.commits.commit_notes import read_note

Place = tuple[str, int, int, int]
"""(topic, partition, offset, index) of the statement."""


class Step(msgspec.Struct, frozen=True):
    """A finished step."""

    at: Place
    step: str
    columns: tuple[str, ...] = ()
    """Those that the step is about."""


msgspec.json.Decoder(Step)  # `step_in` in two threads at once would crash while it is not prepared


def noted(note: str, step: Step) -> str:
    """Return a commit's user metadata, `note`, with the step."""
    metadata = msgspec.json.decode(note)
    metadata.setdefault("binlane", {})["ddl"] = msgspec.to_builtins(step)
    return msgspec.json.encode(metadata).decode()


def step_in(metadata: str | None, at: Collection[Place]) -> Step | None:
    """Return the step of a note. None for another writer's commit, or one of rows."""
    told = (read_note(metadata) or {}).get("ddl")
    try:
        step = None if told is None else msgspec.convert(told, Step)
    except msgspec.ValidationError:
        return None
    return step if step is not None and step.at in at else None
