"""Judge of hosted tasks: what each answer means for the next call and for the end, and what kills explain."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DONE: Final = frozenset({"200", "204", "lease", "0", "leave", "flood", "slow"})
ARCHIVES: Final = frozenset({"404", "410", "422", "archive", "64", "65"})
WAITS: Final = frozenset({"429s", "429d", "503s", "snooze", "99"})
"""Answers after which a task runs again later, with no retry spent."""
CRASH_LIMIT: Final = 3
"""Kills in the middle of a task after which it is archived as poison."""
_SLACK_SECONDS: Final = 1.0
"""A request may wait in a buffer while its caller is killed, and be recorded after that."""


class Call(NamedTuple):
    """A request of a task, or a start of its command.

    Attributes:
        at: Unix time.
        instance: that made it.
        attempt: its number.
        answer: word of the table.
        wait: seconds until the next call, as the answer asked.
    """

    at: float
    instance: str
    attempt: int
    answer: str
    wait: float = 0.0


class Ended(NamedTuple):
    """State of a task in the end, and the retries that it has spent."""

    state: str
    retried: int


class Kill(NamedTuple):
    """An instance was killed, at a Unix time."""

    at: float
    instance: str


def find_faults(
    name: str, calls: Sequence[Call], found: Ended | None, kills: Sequence[Kill], max_retry: int
) -> Iterator[str]:
    """Yield a sentence for everything that the table of outcomes and the kills do not explain.

    Args:
        name: of the task.
        calls: all of it, in order.
        found: the task in the end; None if it is gone.
        kills: of instances.
        max_retry: of the task.
    """
    if not calls:
        yield f"{name} never ran, and is {_describe(found)}"
        return
    crashes = 0
    for one, two in pairwise(calls):
        if is_expected(one, two, max_retry):
            continue
        if two.attempt != one.attempt or not is_explained(one, two.at, kills):
            yield f"{name}: after {one} came {two}, and no kill explains it"
        crashes += 1
    last = calls[-1]
    if _describe(found) == describe_end(last, max_retry):
        return
    crashes += is_explained(last, float("inf"), kills)
    is_poison = crashes >= CRASH_LIMIT and found is not None and found.state == "archived"
    if not is_poison:
        yield f"{name} is {_describe(found)} after {last}, not {describe_end(last, max_retry)}"


def is_expected(one: Call, two: Call, max_retry: int) -> bool:
    """Return whether the table leads from one call to the next one."""
    if one.answer in WAITS:
        return two.attempt == one.attempt and two.at >= one.at + one.wait
    if one.answer in DONE | ARCHIVES or one.answer == "cancel":
        return False
    return two.attempt == one.attempt + 1 <= max_retry + 1


def is_explained(call: Call, until: float, kills: Sequence[Kill]) -> bool:
    """Return whether the instance of a call was killed before it had settled the attempt."""
    return any(
        kill.instance == call.instance and call.at - _SLACK_SECONDS < kill.at < until for kill in kills
    )


def describe_end(last: Call, max_retry: int) -> str:
    """Return state and spent retries of a task whose last call was this one."""
    if last.answer in DONE:
        return f"completed with {last.attempt - 1} retries"
    if last.answer in ARCHIVES or (last.answer not in WAITS and last.attempt > max_retry):
        return f"archived with {last.attempt - 1} retries"
    return "gone" if last.answer == "cancel" else "waiting"


def _describe(found: Ended | None) -> str:
    return "gone" if found is None else f"{found.state} with {found.retried} retries"


def count_again(calls: Mapping[str, Sequence[Call]], max_retry: int) -> int:
    """Return the number of calls that repeat one whose outcome was lost."""
    return sum(not is_expected(one, two, max_retry) for some in calls.values() for one, two in pairwise(some))
