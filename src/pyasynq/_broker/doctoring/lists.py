"""Finding ids in long lists, which Redis can only walk from an end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pyasynq._redis.plan import CommandCall, Plan, Replay

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

LIST_WALK: Final = 100_000
"""Number of ids that a script searches from each end of a list.

A list of up to twice this length is therefore searched completely.
"""
LIST_PAGE: Final = 10_000
OVERLAP: Final = 1_000
"""Number of ids of a page that are read again with the next one, to find the continuation."""
_ROUNDS: Final = 3


def count_in_list(key: str, ids: Collection[bytes]) -> Plan[Counter[bytes] | None]:
    """Return how often each of the ids occurs in a list that is too long for one script.

    All counts are 0 for a shorter list, which a script counts. The list is read in pages: ids may be added
    and taken at its ends meanwhile. If ids are removed from its middle, the pages are read again from the
    start. Return None if three attempts have failed.
    """
    for _ in range(_ROUNDS):
        if (yield CommandCall(("LLEN", key), key, Replay.SAFE)) <= 2 * LIST_WALK:
            return Counter()
        counts: Counter[bytes] = Counter()
        before: list[bytes] = []
        start = 0
        while True:
            page = yield CommandCall(("LRANGE", key, start, start + LIST_PAGE - 1), key, Replay.SAFE)
            fresh = _find_continuation(before, page)
            if fresh is None:
                break
            counts.update(one for one in fresh if one in ids)
            if len(page) < LIST_PAGE:
                return counts
            before = page[-OVERLAP:]
            start += LIST_PAGE - OVERLAP
    return None


def _find_continuation(before: Sequence[bytes], page: Sequence[bytes]) -> Sequence[bytes] | None:
    """Return the ids of a page that come after the ids `before`; None if `before` is not found in the page.

    `before` has the last ids of the previous page, with which this page should begin. Ids added at the head
    since then shift it to the right, removed ids shift it to the left, and the end of the list may have been
    removed.
    """
    if not before or not page:
        return page
    for shift, first in enumerate(page):
        if first == before[0] and page[shift : shift + len(before)] == before[: len(page) - shift]:
            return page[shift + len(before) :]
    for gone in range(1, len(before)):
        rest = before[gone:]
        if page[0] == rest[0] and page[: len(rest)] == rest[: len(page)]:
            return page[len(rest) :]
    return None
