"""The syntax tree of a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._fields import Field
    from ._values import ValueTest


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause: a field and its values, one of which must match; a flag has no values."""

    field: Field
    path: tuple[str | None, ...]
    """Steps of a path in the payload, or parts of a header's name; None matches every member or element."""
    tests: tuple[ValueTest, ...]
    position: int
    """Start of the clause in the query, in characters from 0."""
    length: int


@dataclass(frozen=True, slots=True)
class All:
    """Conjunction: every part matches. Without parts it is always true."""

    parts: tuple[QueryNode, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Disjunction: one part matches. Without parts it is never true."""

    parts: tuple[QueryNode, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Negation: the part does not match."""

    part: QueryNode


QueryNode: TypeAlias = Clause | All | Either | Not

TRUE: Final = All(())
FALSE: Final = Either(())


def clauses_of(node: QueryNode) -> Iterator[Clause]:
    """Yield the clauses of a tree, in the order of the query."""
    if isinstance(node, Clause):
        yield node
    elif isinstance(node, Not):
        yield from clauses_of(node.part)
    else:
        for part in node.parts:
            yield from clauses_of(part)
