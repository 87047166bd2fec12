"""Whatever the adversary does, nothing is lost, nothing is overused, and every task ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from tests.properties.scenario import KeySetting, Scenario, scenarios
from tests.properties.stage import Stage, opened
from tests.properties.world import World


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with opened() as stage:
        yield stage


@settings(
    deadline=None,
    derandomize=True,
    max_examples=15,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(scenario=scenarios())
def test_every_task_ends_whatever_happens(stage: Stage, scenario: Scenario) -> None:
    stage.run(World(stage, scenario).run())


def test_a_quiet_world_draws_each_shot_once(stage: Stage) -> None:
    scenario = Scenario(keys=[KeySetting(domain="p", most=2)], tasks=[3, 2])
    report = stage.run(World(stage, scenario).run())
    assert report.calls == 5
