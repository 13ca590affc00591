"""One call of the API: path parameters, query parameters and body; and the answers of handlers."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from .problem import ProblemError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from pyasynq._face_records.fields import Record
    from pyasynq.operations import Operator
    from pyasynq.web.page import PageRequest

_MOST_IDS: Final = 50


@dataclass(frozen=True, slots=True)
class Listing:
    """Result of a handler: a page of records, the next cursor, and additional JSON members."""

    records: Sequence[Record]
    next: str = ""
    """Cursor of the next page; empty at the end."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Additional JSON members of the response, besides `items` and `next`."""


@dataclass(frozen=True, slots=True)
class Created:
    """Result of a handler: the record of a resource, and the path segments of its URL below `/api/v1`."""

    record: Record
    address: tuple[str, ...]
    status: int = 201


@dataclass(frozen=True, slots=True)
class Lines:
    """Result of a handler that is streamed as JSON lines (NDJSON)."""

    lines: AsyncGenerator[str]


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request to one route, with checked parameters and body."""

    ask: PageRequest
    names: Mapping[str, str]
    """Path parameters, by name such as `queue`."""
    values: Mapping[str, Any]
    """Query parameters, by name."""
    body: Any
    """Body, decoded as the struct that the route declares; None if the route takes no body."""
    depth: int
    """Number of segments of the path below `/api/v1`."""

    @property
    def operator(self) -> Operator:
        """Operator with the permissions of the user who sent the request."""
        return self.ask.operator

    @property
    def queue(self) -> str:
        """Name of the queue in the path."""
        return self.names["queue"]

    @property
    def task(self) -> str:
        """Id of the task in the path."""
        return self.names["task"]

    def __getitem__(self, name: str) -> Any:
        """Return the value of a query parameter."""
        return self.values[name]

    def header(self, name: str) -> str:
        """Return a header of the request; empty if it is missing."""
        return self.ask.request.headers.get(name, "")

    def address(self, *names: str) -> str:
        """Return the relative URL of a path below `/api/v1` from the request; each name is one segment."""
        return "../" * (self.depth - 1) + "/".join(
            quote(name.encode("utf-8", "surrogateescape"), safe="") for name in names
        )

    def check_unchanged(self, tag: str) -> None:
        """Compare the header `If-Match`, if sent, with the entity tag of the record (optimistic locking).

        Raises:
            ProblemError: the tags differ: someone else has changed the record.
        """
        wanted = self.header("if-match")
        if wanted and not matches_tag(wanted, tag):
            raise changed_meanwhile()


def changed_meanwhile() -> ProblemError:
    """Return the 412 problem of a conflicting change: the record has changed since the client read it."""
    remedy = "Read it again, and send your change with the new ETag."
    return ProblemError(412, "changed_meanwhile", "It is not what If-Match names.", remedy, field="If-Match")


def encode_answer(value: Any) -> bytes:
    """Encode a value as JSON with a newline; NaN and infinities, which JSON does not have, become null."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # names of bytes that are not UTF-8
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except ValueError:
        return json.dumps(_without_infinities(value), separators=(",", ":")).encode() + b"\n"


def make_tag(content: bytes) -> str:
    """Return the entity tag (ETag) of some content: a hash."""
    return f'"{hashlib.sha256(content).hexdigest()[:24]}"'


def matches_tag(header: str, tag: str) -> bool:
    """Return whether a header `If-Match` or `If-None-Match` names a tag."""
    named = [one.strip().removeprefix("W/") for one in header.split(",", _MOST_IDS)]
    return "*" in named or tag in named


def _without_infinities(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_infinities(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_infinities(one) for one in value]
    return None if isinstance(value, float) and value - value != 0 else value
