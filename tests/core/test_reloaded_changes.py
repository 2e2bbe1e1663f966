"""What `binlane reload` makes of the records that it reads."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message

from worker.configuration import Configuration
from worker.reloading.source_changes import ChangesOf, Unfollowable

GARBAGE: Any = Message("clinic", 2, 17, value=b"?")


def changes_of(**sections: Any) -> ChangesOf:
    configuration = Configuration.model_validate(
        {
            "kafka": {"bootstrap_servers": "x:1", "group_id": "g", "topics": ["clinic"]},
            "format": "debezium",
            "tables": [{"match": "clinic.*", "handlers": [{"type": "log"}]}],
            **sections,
        }
    )
    return ChangesOf(configuration, configuration.tables[0], "clinic", "patients")


def test_a_record_that_cannot_be_decoded_is_told_with_its_place_and_what_to_set() -> None:
    with pytest.raises(Unfollowable) as told:
        list(changes_of().of(GARBAGE))
    assert str(told.value).startswith("undecodable record at clinic[2] offset 17: ")
    assert str(told.value).endswith("set on_undecodable: skip, or dead_letter")


def test_a_record_that_cannot_be_decoded_is_counted_where_such_ones_are_skipped() -> None:
    changes = changes_of(on_undecodable="skip")
    assert list(changes.of(GARBAGE)) == []
    assert changes.undecodable == 1
