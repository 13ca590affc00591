"""Secret fields of tasks, as workers publish them; cached for a minute."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyasynq.task_types import TaskTypeInfo

LIFETIME_SECONDS: Final = 60.0
"""Seconds for which published names are cached. Until then, a newly declared secret may be shown."""


class PublishedSecrets:
    """Cached names and paths of secret fields by task type; an operator updates it, its redactor reads it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._read_at: float | None = None
        self._by_type: dict[str, tuple[str, ...]] = {}
        self._by_prefix: dict[str, tuple[str, ...]] = {}

    def is_old(self) -> bool:
        """Return whether the published secrets have to be read again."""
        return self._read_at is None or self._clock() - self._read_at > LIFETIME_SECONDS

    def learn(self, types: Iterable[TaskTypeInfo]) -> None:
        """Replace the known secret fields by the secret fields in the workers' current descriptions."""
        found = [one for one in types if one.secrets]
        self._by_type = {one.type: one.secrets for one in found if not one.is_prefix}
        self._by_prefix = {one.type: one.secrets for one in found if one.is_prefix}
        self._read_at = self._clock()

    def fields_of(self, task_type: str) -> tuple[str, ...]:
        """Return the secret fields of a type, including the fields of all registered prefixes of its name."""
        prefixed = [names for prefix, names in self._by_prefix.items() if task_type.startswith(prefix)]
        return tuple(name for names in (self._by_type.get(task_type, ()), *prefixed) for name in names)
