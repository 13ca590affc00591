"""Readers of foreign data: JSON, MessagePack and protobuf become values that can be shown.

Numbers keep their original text, and objects keep duplicate keys. Nothing is executed. Data that are nested
too deeply, truncated, or followed by further bytes are rejected.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

DEEPEST: Final = 40
"""Maximum nesting that is decoded or shown."""
_LONGEST_BYTES: Final = 64
_LARGEST_FIELD: Final = 10_000
"""Largest field number accepted when guessing that bytes are protobuf; higher ones are legal, but rare."""


class Number(str):
    """A JSON number as its original text, so that no digit is lost."""

    __slots__ = ()


class Note(str):
    """A text about a value that is neither text nor number, such as bytes."""

    __slots__ = ()


class Pairs(list[tuple[Any, Any]]):
    """A decoded JSON object: pairs of name and value in their original order, with duplicate names."""

    __slots__ = ()


class _NotReadableError(ValueError):
    """The data are not in this format, or nested too deeply."""


def read_json(text: str) -> Any:
    """Return the object or list that JSON holds; None for any other value, and for invalid JSON."""
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        return json.loads(
            text,
            parse_int=Number,
            parse_float=Number,
            parse_constant=Number,
            object_pairs_hook=Pairs,
        )
    except (ValueError, RecursionError):
        return None


def describe_bytes(data: bytes) -> Note:
    """Return a note on bytes: the first bytes in hex, and how many bytes there are."""
    more = f"… {len(data):,} bytes" if len(data) > _LONGEST_BYTES else ""
    return Note(f"h'{data[:_LONGEST_BYTES].hex(' ')}'{more}")


# MessagePack: https://github.com/msgpack/msgpack/blob/master/spec.md


def read_msgpack(data: bytes, found: Callable[[str, int, int, Any], object] | None = None) -> Any:
    """Return the map or array that MessagePack holds; None for any other value, and for invalid data.

    Args:
        data: the whole message.
        found: callback for each entry of a map. Its arguments are the name, the begin and end of the value,
            and the value.
    """
    first = data[:1]
    if not (b"\x80" <= first <= b"\x9f" or first in {b"\xdc", b"\xdd", b"\xde", b"\xdf"}):
        return None
    reader = _MessagePackReader(data, found)
    try:
        value = reader.read(0)
    except (_NotReadableError, IndexError, struct.error, UnicodeDecodeError):
        return None
    return value if reader.at == len(data) else None


class _MessagePackReader:
    """MessagePack decoder that reads one value after another; `at` is the position of the next value."""

    def __init__(self, data: bytes, found: Callable[[str, int, int, Any], object] | None) -> None:
        self._data = data
        self._found = found
        self.at = 0

    def read(self, depth: int) -> Any:
        """Return the next value."""
        if depth > DEEPEST:
            raise _NotReadableError
        kind = self._data[self.at]
        self.at += 1
        if kind <= 0x7F or kind >= 0xE0:
            return Number(kind if kind <= 0x7F else kind - 0x100)
        if kind <= 0x8F:
            return self._map(kind & 0x0F, depth)
        if kind <= 0x9F:
            return self._array(kind & 0x0F, depth)
        if kind <= 0xBF:
            return self._take(kind & 0x1F).decode()
        return self._read_long(kind, depth)

    def _read_long(self, kind: int, depth: int) -> Any:  # noqa: PLR0911 - one for each class of the format
        match kind:
            case 0xC0:
                return None
            case 0xC2 | 0xC3:
                return kind == 0xC3
            case 0xC4 | 0xC5 | 0xC6:
                return describe_bytes(self._take(self._unpack("BHI"[kind - 0xC4])))
            case 0xC7 | 0xC8 | 0xC9:
                return self._extension(self._unpack("BHI"[kind - 0xC7]))
            case 0xD4 | 0xD5 | 0xD6 | 0xD7 | 0xD8:
                return self._extension(1 << (kind - 0xD4))
            case 0xD9 | 0xDA | 0xDB:
                return self._take(self._unpack("BHI"[kind - 0xD9])).decode()
            case 0xDC | 0xDD:
                return self._array(self._unpack("HI"[kind - 0xDC]), depth)
            case 0xDE | 0xDF:
                return self._map(self._unpack("HI"[kind - 0xDE]), depth)
            case 0xC1:
                raise _NotReadableError
        return Number(self._unpack("fdBHIQbhiq"[kind - 0xCA]))

    def _map(self, count: int, depth: int) -> Pairs:
        pairs = Pairs()
        for _ in range(count):
            name = self.read(depth + 1)
            start = self.at
            value = self.read(depth + 1)
            if self._found is not None and isinstance(name, str):
                self._found(name, start, self.at, value)
            pairs.append((name, value))
        return pairs

    def _array(self, count: int, depth: int) -> list[Any]:
        # Each element takes at least one byte, so a forged count fails at the end of the data.
        return [self.read(depth + 1) for _ in range(count)]

    def _extension(self, size: int) -> Note:
        kind: int = self._unpack("b")
        return Note(f"extension {kind}: {describe_bytes(self._take(size))}")

    def _unpack(self, form: str) -> Any:
        size = struct.calcsize(">" + form)
        (value,) = struct.unpack(">" + form, self._take(size))
        return value

    def _take(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        if self.at > len(self._data):
            raise _NotReadableError
        return self._data[start : self.at]


# Protobuf: https://protobuf.dev/programming-guides/encoding/


def guess_protobuf(data: bytes) -> Pairs | None:
    """Decode data as a protobuf message without its schema, by field numbers; None if that is impossible.

    The format names no fields and no types, so the content decides whether a field is shown as text, message
    or bytes.
    """
    if not data:
        return None
    try:
        return _read_message(data, 0)
    except (_NotReadableError, IndexError, struct.error):
        return None


def _read_message(data: bytes, depth: int) -> Pairs:
    if depth > DEEPEST:
        raise _NotReadableError
    fields = Pairs()
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        if not 0 < tag >> 3 <= _LARGEST_FIELD:
            raise _NotReadableError
        value: Any
        match tag & 7:
            case 0:
                number, at = _read_varint(data, at)
                value = Number(number)
            case 1:
                value, at = _describe_fixed("<Qd", data[at : at + 8]), at + 8
            case 5:
                value, at = _describe_fixed("<If", data[at : at + 4]), at + 4
            case 2:
                size, at = _read_varint(data, at)
                if at + size > len(data):
                    raise _NotReadableError
                value, at = _guess_bytes(data[at : at + size], depth), at + size
            case _:
                raise _NotReadableError
        fields.append((Number(tag >> 3), value))
    return fields


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    raise _NotReadableError


def _describe_fixed(forms: str, data: bytes) -> Note:
    """Return a note on a fixed-size value of 4 or 8 bytes: as a hex number, and as a float."""
    whole, real = (struct.unpack(forms[0] + form, data)[0] for form in forms[1:])
    return Note(f"0x{whole:0{2 * len(data)}x} ({real!r} as a float)")


def _guess_bytes(data: bytes, depth: int) -> Any:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\x00"
    if is_text(text):
        return text
    try:
        return _read_message(data, depth + 1)
    except (_NotReadableError, IndexError, struct.error):
        return describe_bytes(data)


def is_text(text: str) -> bool:
    """Return whether text is readable: it has no control characters but line breaks, tabs and ESC."""
    return text.isprintable() or not any(letter < " " and letter not in "\t\n\r\x1b" for letter in text)
