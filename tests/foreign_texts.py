"""Texts that other programs may put into task types, ids, names and errors."""

from __future__ import annotations

from typing import Final

HOSTILE_TEXTS: Final = (
    "clear\x1b[2J\x1b[1;1H",
    "title\x1b]0;owned\x07",
    "link\x1b]8;;http://evil\x1b\\\\",
    "c1\x9b31mred",
    "forged\r\n2026-01-01T00:00:00.000+00:00 ERROR   all is lost",
    "line\u2028separator\u2029",
    "bidi\u202egnp.exe\u2066",
    "zero\u200bwidth\u200d\u2060\ufeff",
    "bell\x07back\x08nul\x00del\x7f",
)
INNOCENT_TEXTS: Final = (
    "email:deliver",
    "Grüße, é",
    "任务 发送\u3000报告",
    "задача",
    "مهمة",
    "👍\ufe0f",
    "non\u00a0breaking",
)
