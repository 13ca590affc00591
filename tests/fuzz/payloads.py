"""Fuzzers for payloads on their way into a handler's arguments, and for results on their way back."""

from __future__ import annotations

import enum
import json
import uuid
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

from hypothesis import strategies as st

from pyasynq._payload import ArgumentsCodec, ResultCodec
from pyasynq.errors import PayloadDecodingError, PayloadEncodingError
from tests.fuzz.fuzzer import BYTES, DEEP, JSON_VALUES, TEXTS, fuzzer


class Color(enum.Enum):
    RED = "red"
    TEN = 10


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Address(TypedDict, total=False):
    street: str
    number: int


@dataclass
class Node:
    name: str
    children: list[Node] = field(default_factory=list)
    parent: Node | None = None


HINTS: dict[str, Any] = {
    "anything": Any,
    "number": int,
    "ratio": float,
    "text": str,
    "flag": bool,
    "data": bytes,
    "when": datetime,
    "day": date,
    "hour": time,
    "wait": timedelta,
    "price": Decimal,
    "key": uuid.UUID,
    "path": Path,
    "color": Color,
    "mode": Literal["a", 1] | None,
    "point": Point,
    "address": Address,
    "node": Node,
    "numbers": list[int],
    "pair": tuple[int, str],
    "days": dict[date, float],
    "by_number": dict[int, set[str]],
    "either": int | str | None,
    "unique": frozenset[int],
}


def _handler(**hints: Any) -> ArgumentsCodec:
    names = ", ".join(
        f"{name}=None" if name == "either" else name
        for name in [*(n for n in hints if n != "either"), *(["either"] if "either" in hints else [])]
    )
    scope: dict[str, Any] = {}
    exec(f"def handler({names}): ...", scope)
    return ArgumentsCodec(scope["handler"], hints, owner="task 'fuzzed'")


ONE_EACH = {name: _handler(**{name: hint}) for name, hint in HINTS.items()}
ALL = _handler(**HINTS)
RESULTS = {name: ResultCodec(hint, owner="task 'fuzzed'") for name, hint in HINTS.items()}

NASTY = st.sampled_from(
    [
        DEEP,
        b'{"node":' * 50_000,
        b'{"x":' + b"9" * 5_000 + b"}",
        b"NaN",
        b'{"ratio":1e999}',
        b'"\\ud800"',
        b'"\\u0000"',
        b"\xef\xbb\xbf{}",
        b'{"a":1,"a":2}',
    ]
)
STRINGS = TEXTS | st.sampled_from(
    [
        "9999-12-31T23:59:59.999999+00:00",
        "0001-01-01",
        "24:00",
        "1e999",
        "NaN",
        "sNaN",
        "1E+999999999",
        "P1D",
        "=",
        "AA=",
    ]
)
TREES = (
    JSON_VALUES
    | STRINGS
    | st.lists(STRINGS, max_size=3)
    | st.dictionaries(STRINGS, STRINGS | JSON_VALUES, max_size=3)
)
JSON = TREES.map(lambda value: json.dumps(value).encode())


@fuzzer(
    st.tuples(st.sampled_from(sorted(HINTS)), JSON | NASTY | BYTES),
    PayloadDecodingError,
    PayloadEncodingError,
)
def payload(case: tuple[str, bytes]) -> None:
    """Arguments of the annotated types, which can be encoded again, or an ordinary failure."""
    name, data = case
    values = ONE_EACH[name].decode(b'{"%b":%b}' % (name.encode(), data))
    again = ONE_EACH[name].encode((), values or {name: None})
    ONE_EACH[name].decode(again)


@fuzzer(
    st.dictionaries(st.sampled_from(sorted(HINTS)) | TEXTS, TREES, max_size=4).map(
        lambda v: json.dumps(v).encode()
    )
    | BYTES
    | NASTY,
    PayloadDecodingError,
    from_bytes=bytes,
)
def whole_payload(data: bytes) -> None:
    """A payload of any bytes fits the handler, or its failure is an ordinary one."""
    ALL.decode(data)


@fuzzer(st.tuples(st.sampled_from(sorted(HINTS)), JSON | NASTY | BYTES), PayloadDecodingError)
def result(case: tuple[str, bytes]) -> None:
    """A result fits its annotation, or it is said that it does not."""
    name, data = case
    RESULTS[name].decode(data)


@fuzzer(
    st.tuples(st.sampled_from(sorted(HINTS)), JSON_VALUES | st.binary() | st.datetimes()),
    PayloadEncodingError,
)
def argument(case: tuple[str, Any]) -> None:
    """A caller's input is encoded so that a worker can decode it, or refused with its name."""
    name, value = case
    data = ONE_EACH[name].encode((), {name: value})
    ONE_EACH[name].decode(data)
