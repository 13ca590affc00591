"""Which aggregator stands for a group, and when the group is due."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.groups import GroupLimits
from pyasynq._engine.handlers.group_routes import GroupPatterns, GroupRoutes
from pyasynq.app import App
from pyasynq.config import GroupRule, ServerConfig
from pyasynq.errors import InvalidOptionError

if TYPE_CHECKING:
    from pyasynq.task import Task


def aggregate(group: str, tasks: list[Task]) -> Task | None:
    """Make no task."""


def test_an_exact_name_comes_before_beginnings_and_a_longer_one_before_a_shorter() -> None:
    """Only a `*` at the end stands for more."""
    table = ["*", "user:*", "user:vip:*", "user:1", "user:vip:*:x"]
    patterns = GroupPatterns({name: name for name in table})
    found = [patterns.find(group) for group in ("user:1", "user:12", "user:vip:1", "u", "user:vip:*")]
    assert ["user:1", "user:*", "user:vip:*", "*", "user:vip:*"] == found
    assert None is GroupPatterns({"user:1": 1, "*x": 2}).find("x")


def test_a_server_without_an_aggregator_aggregates_nothing() -> None:
    """Then there is no such service."""
    assert not GroupRoutes(ServerConfig(), None)
    assert not GroupRoutes(
        ServerConfig(groups={"g": GroupRule(max_size=2)}), App("redis://x").__pyasynq_router__()
    )
    assert GroupRoutes(ServerConfig(group_aggregator=aggregate), None)


def test_the_aggregators_of_the_app_come_before_that_of_the_configuration() -> None:
    """Which has what is left."""
    app = App("redis://x")
    mine = app.aggregator("user:*")(lambda group, tasks: None)
    routes = GroupRoutes(ServerConfig(group_aggregator=aggregate), app.__pyasynq_router__())
    found = [routes.find(group) for group in ("user:1", "other")]
    assert [mine, aggregate] == [one.call for one in found if one is not None]
    app.aggregator(mine)
    every = GroupRoutes(ServerConfig(group_aggregator=aggregate), app.__pyasynq_router__()).find("other")
    assert every is not None
    assert mine is every.call


def test_a_rule_of_the_configuration_wins_over_the_code_and_both_over_the_defaults() -> None:
    """Value by value, in whole seconds."""
    app = App("redis://x")
    app.aggregator("g", grace_period=timedelta(seconds=5), max_delay=9.5)(aggregate)
    config = ServerConfig(group_max_delay=100, group_max_size=7, groups={"g": GroupRule(grace_period=3)})
    routes = GroupRoutes(config, app.__pyasynq_router__())
    aggregator = routes.find("g")
    assert aggregator is not None
    assert GroupLimits(grace=3, max_delay=10, max_size=7) == routes.limits("g", aggregator)
    assert GroupLimits(5, 10, 7) == routes.limits("other", aggregator)
    assert 3 == routes.shortest_grace


def test_asynqs_defaults_are_a_minute_and_no_limits() -> None:
    """Limits of delay and size."""
    routes = GroupRoutes(ServerConfig(group_aggregator=aggregate), None)
    aggregator = routes.find("any")
    assert aggregator is not None
    assert GroupLimits(60, 0, 0) == routes.limits("any", aggregator)
    assert 60 == routes.shortest_grace


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("group_grace_period", {"group_grace_period": 0.5}),
        ("group_max_delay", {"group_max_delay": -1}),
        ("group_max_size", {"group_max_size": -1}),
        ("group_max_size", {"group_max_size": 10_001}),
        ("groups", {"groups": {" ": GroupRule()}}),
        (r"groups\['g'\]", {"groups": {"g": 5}}),
    ],
)
def test_settings_of_groups_that_cannot_work_are_refused(name: str, settings: dict[str, Any]) -> None:
    """The error names the setting."""
    with pytest.raises(InvalidOptionError, match=f"^{name}="):
        ServerConfig(**settings)


@pytest.mark.parametrize("settings", [{"grace_period": 0}, {"max_delay": "x"}, {"max_size": True}])
def test_a_rule_that_cannot_work_is_refused(settings: dict[str, Any]) -> None:
    """The error names the value."""
    [name] = settings
    with pytest.raises(InvalidOptionError, match=f"^{name}="):
        GroupRule(**settings)
