"""Contradictory counters: processed must be at least failed, and a total at least the sum of its days."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.arguments import MAX_TASKS, chunks
from pyasynq._broker.scripts import DOCTOR_RAISE_COUNTER
from pyasynq._broker.stored import decode_name
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq._redis.plan import Reply


def find_wrong_counters(queue: str, counters: Iterable[bytes]) -> Plan[dict[bytes, int | None]]:
    """Return each wrong counter of a queue with its smallest correct value; None if it holds no number.

    `counters` are the keys of the daily counters. `processed` and `failed` of a day are read in one command.
    A daily counter that is missing has expired, so it is never wrong. A missing total counts as 0.
    """
    keys = queue_keys(queue)
    processed, failed = keys.processed.encode(), keys.failed.encode()
    wrong: dict[bytes, int | None] = {}
    sums = {processed: 0, failed: 0}
    days = sorted({key.rpartition(b":")[2] for key in counters})
    for some in chunks(days, most=MAX_TASKS // 2):
        names = [b"%b:%b" % (total, day) for total in (processed, failed) for day in some]
        values = dict(zip(names, (yield _read(names, keys.processed)), strict=True))
        for day in some:
            pair = [b"%b:%b" % (total, day) for total in (processed, failed)]
            numbers = _numbers(pair, values, wrong)
            if numbers[0] is not None and (numbers[1] or 0) > numbers[0]:
                wrong[pair[0]] = numbers[0] = numbers[1]
            sums[processed] += numbers[0] or 0
            sums[failed] += numbers[1] or 0
    totals = [processed, failed]
    values = dict(zip(totals, (yield _read(totals, keys.processed)), strict=True))
    least = 0
    for total, number in zip(totals[::-1], _numbers(totals, values, wrong)[::-1], strict=True):
        least = max(least, sums[total])
        if total not in wrong and (number or 0) < least:
            wrong[total] = least
        least = max(least, number or 0)
    return wrong


def raise_counter(queue: str, counter: bytes, least: int | None) -> Plan[bool]:
    """Raise a counter to `least`, its smallest correct value; None deletes it, if it is not a number.

    Return False if the counter does not need this repair any more.
    """
    keys = queue_keys(queue)
    is_total = counter in {keys.processed.encode(), keys.failed.encode()}
    arguments = ("" if least is None else least, int(is_total))
    return bool((yield ScriptCall(DOCTOR_RAISE_COUNTER, (decode_name(counter),), arguments, Replay.SAFE)))


def _read(names: list[bytes], key: str) -> CommandCall:
    return CommandCall(("MGET", *names), key, Replay.SAFE)


def _numbers(
    names: list[bytes], values: dict[bytes, Reply], wrong: dict[bytes, int | None]
) -> list[int | None]:
    numbers: list[int | None] = []
    for name in names:
        try:
            numbers.append(None if values[name] is None else int(values[name]))
        except ValueError:
            wrong[name] = None
            numbers.append(None)
    return numbers
