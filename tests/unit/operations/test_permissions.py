"""Roles, patterns of queues, and the mechanism that no method of the operator gets around."""

from __future__ import annotations

import pytest

from pyasynq.errors import InvalidOptionError, PermissionDeniedError
from pyasynq.operations import ROLES, VERBS, Access, Permission, User
from pyasynq.operations.guard import denied
from pyasynq.operations.operator._base import OperatorBase
from pyasynq.operations.patterns import matches_any
from pyasynq.operations.permissions import permission_named


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("emails", "*", True),
        ("emails", "emails", True),
        ("emails", "email", False),
        ("team-mail", "team-*", True),
        ("my-team-mail", "team-*", False),
        ("q1", "q?", True),
        ("q12", "q?", False),
        ("a[1]", "a[1]", True),
        ("a1", "a[1]", False),
        ("a.b", "a?b", True),
        ("axb", "a.b", False),
        ("a\nb", "a*", True),
    ],
)
def test_a_pattern_knows_two_wildcards(name: str, pattern: str, expected: bool) -> None:
    """All other characters are themselves."""
    assert expected == matches_any(name, (pattern,))


def test_many_stars_are_one() -> None:
    """A pattern of stars takes no longer than one of them."""
    assert not matches_any("a" * 1_000, ("*" * 1_000 + "b",))


def test_each_role_includes_the_one_before() -> None:
    """A viewer sees, an operator acts on tasks, an admin does everything."""
    viewer, operator, admin = ROLES.values()
    assert viewer < operator < admin
    assert frozenset({Permission.TASKS_VIEW}) == viewer
    assert {Permission.QUEUES_DELETE, Permission.DOCTOR_REPAIR, Permission.SETTINGS_ADMIN} == (
        set(Permission) - operator
    )
    assert set(Permission) <= admin


def test_there_are_eighteen_permissions_and_five_for_programs() -> None:
    """Names are what configurations hold, so they do not change."""
    names = (
        "tasks.view payload.view tasks.run tasks.cancel tasks.archive tasks.delete tasks.edit tasks.enqueue "
        "queues.pause queues.limits queues.delete servers.stop schedules.run schedules.pause operations.run "
        "doctor.repair audit.view settings.admin"
    )
    assert names.split() == [permission.value for permission in Permission]
    assert "work.lease" == permission_named("work.lease")
    with pytest.raises(InvalidOptionError, match=r"did you mean 'tasks\.run'"):
        permission_named("task.run")


def test_a_user_has_each_permission_for_some_queues() -> None:
    """Patterns belong to permissions, not to users."""
    user = User("mira", {Permission.TASKS_VIEW: ("*",), Permission.TASKS_RUN: ("team-*",)})
    access = Access(user)
    assert access.may(Permission.TASKS_RUN, "team-mail")
    assert not access.may(Permission.TASKS_RUN, "payments")
    assert access.sees("payments")
    assert access.may_somewhere(Permission.TASKS_RUN)
    assert not access.may_everywhere(Permission.TASKS_RUN)
    assert not access.may_somewhere(Permission.TASKS_DELETE)


def test_a_face_for_some_queues_bounds_every_user() -> None:
    """The bound holds even for a user with every right."""
    access = Access(User.with_role("root", "admin"), queues=("team-*",))
    assert access.may(Permission.TASKS_RUN, "team-mail")
    assert not access.sees("payments")
    assert not access.may_everywhere(Permission.TASKS_VIEW)


def test_an_unknown_role_is_an_error() -> None:
    """The error suggests the nearest role."""
    with pytest.raises(InvalidOptionError, match="did you mean 'viewer'"):
        User.with_role("mira", "view")


def test_a_name_is_not_a_user() -> None:
    """The error names the remedy, where the name was given."""
    with pytest.raises(InvalidOptionError, match=r"user=.*User\.local\(\)"):
        Access("mira")  # type: ignore[arg-type]


def test_a_method_without_a_row_cannot_be_written() -> None:
    """The class is not made, so the mistake is seen at import."""
    with pytest.raises(TypeError, match="look_around has no row"):

        class _Careless(OperatorBase):
            async def look_around(self) -> None: ...


def test_a_method_without_the_argument_of_its_row_cannot_be_written() -> None:
    """Otherwise there would be nothing to check the permission for."""
    with pytest.raises(TypeError, match="takes no argument 'queue'"):

        class _Careless(OperatorBase):
            async def pause_queue(self, name: str) -> None: ...


def test_a_refusal_says_what_is_missing_and_who_has_it() -> None:
    """The roles, as they are defined, and the queue."""
    error = denied(Access(User.with_role("mira", "viewer")), VERBS["delete_task"], "emails")
    assert (
        "mira may not do this: delete task needs tasks.delete for queue emails; operator and admin have it"
        == str(error)
    )
    assert ("mira", "delete_task", "tasks.delete", "emails") == (
        error.user,
        error.verb,
        error.permission,
        error.queue,
    )
    assert isinstance(error, PermissionDeniedError)


def test_the_local_user_may_do_everything() -> None:
    """A user with a shell and the password of Redis has these permissions anyway."""
    user = User.local()
    assert ("admin", "cli") == (user.role, user.login)
    assert "@" in user.name
