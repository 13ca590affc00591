"""Base of descriptions that are sequences of items and have attributes of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

ItemT_co = TypeVar("ItemT_co", covariant=True)


class TupleSequence(Sequence[ItemT_co]):
    """A read-only sequence of the items in a tuple, for descriptions with attributes of their own."""

    __slots__ = ()

    @property
    def _items(self) -> tuple[ItemT_co, ...]:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> ItemT_co: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[ItemT_co, ...]: ...

    def __getitem__(self, index: int | slice) -> ItemT_co | tuple[ItemT_co, ...]:
        """Return one item, or the items of a slice."""
        return self._items[index]

    def __iter__(self) -> Iterator[ItemT_co]:
        """Iterate over the items; `Sequence` would get each by its index."""
        return iter(self._items)

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._items)
