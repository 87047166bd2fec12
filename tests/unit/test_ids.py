"""Names that spread, and names that stay the same."""

from __future__ import annotations

import random
import re
import uuid
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shared.ids import digest, new_event_id, new_task_id, new_token, new_trace_id

PARTS = st.lists(st.text() | st.integers(), max_size=5)


def test_a_task_id_has_the_seeds_prefix_and_only_plain_characters() -> None:
    """A-020, A-082 without its time: ids that begin with a time land on one Firestore server."""
    assert re.fullmatch(r"task_[0-9a-z]{20}", new_task_id(random.Random(1)))


def test_task_ids_do_not_repeat_and_spread_over_the_whole_range() -> None:
    rng = random.Random(1)
    ids = [new_task_id(rng) for _ in range(2000)]
    first = Counter(task_id[5] for task_id in ids)
    assert len(set(ids)) == 2000
    assert len(first) == 36
    assert max(first.values()) < 150


def test_an_event_id_is_a_random_uuid() -> None:
    found = uuid.UUID(new_event_id(random.Random(1)))
    assert (found.version, found.variant) == (4, uuid.RFC_4122)


def test_a_trace_id_is_32_hexadecimal_digits_even_when_it_is_small() -> None:
    class Small(random.Random):
        def getrandbits(self, k: int, /) -> int:
            return 1

    assert new_trace_id(Small()) == "0" * 31 + "1"
    assert new_token(Small()) == "0" * 23 + "1"


def test_the_same_random_source_gives_the_same_names() -> None:
    for make in (new_task_id, new_event_id, new_token, new_trace_id):
        assert make(random.Random(7)) == make(random.Random(7))
        assert make(random.Random(7)) != make(random.Random(8))


@given(PARTS)
def test_a_digest_is_a_valid_name_for_a_cloud_task_and_a_document(parts: list[str | int]) -> None:
    assert re.fullmatch(r"[0-9a-f]{40}", digest(*parts))


@given(PARTS, PARTS)
def test_different_parts_have_different_digests(one: list[str | int], other: list[str | int]) -> None:
    same = [str(part) for part in one] == [str(part) for part in other]
    assert (digest(*one) == digest(*other)) is same


def test_where_one_part_ends_and_the_next_begins_matters() -> None:
    assert digest("task_1", 12) != digest("task_11", 2)
    assert digest("a", "") != digest("", "a")
    assert digest("1:a") != digest("a")


def test_a_digest_is_the_same_in_every_release() -> None:
    """A name in use must not change under a task that is under way."""
    assert digest("task_1", 0, 1) == "83f7a068950d486511348c1366b971ed34538b4d"
