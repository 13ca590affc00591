"""Configurations of task types: compare-and-set, versions, bounds, and who sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.operating import configurations as plans
from pyasynq._clock import Instant
from pyasynq._wire.keys import CONFIGURATIONS_KEY
from pyasynq.errors import ConfigurationChangedError, InvalidOptionError, PermissionDeniedError
from pyasynq.operations import TypeConfiguration, User
from pyasynq.operations import sync as blocking
from pyasynq.operations import type_configurations as values
from tests.contract.test_operator_walk import _Clock
from tests.factories import NOW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

ADMIN = User.with_role("mira", "admin")
FIRST = NOW.seconds * 1_000 + NOW.microseconds // 1_000
"""Version of the first change: the milliseconds of its time."""


@pytest.fixture
def admin(redis_url: str, redis_client: RedisClient) -> Iterator[blocking.Operator]:
    """An administrator's operator, whose clock does not move."""
    with blocking.Operator(redis_url, ADMIN, clock=_Clock()) as one:
        yield one


def test_a_configuration_is_kept_with_its_version(admin: blocking.Operator) -> None:
    """The version is the time of the change."""
    stored = admin.set_type_configuration("resize", {"max_run": 3, "name": "größe"}, expected=0)

    assert TypeConfiguration("resize", FIRST, {"max_run": 3, "name": "größe"}) == stored
    assert stored == admin.type_configuration("resize")
    assert [stored] == admin.type_configurations()
    assert admin.type_configuration("other") is None


def test_each_change_has_a_higher_version(admin: blocking.Operator) -> None:
    """Also in one millisecond, and after a deletion: an old version never fits again."""
    versions = [admin.type_configurations_version()]
    versions += [admin.set_type_configuration("resize", {"max_run": number}).version for number in (1, 2)]
    admin.delete_type_configuration("resize", expected=versions[-1])
    versions.append(admin.type_configurations_version())
    versions.append(admin.set_type_configuration("resize", {"max_run": 3}, expected=0).version)
    versions.append(admin.set_type_configuration("other", {}).version)

    assert [0, *range(FIRST, FIRST + 5)] == versions
    assert versions[-1] == admin.type_configurations_version()


def test_without_a_clock_the_version_is_the_time_of_redis(
    perform: Perform, redis_client: RedisClient
) -> None:
    """Its milliseconds, and those of the same time in microseconds."""
    changed = perform(plans.write_configuration("resize", b"{}", None, None))
    seconds, microseconds = redis_client.time()

    assert 0 <= seconds * 1_000 + microseconds // 1_000 - changed.version < 60_000


def test_the_version_counts_milliseconds(perform: Perform) -> None:
    """Microseconds are cut."""
    changed = perform(plans.write_configuration("resize", b"{}", None, Instant(NOW.seconds, 345_999)))

    assert ("stored", NOW.seconds * 1_000 + 345) == changed


@pytest.mark.parametrize(("stored", "expected"), [(True, 0), (True, FIRST - 1), (False, FIRST)])
def test_another_version_is_not_overwritten(admin: blocking.Operator, *, stored: bool, expected: int) -> None:
    """Two who edit at once do not overwrite one another."""
    before = [admin.set_type_configuration("resize", {"max_run": 1})] if stored else []

    with pytest.raises(ConfigurationChangedError) as caught:
        admin.set_type_configuration("resize", {"max_run": 2}, expected=expected)

    assert (FIRST if stored else 0) == caught.value.version
    assert "resize" in str(caught.value)
    assert before == admin.type_configurations()


def test_equal_content_changes_nothing(admin: blocking.Operator) -> None:
    """So a call that is sent again after its reply was lost answers as the first."""
    first = admin.set_type_configuration("resize", {"max_run": 1, "rate": "1/s"}, expected=0)
    again = admin.set_type_configuration("resize", {"rate": "1/s", "max_run": 1}, expected=0)

    assert first == again
    assert FIRST == admin.type_configurations_version()


