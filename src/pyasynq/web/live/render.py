"""Rendering of a live page: its cells and rows, extracted from the HTML."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyasynq.web.live.channel import Rendering
from pyasynq.web.rendering import RenderedParts, row_signature
from pyasynq.web.respond import page_html

if TYPE_CHECKING:
    from pyasynq.web.page import PageFunction, PageRequest


async def render_now(page: PageFunction, ask: PageRequest, number: int = 0) -> Rendering:
    """Render the current content of a page."""
    began = time.perf_counter()
    ask.now = datetime.now(UTC)
    record = RenderedParts()
    answer = await page(ask)
    page_html(ask, answer, record, began)
    signatures = {
        name: {key: row_signature(html) for key, html in rows.items()} for name, rows in record.rows.items()
    }
    return Rendering(number, answer.title, record.cells, record.rows, signatures)
