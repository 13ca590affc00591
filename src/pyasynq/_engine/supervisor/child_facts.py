"""What a child tells its supervisor at its start, so that its tasks can be recovered when it has died."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from pyasynq._checks import seconds_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq.config import ServerConfig


@dataclass(frozen=True, slots=True)
class ChildFacts:
    """Whose tasks, where they are, and when one is poison.

    Attributes:
        server_id: what the tokens of its attempts begin with.
        host: the name of its host, as in its record.
        url: where Redis is; with the password, so it goes through the socket and into no log.
        queues: the queues of which it may have tasks; these change while it runs.
        crash_limit: at how many crashes a task is archived.
        crash_limits: the same for task types that have a limit of their own.
        archive_max_size: how many archived tasks a queue keeps.
        archive_max_age: for how many seconds.
    """

    server_id: str
    host: str
    url: str
    queues: tuple[str, ...]
    crash_limit: int
    crash_limits: Mapping[str, int]
    archive_max_size: int
    archive_max_age: int

    @classmethod
    def of(
        cls, server_id: str, host: str, url: str, config: ServerConfig, crash_limits: Mapping[str, int]
    ) -> Self:
        """Return that of a server with this configuration."""
        return cls(
            server_id,
            host,
            url,
            tuple(config.queues),
            config.crash_limit,
            crash_limits,
            config.archive_max_size,
            int(seconds_of("archive_max_age", config.archive_max_age)),
        )

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return what `to_fields` has made JSON of."""
        return cls(**{**fields, "queues": tuple(fields["queues"])})

    def with_queue(self, queue: str, *, has_tasks: bool) -> Self:
        """Return the facts after the child has begun to serve a queue, or has no tasks of it any more."""
        others = tuple(name for name in self.queues if name != queue)
        return replace(self, queues=(*others, queue) if has_tasks else others)

    def to_fields(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)

    def limit_of(self, task_type: str) -> int:
        """Return at how many crashes a task of this type is archived."""
        return self.crash_limits.get(task_type, self.crash_limit)