def test_a_configuration_is_deleted(admin: blocking.Operator) -> None:
    """Only with the version that it has; another one stays."""
    version = admin.set_type_configuration("resize", {}).version
    other = admin.set_type_configuration("other", {})
    with pytest.raises(ConfigurationChangedError):
        admin.delete_type_configuration("resize", expected=version + 1)

    admin.delete_type_configuration("resize", expected=version)

    assert [other] == admin.type_configurations()
    with pytest.raises(ConfigurationChangedError, match="has no configuration"):
        admin.delete_type_configuration("resize")
    assert FIRST + 2 == admin.type_configurations_version()


def test_the_number_of_types_is_bounded(monkeypatch: pytest.MonkeyPatch, admin: blocking.Operator) -> None:
    """Existing ones can still be changed."""
    monkeypatch.setattr(plans, "MAX_CONFIGURATIONS", 2)
    admin.set_type_configuration("a", {})
    admin.set_type_configuration("b", {})

    with pytest.raises(InvalidOptionError, match="as many as can be"):
        admin.set_type_configuration("c", {})

    changed = admin.set_type_configuration("b", {"max_run": 1})
    assert [changed] == [one for one in admin.type_configurations() if one.content]
    assert 2 == len(admin.type_configurations())


@pytest.mark.parametrize(
    ("name", "content", "expected", "remedy"),
    [
        ("", {}, None, "not blank"),
        ("a", {"x": "x" * 80_000}, None, "80,000 bytes"),
        ("a", {"x": float("nan")}, None, "an object of JSON"),
        ("a", {"x": {1, 2}}, None, "an object of JSON"),
        ("a", {"x": "\ud800"}, None, "an object of JSON"),
        ("a", {}, -1, "at least 0"),
        ("a", {}, "1", "at least 0"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(
    admin: blocking.Operator, name: str, content: Any, expected: Any, remedy: str
) -> None:
    """Nothing is stored."""
    with pytest.raises(InvalidOptionError, match=remedy):
        admin.set_type_configuration(name, content, expected=expected)

    assert 0 == admin.type_configurations_version()


def test_all_configurations_are_read_in_parts(perform: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part may be full or not."""
    monkeypatch.setattr(plans, "_AT_ONCE", 2)
    for name in ("a", "b", "c", "d", "e"):
        perform(plans.write_configuration(name, b"{}", None, NOW))

    assert ["a", "b", "c", "d", "e"] == sorted(perform(plans.read_configurations()))
    assert ["b", "d"] == list(perform(plans.read_configurations(["b", "x", "d"])))


def test_values_of_others_are_left_out(admin: blocking.Operator, redis_client: RedisClient) -> None:
    """They may be anything; one of them can be replaced."""
    sound = admin.set_type_configuration("sound", {})
    odd = {"a": "no version", "b": "5 []", "c": "5 {", "d": "", "e": "5", "f": f"5 {'[' * 100_000}"}
    for name, value in odd.items():
        redis_client.hset(CONFIGURATIONS_KEY, name, value)

    assert [sound] == admin.type_configurations()
    assert values.decode_content(b"[" * 100_000) is None

    assert admin.set_type_configuration("a", {}, expected=0).content == {}
    redis_client.hdel(CONFIGURATIONS_KEY, *"bcdef")


def test_users_see_and_change_the_types_of_their_queues(
    admin: blocking.Operator, redis_client: RedisClient
) -> None:
    """A queue's patterns are those of its type; an operator may see, and not change."""
    mine = admin.set_type_configuration("team-a", {})
    admin.set_type_configuration("payments", {})
    team = admin.for_user(User.with_role("leo", "operator", queues="team-*"))

    assert [mine] == team.type_configurations()
    with pytest.raises(PermissionDeniedError, match=r"types\.edit"):
        team.set_type_configuration("team-a", {"max_run": 1})
    with pytest.raises(PermissionDeniedError):
        team.delete_type_configuration("team-a")
    assert mine == admin.type_configuration("team-a")


def test_changes_are_audited(admin: blocking.Operator) -> None:
    """With the queue and the reason."""
    admin.set_type_configuration("resize", {"max_run": 1}, reason="a big day")

    [entry] = admin.audit().entries
    assert ("set_type_configuration", ["resize"], "a big day") == (
        entry.verb,
        list(entry.queues),
        entry.reason,
    )
