"""Pairs of reads that run at the same time, so that this process can compute while Redis answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

_First = TypeVar("_First")
_Second = TypeVar("_Second")


async def read_both_async(first: Awaitable[_First], second: Awaitable[_Second]) -> tuple[_First, _Second]:
    """Return the results of two reads that run concurrently. After both have ended, raise the first error."""
    one, other = await asyncio.gather(first, second, return_exceptions=True)
    if isinstance(one, BaseException):
        raise one
    if isinstance(other, BaseException):
        raise other
    return one, other


def read_both_blocking(first: _First, second: _Second) -> tuple[_First, _Second]:
    """Return the results of two blocking reads, which have run one after the other before this call."""
    return first, second
