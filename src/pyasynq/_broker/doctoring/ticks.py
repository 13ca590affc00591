"""Plans of the doctor that examine the last ticks of scheduler entries and repair them."""

from __future__ import annotations

from pyasynq._broker.arguments import MAX_TASKS
from pyasynq._broker.scripts import DOCTOR_RESET_TICK
from pyasynq._broker.stored import parse_number
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import queue_keys


def find_ticks_after(queue: str, moment: int) -> Plan[dict[bytes, bytes]]:
    """Return the fields of a queue's hash `x:ticks` whose tick is after this Unix time, with their values."""
    ticks = queue_keys(queue).ticks
    found: dict[bytes, bytes] = {}
    cursor = b"0"
    while True:
        cursor, fields = yield CommandCall(("HSCAN", ticks, cursor, "COUNT", MAX_TASKS), ticks, Replay.SAFE)
        values = zip(fields[::2], fields[1::2], strict=True)
        found |= {field: value for field, value in values if parse_number(value) > moment}
        if cursor == b"0":
            return found


def reset_tick(queue: str, field: bytes, value: bytes, now: int) -> Plan[bool]:
    """Set a field of `x:ticks` to the current time; return False if it no longer has this value."""
    done = yield ScriptCall(DOCTOR_RESET_TICK, (queue_keys(queue).ticks,), (field, value, now), Replay.SAFE)
    return bool(done)
