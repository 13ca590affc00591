"""Steps, answers of a side, and the parts that both sides of a comparison share."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

QUEUES = ("default", "größe")
"""In the order in which workers look at them."""

SLOTS = ("one", "two", "three")
"""Workers; each runs one task at a time."""

RETRY_DELAY = 25
GRACE_PERIOD = 25
MAX_DELAY = 75
MAX_SIZE = 3
"""Names of groups. All waits are multiples of 50 s, so that no decision hangs on how long a step takes."""

WAIT = 50

LEASE = 30
"""Seconds that a task belongs to its worker."""

NOT_FAILURES = "busy"
"""An error whose text begins like this spends no retry."""


class Step(NamedTuple):
    """One operation, the same for both sides."""

    operation: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.operation}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


class Answer(NamedTuple):
    """What a side says: a value that both sides put in the same words, or why it refuses."""

    value: Any = None
    refusal: str = ""


class Side(Protocol):
    """Asynq or pyasynq on one database."""

    def begin(self) -> None:
        """Forget what clients remember of a database that has been emptied since; let no task be held."""

    def do(self, step: Step) -> Answer:
        """Perform a step."""


def aggregate_payload(tasks: list[tuple[str, bytes | None]]) -> bytes:
    """Return what the aggregate of these types and payloads carries, on both sides."""
    return b"\n".join(sorted(kind.encode() + b"=" + (payload or b"") for kind, payload in tasks))
