"""Roles and queue patterns by group, for sign-in at a provider and behind a proxy."""

from __future__ import annotations

import pytest

from pyasynq._sign_in.group_roles import GroupRoles

ROLES = {"ops": "operator", "mail": "viewer"}
QUEUES = {"mail": "mail-*", "guests": ["demo", "test-*"]}


@pytest.mark.parametrize(
    ("groups", "default", "expected"),
    [
        (["mail"], None, ("viewer", ("mail-*",))),
        (["mail", "ops"], None, ("operator", ("mail-*", "*"))),
        (["guests"], None, None),
        ([], "viewer", ("viewer", ("*",))),
        (["others"], "viewer", ("viewer", ("*",))),
        (["guests"], "viewer", ("viewer", ("demo", "test-*"))),
        (["mail", "guests"], "operator", ("viewer", ("mail-*",))),
    ],
)
def test_groups_give_a_role_and_queues(
    groups: list[str], default: str | None, expected: tuple[str, tuple[str, ...]] | None
) -> None:
    """Patterns of a group without a role restrict people with the default role, and nothing else."""
    assert expected == GroupRoles(ROLES, default, QUEUES).find(groups)


def test_sessions_keep_the_groups_that_mean_something() -> None:
    """Each once: those with a role or with patterns."""
    assert ("guests", "ops") == GroupRoles(ROLES, None, QUEUES).select_known(["guests", "x", "ops", "ops"])
