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
        run: function that measures once, and returns the figures by name.
        floor: key of the row with the theoretical limit of this server.
        reference: the key of the row that this one is compared with.
    """

    key: str
    title: str
    run: Callable[[], dict[str, float]]
    floor: str | None = None
    reference: str | None = None


@dataclass(frozen=True)
class Scene:
    """Setting of a measurement: the stage, peers, servers and length.

    Attributes:
        peers: participating peers.
        servers: available kinds of servers.
        length: extent of the run.
    """

    stage: Stage
    peers: Sequence[str]
    servers: Sequence[str]
    length: Length


@dataclass(frozen=True)
class Measurement:
    """One measurement: its rows, figures and notes.

    Attributes:
        open: context manager that makes the entries, and keeps their resources until its block ends.
        compared: reference of the comparison, as text for a heading.
        by_default: whether a run without named measurements includes this one.
        most_rounds: limit of rounds for a measurement whose rounds take minutes.
    """

    key: str
    title: str
    figures: tuple[Figure, ...]
    open: Callable[[Scene], AbstractContextManager[list[Entry]]]
    compared: str = ""
    notes: tuple[str, ...] = ()
    by_default: bool = True
    most_rounds: int | None = None


def entries_of(
    contestants: Iterable[Contestant],
    run: Callable[[Contestant], dict[str, float]],
    *,
    floor: Callable[[Contestant], str | None] = lambda _: None,
    reference: Callable[[Contestant], str | None] = lambda _: None,
) -> list[Entry]:
    """Make an entry for each contestant."""

    def entry(one: Contestant) -> Entry:
        return Entry(one.key, one.title, lambda: run(one), floor(one), reference(one))

    return [entry(contestant) for contestant in contestants]
