"""Counting handlers that ran, at the same small cost for every peer and at none for Redis.

The counters are a file that all processes of a measurement map, in words of 8 bytes: how many slots are
taken, and the process whose handler stays for ever; then the slots, one a process: handlers ended, handlers
started; then the pick-up delays of numbered tasks in nanoseconds. `asynq/counters.go` knows the same layout.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import time
from pathlib import Path

COUNTERS_VARIABLE = "BENCH_COUNTERS"
STAY = -1
"""Special send time of a task: the first handler that runs such a task never ends."""

SLOTS = 4096
SAMPLES = 4096
STAYING = 1
FIRST_SLOT = 8
FIRST_SAMPLE = FIRST_SLOT + 2 * SLOTS
WORDS = FIRST_SAMPLE + SAMPLES


def map_counters(path: str | Path) -> memoryview[int]:
    """Return the words of a counters file, shared with all who map it."""
    with Path(path).open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), WORDS * 8)).cast("q")


class _Own:
    """The slot of this process in the counters file; a forked child takes a new slot."""

    words: memoryview[int] | None = None
    at = 0


_lock = threading.Lock()


def _attach() -> memoryview[int]:
    path = os.environ[COUNTERS_VARIABLE]
    words = map_counters(path)
    with Path(path).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        slot = words[0]
        words[0] = slot + 1
    _Own.at = FIRST_SLOT + 2 * slot
    _Own.words = words
    return words


def _forget() -> None:
    _Own.words = None


os.register_at_fork(after_in_child=_forget)


def hit(number: int, sent: int) -> None:
    """Count a task that ran, from the one thread of an event loop, and note the delay of a timed one."""
    words = _Own.words or _attach()
    if sent:
        _look_at(words, number, sent)
    words[_Own.at] += 1


def hit_from_thread(number: int, sent: int) -> None:
    """Count a task that ran, as `hit`, but from any thread."""
    with _lock:
        words = _Own.words or _attach()
    if sent:
        _look_at(words, number, sent)
    with _lock:
        words[_Own.at] += 1


def started() -> None:
    """Count a handler that begins; for peers whose handlers count begin and end separately."""
    words = _Own.words or _attach()
    words[_Own.at + 1] += 1


def _look_at(words: memoryview[int], number: int, sent: int) -> None:
    if sent != STAY:
        words[FIRST_SAMPLE + number % SAMPLES] = time.time_ns() - sent
        return
    if not any(words[FIRST_SLOT + 1 : FIRST_SAMPLE : 2]):
        started()
        words[STAYING] = os.getpid()
        while True:  # until this process is killed
            time.sleep(60)


def sum_of(words: memoryview[int], word: int = 0) -> int:
    """Add up what all processes have counted: handlers that ended, or (word 1) that were started."""
    return sum(words[FIRST_SLOT + word : FIRST_SLOT + 2 * words[0] : 2])
