"""Roles and queue patterns of the groups in which a proxy or an OpenID provider puts people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq.operations import User

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_RANKS: Final = ("viewer", "operator", "admin")


class GroupRoles:
    """Roles and queue patterns by group.

    Args:
        roles: role for each group. A person of several groups gets the highest role.
        default_role: role of a person without any of these groups; None refuses such people.
        queues: queue patterns for each group; a group with a role and without patterns sees all queues. A
            group without a role restricts people who have the default role.

    Raises:
        InvalidOptionError: for an unknown role.
    """

    def __init__(
        self,
        roles: Mapping[str, str] | None,
        default_role: str | None,
        queues: Mapping[str, str | Iterable[str]] | None,
    ) -> None:
        self._roles = dict(roles or {})
        self._default_role = default_role
        self._queues = {
            group: (patterns,) if isinstance(patterns, str) else tuple(patterns)
            for group, patterns in (queues or {}).items()
        }
        for role in (*self._roles.values(), *([default_role] if default_role else [])):
            User.with_role("", role)

    def find(self, groups: Iterable[str]) -> tuple[str, tuple[str, ...]] | None:
        """Return the role and the queue patterns of a person in some groups; None means a refusal."""
        known = self.select_known(groups)
        with_role = [group for group in known if group in self._roles]
        if not with_role and self._default_role is None:
            return None
        ranks = [_RANKS.index(self._roles[group]) for group in with_role]
        role = _RANKS[max(ranks)] if ranks else str(self._default_role)
        found = [self._queues.get(group, ("*",)) for group in with_role or known]
        patterns = tuple(dict.fromkeys(pattern for patterns in found for pattern in patterns))
        return role, patterns or ("*",)

    def select_known(self, groups: Iterable[str]) -> tuple[str, ...]:
        """Return the groups that have a role or queue patterns."""
        return tuple(
            dict.fromkeys(group for group in groups if group in self._roles or group in self._queues)
        )
