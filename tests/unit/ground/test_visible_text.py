"""Foreign text as people may see it."""

from __future__ import annotations

import json
import unicodedata

import pytest

from pyasynq._visible_text import escape_json, visible, visible_lines
from tests.foreign_texts import HOSTILE_TEXTS, INNOCENT_TEXTS


@pytest.mark.parametrize("text", INNOCENT_TEXTS)
def test_letters_of_any_script_stay_as_they_are(text: str) -> None:
    """Chinese, accents, emoji with their selectors, and the spaces of other scripts. (D22)"""
    assert text == visible(text) == visible_lines(text) == escape_json(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a␛[31mb"),
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("a\r\nb\tc\x00\x7f", "a␍␊b␉c␀␡"),
        ("\x9b31m", "<U+009B>31m"),
        ("user\u202egnp.exe", "user<U+202E>gnp.exe"),
        ("pay\u200bpal \ufeff", "pay<U+200B>pal <U+FEFF>"),
        ("a\u2028b\u2029c", "a<U+2028>b<U+2029>c"),
        ("\ud800", "<U+D800>"),
        ("tag\U000e0041", "tag<U+E0041>"),
    ],
)
def test_what_cannot_be_seen_becomes_a_symbol(text: str, shown: str) -> None:
    """So that a person sees that it is there, and a terminal does not obey it. (D22)"""
    assert shown == visible(text)


def test_no_control_format_or_separator_character_is_left() -> None:
    """Over all of Unicode, less what is drawn: signs of Arabic, Syriac, Kaithi and hieroglyphs. (D22)"""
    drawn = {
        *range(0x600, 0x606),
        0x6DD,
        0x70F,
        0x890,
        0x891,
        0x8E2,
        0x110BD,
        0x110CD,
        *range(0x13430, 0x13456),
    }
    left = [
        f"U+{code:04X}"
        for code in range(0x110000)
        if unicodedata.category(chr(code)) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        and code not in drawn
        and chr(code) in visible(f"a{chr(code)}b")
    ]
    assert [] == left


def test_lines_keep_their_breaks_and_nothing_else() -> None:
    """Tracebacks are laid out. (D22)"""
    assert "one\n\ttwo␛[2J␍" == visible_lines("one\n\ttwo\x1b[2J\r")


@pytest.mark.parametrize("text", [*HOSTILE_TEXTS, *INNOCENT_TEXTS])
def test_json_means_what_it_meant(text: str) -> None:
    """A reader gets the text back; the line holds no such character. (D22)"""
    line = escape_json(json.dumps({"text": text}, ensure_ascii=False))
    assert visible(line) == line
    assert {"text": text} == json.loads(line)
