"""What tasks carry: plain classes, of which each has one form in JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field

from pyasynq import Secret  # noqa: TC001 - the app resolves the annotations


@dataclass(frozen=True)
class Money:
    """An amount in euros. It has a codec, so that JSON has `"12.50"` instead of an object."""

    cents: int

    def __str__(self) -> str:
        """Return the amount as in `12.50`."""
        return f"{self.cents // 100}.{self.cents % 100:02}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the amount of a text such as `12.50`. Raises `ValueError` for another text."""
        euros, cents = text.split(".")
        return cls(int(euros) * 100 + int(cents))


@dataclass(frozen=True)
class Catalogue:
    """Titles of the articles."""

    titles: dict[str, str]

    def title(self, article: str) -> str:
        """Return the title of an article, or its name."""
        return self.titles.get(article, article)


@dataclass
class Line:
    """One line of an order."""

    article: str
    price: Money
    count: int = 1


@dataclass
class ByCard:
    """Payment by card. No log, error or dashboard shows the token."""

    token: Secret[str]
    kind: Literal["card"] = "card"


@dataclass
class ByInvoice:
    """Payment within some days."""

    days: int = 14
    kind: Literal["invoice"] = "invoice"


Payment: TypeAlias = ByCard | ByInvoice
"""A discriminated union: `kind` tells the classes apart."""

Year: TypeAlias = Annotated[int, Field(ge=2_000, le=2_100)]
"""A constraint, which is checked when a task is enqueued, and again in the worker."""
