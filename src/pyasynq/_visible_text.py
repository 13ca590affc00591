"""Foreign text, safe to display: characters that move the cursor or hide become visible symbols.

Task types, ids, queue and group names, host names and error texts come from other programs. Shown raw, a line
break in one forges a log line, an escape sequence rewrites the terminal, and a bidirectional control reorders
the text (https://trojansource.codes).
"""

from __future__ import annotations

import re
from typing import Final

_CONTROLS: Final = "\x00-\x1f\x7f-\x9f"
# Unicode's Default_Ignorable_Code_Point, the line separators, and surrogates, which no stream can write. The
# variation selectors stay: they only select the glyph of the character before them.
_INVISIBLE: Final = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_HIDDEN: Final = re.compile(f"[{_CONTROLS}{_INVISIBLE}]")
_HIDDEN_IN_LINES: Final = re.compile(f"(?![\t\n])[{_CONTROLS}{_INVISIBLE}]")
_FIRST_PICTURE: Final = 0x2400
_DELETE: Final = 0x7F
_PICTURE_OF_DELETE: Final = 0x2421
_CONTROL_CODES: Final = 0x20


def visible(text: object) -> str:
    """Return one line that shows every character: `␛` for an escape, `␊` for a line break, `<U+202E>`.

    Letters of any script, and the spaces between them, stay as they are.
    """
    shown = text if type(text) is str else str(text)
    if shown.isascii() and shown.isprintable():
        return shown
    return _HIDDEN.sub(_symbol, shown)


def visible_lines(text: str) -> str:
    """Make text of several lines visible, such as a traceback; only its line breaks and tabs are kept."""
    return _HIDDEN_IN_LINES.sub(_symbol, text)


def escape_json(text: str) -> str:
    """Escape the characters that `visible` replaces, except line breaks and tabs; the JSON means the same."""
    return text if text.isascii() and text.isprintable() else _HIDDEN_IN_LINES.sub(_json_escape, text)


def _symbol(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < _CONTROL_CODES:
        return chr(_FIRST_PICTURE + code)
    if code == _DELETE:
        return chr(_PICTURE_OF_DELETE)
    return f"<U+{code:04X}>"


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
