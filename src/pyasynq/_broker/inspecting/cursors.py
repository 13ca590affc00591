"""Cursors of walks (pagination): opaque strings from which a walk continues.

A cursor gives no right to read anything, so it is not signed. It is checked like any other input of a user.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from typing import TYPE_CHECKING, Any, Final

from pyasynq._checks import check_text
from pyasynq.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

_VERSION: Final = 1
_MOST_CHARACTERS: Final = 60_000
_MOST_IDS: Final = 300
_TAG_BYTES: Final = 4
_REMEDY: Final = "is not a cursor that this list has returned; begin without one"


def list_tag(*names: str) -> str:
    """Return a digest that identifies a list; cursors carry it, and a cursor of another list is refused."""
    text = "\0".join(names).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=_TAG_BYTES).hexdigest()


def encode_cursor(tag: str, values: Sequence[Any]) -> str:
    """Return a cursor that holds these JSON values."""
    text = json.dumps([_VERSION, tag, *values], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str, tag: str, form: str) -> list[Any]:
    """Return the values of a cursor.

    Args:
        cursor: input of a user.
        tag: tag of the list for which the cursor must have been made.
        form: a letter for each value: `t` text, `n` a whole number of at least 0, `s` a score, `i` ids, and
            the capital letter for a value that may be None.

    Raises:
        InvalidOptionError: for anything that `encode_cursor` did not return for this list.
    """
    check_text("cursor", cursor)
    try:
        values = _decode(cursor)
    except (ValueError, RecursionError, binascii.Error):
        values = None
    if not isinstance(values, list) or values[:2] != [_VERSION, tag] or len(values) != len(form) + 2:
        raise InvalidOptionError("cursor", cursor, _REMEDY)
    found = values[2:]
    if not all(_fits(value, letter) for value, letter in zip(found, form, strict=True)):
        raise InvalidOptionError("cursor", cursor, _REMEDY)
    return found


def _decode(cursor: str) -> Any:
    if len(cursor) > _MOST_CHARACTERS:
        raise ValueError(len(cursor))
    data = cursor.encode("ascii")
    return json.loads(base64.b64decode(data + b"=" * (-len(data) % 4), b"-_", validate=True))


def _fits(value: Any, letter: str) -> bool:
    if value is None:
        return letter.isupper()
    kind = letter.lower()
    if kind == "n":
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    if kind == "i":
        return isinstance(value, list) and len(value) <= _MOST_IDS and all(map(_is_text, value))
    return _is_text(value) and (kind == "t" or _is_score(value))


def _is_text(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _is_score(text: str) -> bool:
    # Redis reads fewer spellings than Python does.
    if len(text) > 40 or not text.isascii() or "_" in text or text != text.strip():
        return False
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False
