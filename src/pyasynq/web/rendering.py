"""HTML pages from Jinja templates, and a record of the cells and rows that live updates may replace."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import jinja2
from markupsafe import Markup, escape

from pyasynq._human_text import counted
from pyasynq._visible_text import visible, visible_lines
from pyasynq.web import charts, formats

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, tzinfo

_TIME_TEXT: Final = re.compile(r"(<time\b[^>]*>)[^<]*(</time>)")
_QUIET: Final = frozenset({"0", "0 %", formats.NOT_KNOWN})
"""Strings that are shown dimmed, because they mean zero or unknown."""
_CELL_TEXT: Final = re.compile(r'(<span data-k="[^"]*")[^>]*>[^<]*(</span>)')


@cache
def jinja_environment() -> jinja2.Environment:
    """Return the Jinja environment of all templates: it escapes values, and raises for unknown names."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pyasynq.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        extensions=["jinja2.ext.do"],
    )
    environment.filters |= {
        "number": formats.number,
        "measure": formats.significant,
        "share": formats.share,
        "filesize": formats.size,
        "span": formats.span,
        "visible": visible,
        "visible_lines": visible_lines,
        "counted": counted,
    }
    environment.globals |= {
        "spark_points": charts.spark_points,
        "spark_bars": charts.spark_bars,
        "gauge_width": charts.gauge_width,
        "stacked_bars": charts.stacked_bars,
        "log_lines": charts.log_lines,
    }
    environment.globals["ui"] = environment.get_template("ui.html").module
    return environment


@dataclass(slots=True)
class RenderedParts:
    """Record of one rendering of a page: cells by key, and rows by table and key."""

    cells: dict[str, str] = field(default_factory=dict)
    rows: dict[str, dict[str, str]] = field(default_factory=dict)

    def cell(self, key: str, text: object) -> Markup:
        """Record a text under a key; return it as an element that live updates may replace."""
        shown = str(text)
        self.cells[key] = shown
        quiet = ' class="zero"' if shown in _QUIET else ""
        # Pages have hundreds of cells and times. `Markup.format` takes ten times as long as an f-string.
        html = f'<span data-k="{escape(key)}"{quiet}>{escape(shown)}</span>'
        return Markup(html)  # noqa: S704 - escaped above

    def table(self, name: str) -> Markup:
        """Return the HTML attribute that marks a table body whose rows live updates may replace."""
        self.rows.setdefault(name, {})
        return Markup('data-table="{}"').format(name)

    def row(self, table: str, key: str, caller: Callable[[], Markup]) -> Markup:
        """Record a table row under its key; return its HTML as the template writes it (`caller`)."""
        html = Markup(caller().strip())  # noqa: S704 - rendered by a template, which escaped it
        self.rows.setdefault(table, {})[key] = html
        return html


def row_signature(html: str) -> str:
    """Return a row's HTML without the parts that are updated in place: ages, and texts of cells."""
    return _CELL_TEXT.sub(r"\1\2", _TIME_TEXT.sub(r"\1\2", html))


class Moments:
    """Formatter of times as HTML elements: relative text, exact time in `title`, `datetime` for machines.

    The argument `none` is the text for a time that is None.
    """

    def __init__(self, now: datetime, zone: tzinfo) -> None:
        self.now = now
        self.zone = zone

    def relative(self, moment: datetime | None, none: str = formats.NOT_KNOWN) -> Markup:
        """Format a time as an HTML element with `34 s ago`, which live pages keep current."""
        return self._element(moment, none, formats.relative(moment, self.now), " data-ago")

    def clock(self, moment: datetime | None, none: str = formats.NOT_KNOWN) -> Markup:
        """Format a time as an HTML element with `12:03:31`."""
        return self._element(moment, none, formats.clock(moment, self.zone) if moment else "", "")

    def day_clock(self, moment: datetime) -> Markup:
        """Format a time as an HTML element with `12:03`, and with the date if it is not today."""
        return self._element(moment, "", self.until(moment), "")

    def exact(self, moment: datetime | None, none: str = formats.NOT_KNOWN) -> Markup:
        """Format a time as an HTML element with `23 Nov 2026, 12:03:31 UTC`."""
        return self._element(moment, none, formats.exact(moment, self.zone) if moment else "", "")

    def until(self, moment: datetime | None) -> str:
        """Format a time as the time of day, with the date unless it is today."""
        if moment is None:
            return ""
        local = moment.astimezone(self.zone)
        is_today = local.date() == self.now.astimezone(self.zone).date()
        return f"{local:%H:%M}" if is_today else f"{local:%d %b %H:%M}".lstrip("0")

    def age(self, moment: datetime | None) -> str:
        """Format the age of a time as text, without the word "ago": `34 s`."""
        return (
            formats.NOT_KNOWN
            if moment is None
            else formats.span(round((self.now - moment).total_seconds(), 1))
        )

    def _element(self, moment: datetime | None, none: str, text: str, mark: str) -> Markup:
        if moment is None:
            return escape(none)
        exact = escape(formats.exact(moment, self.zone))
        html = f'<time datetime="{formats.machine(moment)}" title="{exact}"{mark}>{escape(text)}</time>'
        return Markup(html)  # noqa: S704 - escaped above; the mark is one of our own two words


def render_template(template: str, record: RenderedParts, values: dict[str, Any]) -> str:
    """Return the page as HTML; add its cells and rows to the record."""
    return (
        jinja_environment()
        .get_template(template)
        .render(values, cell=record.cell, row=record.row, table=record.table)
    )
