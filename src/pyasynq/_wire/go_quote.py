r"""Quoted strings in Go's syntax (`strconv.Quote`): `"a \"b\"\n"`.

Printable characters stay as they are, everything else becomes `\n`, `\x7f`, `\u200b` or `\U000e0001`.
"""

from __future__ import annotations

import re

_SHORT_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    '"': '"',
}
_ESCAPE_OF = {character: "\\" + letter for letter, character in _SHORT_ESCAPES.items()}
_FIRST_BEYOND_ASCII, _FIRST_BEYOND_16_BITS = 0x80, 0x10000

_QUOTED = re.compile(
    rb"""
    "(?:
        [^"\\\n]
      | \\ (?: [abfnrtv\\"] | x[0-9a-fA-F]{2} | u[0-9a-fA-F]{4} | U[0-9a-fA-F]{8} | [0-7]{3} )
    )*"
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(rb'\\(?:([abfnrtv\\"])|x(..)|u(.{4})|U(.{8})|([0-7]{3}))', re.DOTALL)


def quote_go(text: str) -> str:
    """Return a text as a quoted Go string. Raises ValueError for a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        message = f"{text!a} is not valid Unicode (a lone surrogate), so Go cannot hold it"
        raise ValueError(message) from None
    return '"' + "".join(map(_escape, text)) + '"'


def unquote_go(literal: str) -> str:
    r"""Return the text of a quoted Go string.

    `\xNN` and `\NNN` (octal) are bytes, which together must be UTF-8. Raises ValueError naming the literal.
    """
    # Go's escapes mix bytes and characters, so unescaping works on the bytes.
    source = literal.encode(errors="surrogatepass")
    if _QUOTED.fullmatch(source) is None:
        message = f"{literal!a} is not a text between double quotes as Go writes it"
        raise ValueError(message)
    try:
        return _ESCAPE.sub(_unescape, source[1:-1]).decode()
    except (ValueError, OverflowError) as error:
        message = f"{literal!a} holds no valid Unicode text: {error}"
        raise ValueError(message) from error


def _escape(character: str) -> str:
    if character in _ESCAPE_OF:
        return _ESCAPE_OF[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < _FIRST_BEYOND_ASCII:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < _FIRST_BEYOND_16_BITS else f"\\U{code:08x}"


def _unescape(match: re.Match[bytes]) -> bytes:
    letter, byte, short, long, octal = match.groups()
    if letter:
        return _SHORT_ESCAPES[letter.decode()].encode()
    if byte:
        return bytes([int(byte, 16)])
    if octal:
        return bytes([int(octal, 8)])
    return chr(int(short or long, 16)).encode()
