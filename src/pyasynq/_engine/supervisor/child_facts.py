"""Facts that a child reports to its supervisor at its start, to recover its tasks after its death."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from pyasynq._checks import parse_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq.config import ServerConfig


@dataclass(frozen=True, slots=True)
class ChildFacts:
    """Server id, queues and crash limits of a child.

    Attributes:
        server_id: prefix of the tokens of its attempts.
        host: the name of its host, as in its record.
        url: URL of Redis; with the password, so it is sent through the socket and never logged.
        queues: the queues of which it may have tasks; these change while it runs.
        crash_limit: number of crashes at which a task is archived.
        crash_limits: `crash_limit` by task type, for types with their own limit.
        archive_max_size: maximum number of archived tasks of a queue.
        archive_max_age: maximum age of archived tasks in seconds.
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
        """Return the facts of a server with this configuration."""
        return cls(
            server_id,
            host,
            url,
            tuple(config.queues),
            config.crash_limit,
            crash_limits,
            config.archive_max_size,
            int(parse_seconds("archive_max_age", config.archive_max_age)),
        )

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Build the facts from the fields of `to_fields`."""
        return cls(**{**fields, "queues": tuple(fields["queues"])})

    def with_queue(self, queue: str, *, has_tasks: bool) -> Self:
        """Return the facts after the child has started to serve a queue, or has no more tasks of it."""
        others = tuple(name for name in self.queues if name != queue)
        return replace(self, queues=(*others, queue) if has_tasks else others)

    def to_fields(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)

    def get_crash_limit(self, task_type: str) -> int:
        """Return the number of crashes at which a task of this type is archived."""
        return self.crash_limits.get(task_type, self.crash_limit)
