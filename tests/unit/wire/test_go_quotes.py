"""Double-quoted texts as Go prints and reads them."""

from __future__ import annotations

import pytest

from pyasynq._wire.go_quote import quote_go, unquote_go


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ('""', ""),
        ('"low"', "low"),
        (r'"a\"b\\c"', 'a"b\\c'),
        (r'"\a\b\f\n\r\t\v"', "\a\b\f\n\r\t\v"),
        (r'"\x00\x1f\x7f"', "\x00\x1f\x7f"),
        (r'"\u0080\u00a0\u00ad\u200b\ufeff"', "\x80\u00a0\u00ad\u200b\ufeff"),
        (r'"\U000e0001\U0010ffff"', "\U000e0001\U0010ffff"),
        ('"é 失敗 😀 \ufffd\'`"', "é 失敗 😀 \ufffd'`"),
    ],
)
def test_a_text_is_quoted_as_in_go_and_read_back(literal: str, text: str) -> None:
    """Printable characters stay, all others are escaped with as few digits as fit."""
    assert literal == quote_go(text)
    assert text == unquote_go(literal)


@pytest.mark.parametrize(
    ("text", "literal"),
    [("é", r'"\xc3\xa9"'), ("é", r'"\303\251"'), ("é", r'"\u00e9"'), ("A", r'"\x41"'), ("\t", '"\t"')],
)
def test_other_spellings_of_a_text_are_read(text: str, literal: str) -> None:
    r"""`\x` and octal escapes are bytes of UTF-8."""
    assert text == unquote_go(literal)


@pytest.mark.parametrize(
    "literal",
    [
        "",
        '"',
        "low",
        "'low'",
        '"low',
        '"a"b"',
        '"a\nb"',
        r'"\q"',
        r'"\x4"',
        r'"\u12"',
        r'"\'"',
        r'"\"',
        '"a" ',
    ],
)
def test_a_text_that_is_not_a_literal_is_refused(literal: str) -> None:
    """The error shows it."""
    with pytest.raises(ValueError, match="is not a text between double quotes as Go writes it"):
        unquote_go(literal)


@pytest.mark.parametrize(
    "literal", [r'"\xff"', r'"\ud800"', r'"\U00110000"', r'"\Uffffffff"', r'"\777"', '"\ud800"']
)
def test_a_literal_that_is_not_text_is_refused(literal: str) -> None:
    """Bytes that are not UTF-8, halves of surrogate pairs and numbers beyond Unicode are not text."""
    with pytest.raises(ValueError, match="holds no valid Unicode text"):
        unquote_go(literal)


def test_a_lone_surrogate_is_not_quoted() -> None:
    """Go has no such text."""
    with pytest.raises(ValueError, match="not valid Unicode"):
        quote_go("a\ud800")
