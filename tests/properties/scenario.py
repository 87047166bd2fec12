"""What an adversary may choose: the pool, the tasks, the painter's answers, and what is done to the world when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

from tests.properties.outside import OUTCOMES, Answer

TO_CALLS: Final = (
    "kill_before",
    "kill_after",
    "repeat",
    "fail_before",
    "fail_after",
    "slow_before",
    "slow_after",
)
"""Done to the next call to Firestore or Cloud Tasks; `repeat`: its answer was lost and the SDK sends it again."""
TO_WAKES: Final = ("twice", "lose", "answer_lost")
OF_USERS: Final = ("submit", "cancel", "retry", "regenerate")
OTHERS: Final = (
    "kill",
    "sweep",
    "two_sweeps",
    "store_fails",
    "store_refuses",
    "receiver_refuses",
    "pass_time",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySetting:
    domain: str
    most: int
    weight: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    after: int
    """Steps since the one before."""
    kind: str
    which: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    keys: Sequence[KeySetting]
    tasks: Sequence[int]
    """How many shots each has."""
    answers: Sequence[Answer] = ()
    """Then pictures only."""
    disturbances: Sequence[Disturbance] = ()
    cache: bool = True
    seed: int = 0
    """Of the order in which things happen."""


_KEYS: Final = st.lists(
    st.builds(
        KeySetting,
        domain=st.sampled_from(["p", "q"]),
        most=st.integers(1, 2),
        weight=st.sampled_from([10, 1, 30]),
    ),
    min_size=1,
    max_size=3,
)
_SECONDS: Final = st.sampled_from([5, 20, 1, 60, 119])
_PICTURES: Final = st.builds(Answer, seconds=_SECONDS)
_ANSWERS: Final = st.lists(
    _PICTURES | st.builds(Answer, outcome=st.sampled_from(list(OUTCOMES)), seconds=_SECONDS), max_size=12
)


def scenarios(
    kinds: Sequence[str] = (*TO_CALLS, *TO_WAKES, *OF_USERS, *OTHERS),
    *,
    answers: st.SearchStrategy[list[Answer]] = _ANSWERS,
    most_disturbances: int = 12,
) -> st.SearchStrategy[Scenario]:
    disturbances = st.builds(
        Disturbance, after=st.integers(0, 30), kind=st.sampled_from(kinds), which=st.integers(0, 7)
    )
    return st.builds(
        Scenario,
        keys=_KEYS,
        tasks=st.lists(st.integers(1, 4), min_size=1, max_size=3),
        answers=answers,
        disturbances=st.lists(disturbances, max_size=most_disturbances),
        cache=st.booleans(),
        seed=st.integers(0, 2**16),
    )
