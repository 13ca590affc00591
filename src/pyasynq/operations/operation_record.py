"""Encoding of operations on many tasks as fields of a Redis hash, and decoding. Pure."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from .operation import TASKS_IN_PART, Act, OperationInfo, OperationOptions, OperationState, Scope
from .request_keys import name_by_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyasynq._redis.plan import Argument

    from .operation import Targets
    from .permissions import User


def encode_operation(
    act: Act,
    scope: Scope,
    options: OperationOptions,
    *,
    user: User,
    reason: str,
    request: str = "",
    now: datetime,
) -> dict[str, Argument]:
    """Return the fields of a new operation's record.

    `request` is `HASH:CALL`, the hash of the request's content and the id of the call; empty without an
    idempotency key.
    """
    queues, total, query, undoes = scope
    return {
        **({"request": request} if request else {}),
        "act": act.value,
        "state": OperationState.READY.value,
        "user": user.name,
        "reason": reason,
        "created": repr(now.timestamp()),
        "queues": json.dumps(list(queues)),
        "total": total,
        "query": query,
        "options": json.dumps(_encode_options(options)),
        "undoes": undoes,
    }


def name_operation(user: User, key: str) -> str:
    """Return the id of the operation that a user starts with a key (idempotency key)."""
    return name_by_key(user.name, key)


def fingerprint_request(act: Act, targets: Targets, options: OperationOptions) -> str:
    """Return the fingerprint (hash) of a request's content, to compare requests with the same key."""
    ids = {queue: list(ids) for queue, ids in sorted(targets.ids.items())}
    asked = json.dumps([act.value, ids, targets.query, _encode_options(options)], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()[:32]


def _encode_options(options: OperationOptions) -> dict[str, Any]:
    return {
        "process_at": options.process_at.timestamp() if options.process_at else None,
        "spread": options.spread.total_seconds(),
        "outcome": options.outcome,
        "max_retry": options.max_retry,
        "timeout": options.timeout.total_seconds() if options.timeout is not None else None,
        "deadline": options.deadline.timestamp() if options.deadline else None,
        "headers": dict(options.headers),
        "queue": options.queue,
        "rate": options.rate,
        "undo": options.undo,
    }


def decode_options(data: bytes) -> OperationOptions:
    """Decode the options in a record. Raises `ValueError` for an invalid record."""
    try:
        values = json.loads(data)
        return OperationOptions(
            process_at=_parse_moment(values["process_at"]),
            spread=timedelta(seconds=float(values["spread"])),
            outcome=str(values["outcome"]),
            max_retry=None if values["max_retry"] is None else int(values["max_retry"]),
            timeout=None if values["timeout"] is None else timedelta(seconds=float(values["timeout"])),
            deadline=_parse_moment(values["deadline"]),
            headers={str(name): str(value) for name, value in values["headers"].items()},
            queue=str(values.get("queue", "")),
            rate=None if values["rate"] is None else float(values["rate"]),
            undo=bool(values["undo"]),
        )
    except (TypeError, KeyError, AttributeError, OverflowError, OSError, RecursionError) as error:
        raise ValueError("not the options of an operation") from error


def encode_tasks(tasks: Sequence[tuple[str, str, str]]) -> list[bytes]:
    """Return queue, id and state of the tasks of an operation, in parts of 1,000."""
    return [
        json.dumps(tasks[first : first + TASKS_IN_PART]).encode()
        for first in range(0, len(tasks), TASKS_IN_PART)
    ]


def decode_tasks(parts: Iterable[bytes]) -> list[tuple[str, str, str]]:
    """Decode the tasks in parts of a record. Raises `ValueError` for an invalid record."""
    try:
        return [
            (str(queue), str(task_id), str(state))
            for part in parts
            for queue, task_id, state in json.loads(part)
        ]
    except (TypeError, RecursionError) as error:
        raise ValueError("not the tasks of an operation") from error


def decode_operation(operation: str, fields: Mapping[str, bytes], *, now: datetime) -> OperationInfo | None:
    """Decode an operation from its record; return None for anything else."""
    texts = {name: value.decode("utf-8", "replace") for name, value in fields.items()}
    try:
        state = OperationState(texts["state"])
        lease = float(texts.get("lease", 0))
        undoable = int(texts.get("undoable", 0))
        return OperationInfo(
            operation=operation,
            act=Act(texts["act"]),
            state=state,
            user=texts["user"],
            reason=texts["reason"],
            queues=tuple(map(str, json.loads(texts["queues"]))),
            created=datetime.fromtimestamp(float(texts["created"]), UTC),
            total=int(texts["total"]),
            done=int(texts.get("done", 0)),
            skipped=int(texts.get("skipped", 0)),
            trimmed=int(texts.get("trimmed", 0)),
            undoable=undoable,
            undo_until=_parse_moment(texts.get("undo_until")) if undoable else None,
            refused=tuple((str(q), str(i), str(r)) for q, i, r in json.loads(texts.get("refused", "[]"))),
            error=texts.get("error", ""),
            query=texts.get("query", ""),
            undoes=texts.get("undoes", ""),
            target=_read_target(fields) if texts["act"] == Act.MOVE else "",
            is_orphaned=state is OperationState.RUNNING and lease <= now.timestamp(),
        )
    except (ValueError, TypeError, KeyError, OverflowError, OSError, RecursionError):
        return None


def _read_target(fields: Mapping[str, bytes]) -> str:
    return decode_options(fields["options"]).queue


def _parse_moment(seconds: Any) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(float(seconds), UTC)
