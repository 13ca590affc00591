"""Messages about tasks of dead workers, from a supervisor to a live worker, which calls the app's hooks."""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

from pyasynq.events import MessageQuarantined, WorkerDied

DeathEvent: TypeAlias = WorkerDied | MessageQuarantined

DIED: Final = b"died "
"""First word of a message about a dead child."""
_KINDS: Final = {"died": WorkerDied, "quarantined": MessageQuarantined}


def encode_death(event: tuple[Any, ...]) -> bytes:
    """Encode the death of a worker as one line, without the newline."""
    kind = next(name for name, one in _KINDS.items() if isinstance(event, one))
    return DIED + json.dumps([kind, *event]).encode()


def decode_death(line: bytes) -> DeathEvent:
    """Decode the death of a worker from its line."""
    kind, *fields = json.loads(line.removeprefix(DIED))
    event: DeathEvent = _KINDS[kind](*fields)
    return event
