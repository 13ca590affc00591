"""Foreign data on their way to a viewer: they are shown within bounds, and without secrets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec
from hypothesis import strategies as st

from pyasynq.operations import MASK, Node, Redactor, Withheld, present
from pyasynq.operations.presentation import SHOWN_BYTES
from tests.fuzz.fuzzer import BYTES, DEEP, JSON_VALUES, TEXTS, fuzzer

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET: Final = "swordfish-7"
PUBLISHED: Final = ("pin", "card.number", "keys[].value", "rows[][]")
REDACTOR: Final = Redactor(secret_fields=lambda _type: PUBLISHED)
NAMES: Final = st.sampled_from(["password", "pin", "card", "keys", "rows", "value", "number", "user"])
CHARACTERS: Final = "\x1b\x07\u202e\u200b"

MESSAGES: Final = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), TEXTS, BYTES),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(NAMES | TEXTS, inner, max_size=5),
    max_leaves=30,
)
DATA: Final = st.one_of(
    BYTES,
    st.sampled_from([DEEP, b"\x91" * 50_000, b"\xdf\xff\xff\xff\xff", b"\x0a" * 40_000, b"[" * 60_000]),
    MESSAGES.map(lambda value: msgspec.msgpack.encode(_encodable(value))),
    st.tuples(MESSAGES.map(lambda value: msgspec.msgpack.encode(_encodable(value))), BYTES).map(b"".join),
    JSON_VALUES.map(lambda value: json.dumps(value).encode("utf-8", "replace")),
)


def _encodable(value: Any) -> Any:
    """Return a value whose texts have no lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_encodable(one) for one in value]
    if isinstance(value, dict):
        return {_encodable(name): _encodable(one) for name, one in value.items()}
    return value


def _texts(node: Node | None) -> Iterator[str]:
    if node is not None:
        yield node.text
        yield node.name or ""
        for child in node.children or ():
            yield from _texts(child)


@fuzzer(st.tuples(DATA, st.sampled_from(["", "tree", "text", "hex"])))
def present_data(value: tuple[bytes, str]) -> None:
    """Each form is bounded, and has no character that acts."""
    shown = present(*value)
    texts = [shown.text, shown.note, *_texts(shown.tree)]
    assert len(texts) <= 6_000
    assert sum(map(len, texts)) <= 20 * SHOWN_BYTES
    assert not set(CHARACTERS) & set("".join(texts))


@fuzzer(DATA)
def redact_data(data: bytes) -> None:
    """Redacted again, data stay the same; and JSON stays JSON."""
    once = REDACTOR.data(data, "t")
    if not isinstance(once, Withheld):
        assert once == REDACTOR.data(once, "t")
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return
    if data.lstrip()[:1] in {b"{", b"["}:
        json.loads(once)


@fuzzer(st.tuples(st.lists(NAMES, max_size=4), st.sampled_from(["json", "msgpack"]), MESSAGES))
def redact_a_secret(value: tuple[list[str], str, Any]) -> None:
    """A secret after its name is replaced at any depth, next to any other field."""
    path, form, rest = value
    inner: Any = {"user": _encodable(rest) if form == "msgpack" else None, "pin": SECRET, "x": 1}
    for name in path:
        inner = {"a": [inner], name: {"b": inner}}
    data = json.dumps(inner).encode() if form == "json" else msgspec.msgpack.encode(inner)
    shown = REDACTOR.data(data, "t")
    assert SECRET.encode() not in shown
    assert MASK.encode() in shown or isinstance(shown, Withheld)
