"""Scripts in the slow log of Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyasynq._broker.scripts import ALL_SCRIPTS
from pyasynq._redis.plan import CommandCall, Place, Plan, Replay

if TYPE_CHECKING:
    from pyasynq._clock import Instant


class SlowScript(NamedTuple):
    """A script of pyasynq, or of a Go server, in Redis' slow log."""

    number: int
    name: str
    at: int
    milliseconds: int


def list_slow_scripts(
    now: Instant, *, milliseconds: int, seconds: int, at: Place = None
) -> Plan[list[SlowScript]]:
    """Return the scripts in the slow log of one Redis server that took more than `milliseconds`.

    Only runs in the last `seconds` are returned.

    Raises:
        RedisPermissionError: for users without the right to SLOWLOG.
    """
    names = {form.sha: script.name for script in ALL_SCRIPTS for form in (script.flagged, script.plain)}
    found = []
    for number, noted_at, microseconds, arguments, *_ in (
        yield CommandCall(("SLOWLOG", "GET", 128), at, Replay.SAFE)
    ):
        command = arguments[0].upper()
        is_ours = command in {b"EVALSHA", b"EVAL"} and any(
            part.startswith(b"asynq:") for part in arguments[3:]
        )
        if is_ours and microseconds > milliseconds * 1_000 and noted_at > now.seconds - seconds:
            sha = arguments[1].decode("ascii", "replace")
            found.append(
                SlowScript(number, names.get(sha, "of another peer"), noted_at, microseconds // 1_000)
            )
    return found
