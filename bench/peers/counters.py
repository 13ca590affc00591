"""Counters of handlers that ran: equally cheap for every peer, and without load on Redis.

The counters are a memory-mapped file that all processes of a measurement share, in words of 8 bytes. First
come the number of slots taken, and the id of the process whose handler never ends. Then come the slots, one
for each process: handlers ended, handlers started. Then come the pick-up delays of numbered tasks in
nanoseconds. `asynq/counters.go` uses the same layout.
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
"""Special send time of a task: its first handler call never ends."""

SLOTS = 4096
SAMPLES = 4096
STAYING = 1
FIRST_SLOT = 8
FIRST_SAMPLE = FIRST_SLOT + 2 * SLOTS
WORDS = FIRST_SAMPLE + SAMPLES


def map_counters(path: str | Path) -> memoryview[int]:
    """Map a counters file into memory, shared with all processes that map it; return its words."""
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
    """Count a task that ran; record its pick-up delay unless `sent` is 0. Not thread-safe (event loop)."""
    words = _Own.words or _attach()
    if sent:
        _look_at(words, number, sent)
    words[_Own.at] += 1


def hit_from_thread(number: int, sent: int) -> None:
    """Do the same as `hit`, but thread-safe."""
    with _lock:
        words = _Own.words or _attach()
    if sent:
        _look_at(words, number, sent)
    with _lock:
        words[_Own.at] += 1


def started() -> None:
    """Count a handler that has started; for peers that count start and end separately."""
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
    """Return a sum over all processes: of ended handlers, or with word 1 of started handlers."""
    return sum(words[FIRST_SLOT + word : FIRST_SLOT + 2 * words[0] : 2])
