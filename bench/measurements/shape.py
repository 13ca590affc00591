"""The common shape of measurements: some contestants, each measured once a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from bench.contestants import Contestant, Length
    from bench.figures import Figure
    from bench.stage import Stage


@dataclass(frozen=True)
class Entry:
    """One row of a measurement.

    Attributes:
        run: measures once, and returns the figures by their names.
        floor: the key of the row that nothing on this Redis can beat.
    """

    key: str
    title: str
    run: Callable[[], dict[str, float]]
    floor: str | None = None


@dataclass(frozen=True)
class Scene:
    """What a measurement may use.

    Attributes:
        peers: those that take part.
        servers: the kinds of servers that are there.
        length: how much is measured.
    """

    stage: Stage
    peers: Sequence[str]
    servers: Sequence[str]
    length: Length


@dataclass(frozen=True)
class Measurement:
    """What is measured.

    Attributes:
        open: makes the entries; what they need stands for the time of the block.
        reference: the key of the row that others are compared with.
        by_default: part of a run that names no measurements.
        most_rounds: where a round takes minutes.
    """

    key: str
    title: str
    figures: tuple[Figure, ...]
    open: Callable[[Scene], AbstractContextManager[list[Entry]]]
    reference: str | None = None
    notes: tuple[str, ...] = ()
    by_default: bool = True
    most_rounds: int | None = None


def entries_of(
    contestants: Iterable[Contestant],
    run: Callable[[Contestant], dict[str, float]],
    floor: Callable[[Contestant], str | None] = lambda _: None,
) -> list[Entry]:
    """Make an entry for each contestant."""

    def entry(contestant: Contestant) -> Entry:
        return Entry(contestant.key, contestant.title, lambda: run(contestant), floor(contestant))

    return [entry(contestant) for contestant in contestants]
