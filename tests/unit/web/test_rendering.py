"""Cells and times in the HTML of pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from markupsafe import Markup

from pyasynq.web.rendering import Moments, RenderedParts

_HOSTILE = "\"'><script>&"
_ESCAPED = "&#34;&#39;&gt;&lt;script&gt;&amp;"


def test_key_and_text_of_a_cell_are_escaped() -> None:
    """Both may be names from other programs; the record keeps the plain text."""
    parts = RenderedParts()

    cell = parts.cell(_HOSTILE, _HOSTILE)

    assert Markup(f'<span data-k="{_ESCAPED}">{_ESCAPED}</span>') == cell
    assert {_HOSTILE: _HOSTILE} == parts.cells


def test_a_cell_without_a_value_is_dimmed() -> None:
    """A class, not a style, so that a live update can remove it."""
    assert Markup('<span data-k="busy" class="zero">0</span>') == RenderedParts().cell("busy", 0)


def test_the_name_of_a_time_zone_is_escaped() -> None:
    """It is the only part of a time that is not ours."""
    zone = timezone(timedelta(hours=1), _HOSTILE)
    now = datetime(2026, 11, 23, 12, 3, 31, tzinfo=UTC)

    shown = Moments(now, zone).relative(now - timedelta(seconds=34))

    assert shown.startswith('<time datetime="2026-11-23T12:02:57Z" title="23 Nov 2026, 13:02:57 ')
    assert shown.endswith(f'{_ESCAPED}" data-ago>34 s ago</time>')
