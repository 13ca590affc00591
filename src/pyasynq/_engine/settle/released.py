"""Release of what a settled attempt refers to, so that its memory is free without the garbage collector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._wire.messages import new_task_message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq._engine.run.attempt import Attempt

_LARGE_BYTES: Final = 4_096
"""Smaller messages are not worth the time of a copy."""


def drop_frames(error: BaseException) -> None:
    """Have an error, and all errors that belong to it, hold no frames.

    A frame that keeps the error which was raised in it is held by that error in turn: this is so in each
    `asyncio.TaskGroup`. Only the collector would find both, and what the handler had in its variables.
    """
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        # The user's class may have attributes of these names.
        BaseException.with_traceback(one, None)
        waiting += (_CAUSE(one), _CONTEXT(one))
        if issubclass(type(one), BaseExceptionGroup):
            waiting += _PARTS(one)


_CAUSE: Final = vars(BaseException)["__cause__"].__get__
_CONTEXT: Final = vars(BaseException)["__context__"].__get__
_PARTS: Final = vars(BaseExceptionGroup)["exceptions"].__get__


def drop_payloads(attempts: Iterable[Attempt]) -> None:
    """Have settled attempts keep of a large message what a context shows of it.

    A timer that a handler has cancelled stays in the event loop until its time, and the context in which it
    was made with it: for an hour, if `asyncio.timeout(3600)` was written there.
    """
    for attempt in attempts:
        # A consumer's attempt may be asked for its task later.
        if attempt.size > _LARGE_BYTES and attempt.settled is None:
            message = attempt.message
            attempt.message = new_task_message(
                id=message.id,
                type=message.type,
                queue=message.queue,
                retry=message.retry,
                retried=message.retried,
                retention=message.retention,
                unique_key=message.unique_key,
                headers=dict(message.headers),
            )
