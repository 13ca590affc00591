"""Arguments common to all plans: the time, and the limits of a call's size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Argument

_T = TypeVar("_T")

MAX_TASKS: Final = 1_000
"""Largest number of ids in one call: keeps `unpack` in scripts far below Lua's limit of about 8,000 values.
"""

MAX_BYTES: Final = 4_000_000
"""Maximum bytes of messages in one call or reply, so that no call blocks Redis or a connection for long."""

MAX_ARGUMENTS: Final = 3_850
"""Largest number of arguments for the items of one call.

With its keys and other arguments, a call has at most 3,900 arguments: some managed Redis services refuse a
call with 4,000.
"""

FIRST_SEND: Final = "0"
"""First argument of a script (`replay`) at its first run; a driver that resends the call replaces it by 1."""


def time_arguments(now: Instant | None) -> tuple[Argument, Argument]:
    """Return the arguments `now_seconds` and `now_microseconds`.

    None gives empty strings, which make the script use Redis' TIME. The values are strings, because a call
    without numbers is packed faster.
    """
    return ("", "") if now is None else (str(now.seconds), str(now.microseconds))


def chunks(
    items: Sequence[_T],
    *,
    most: int = MAX_TASKS,
    width: int = 1,
    size_of: Callable[[_T], int] | None = None,
    most_size: int = MAX_BYTES,
) -> Iterator[Sequence[_T]]:
    """Cut items into slices; an item is never cut.

    Args:
        items: what to cut.
        most: maximum number of items of a slice. `MAX_ARGUMENTS` limits this number, too.
        width: number of arguments for one item.
        size_of: size of an item, such as its bytes or tasks; None if sizes do not matter.
        most_size: maximum sum of sizes of a slice; a larger item is alone in its slice.
    """
    most = min(most, MAX_ARGUMENTS // width)
    if size_of is None:
        for first in range(0, len(items), most):
            yield items[first : first + most]
        return
    first = size = 0
    for position, item in enumerate(items):
        item_size = size_of(item)
        if position > first and (position - first == most or size + item_size > most_size):
            yield items[first:position]
            first, size = position, 0
        size += item_size
    if first < len(items):
        yield items[first:]
