"""Formatting as in Go: JSON, times in RFC 3339, durations, quoted strings."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyasynq._go_duration import format_go_duration

ZERO_TIME: Final = "0001-01-01T00:00:00Z"
"""Go's zero time, which stands for "never"."""

_ESCAPED_IN_JSON: Final = str.maketrans(
    {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
)
_SHORT_ESCAPES: Final = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": r"\\",
    '"': r"\"",
}
_ROUNDED_TO: Final = timedelta(milliseconds=10)
_HALF: Final = _ROUNDED_TO / 2
_LAST_BYTE: Final = 0x7F
_LAST_OF_PLANE: Final = 0xFFFF


def encode_json(value: Any) -> bytes:
    """Return a value as Go's `json.Encoder` writes it, with a newline at the end."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return (text.translate(_ESCAPED_IN_JSON) + "\n").encode("utf-8", "replace")


def local_time(moment: datetime) -> datetime:
    """Return a time in the time zone of this process."""
    return moment.astimezone()


def format_time(moment: datetime | None, *, fraction: bool = False) -> str:
    """Return a time in RFC 3339 in the time zone of this process; None becomes Go's zero time.

    With `fraction`, the seconds have a fraction without trailing zeros, as in Go's JSON.
    """
    if moment is None:
        return ZERO_TIME
    local = local_time(moment)
    text = local.replace(tzinfo=None, microsecond=0).isoformat()
    if fraction and local.microsecond:
        text += f".{local.microsecond:06d}".rstrip("0")
    offset = local.utcoffset()
    return text + ("Z" if not offset else local.isoformat()[-6:])


def format_set_time(moment: datetime | None) -> str:
    """Return a time in RFC 3339; None becomes an empty string."""
    return "" if moment is None else format_time(moment)


def format_latency(duration: timedelta) -> str:
    """Return a duration as Go prints it, rounded to 10 ms."""
    return format_go_duration((duration + _HALF) // _ROUNDED_TO * _ROUNDED_TO)


def format_data(data: bytes, most: int | None) -> str:
    """Return bytes as asynqmon shows them: printable text unchanged, else the words `non-printable bytes`.

    Args:
        data: a payload or a result.
        most: maximum number of characters, after which the rest is replaced by `…`; None is unlimited.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or not text.strip(" "):
        text = "non-printable bytes"
    return text if most is None or len(text) <= most else text[:most] + "…"


def quote_for_go(text: str) -> str:
    """Return a string in quotation marks, as Go's formatting verb `%q` writes it."""
    return '"' + "".join(_quote_character(character) for character in text) + '"'


def seconds_left(until: datetime) -> int:
    """Return the whole seconds from now until a time, truncated toward zero; negative for a past time."""
    return int((until - datetime.now(UTC)).total_seconds())


def _quote_character(character: str) -> str:
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code <= _LAST_BYTE:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _LAST_OF_PLANE else f"\\U{code:08x}"
