"""Channels of live pages: when they are rendered again, and what viewers get if rendering fails."""

from __future__ import annotations

import asyncio

import pytest

from pyasynq.web.live.channel import Channel, Rendering, changes, choose_pause
from pyasynq.web.page_table import LIVE_PAGES
from pyasynq.web.pages.task import task_page

_LIST_SECONDS = 2.5
_TASK_SECONDS = 1.0


def test_a_change_is_rendered_in_time() -> None:
    """Within 2.5 s, and within 1 s on the page of a task, with time left for the rendering itself."""
    for page in LIVE_PAGES.values():
        most = _TASK_SECONDS if page.function is task_page else _LIST_SECONDS
        assert page.interval <= most * 0.8


@pytest.mark.parametrize(
    ("last", "took", "is_stale", "pause"),
    [
        pytest.param(0.01, 0.01, False, 0.5, id="little work"),
        pytest.param(0.0, 1.0, False, 0.5, id="a first rendering, which also connects"),
        pytest.param(0.2, 0.1, False, 2.0, id="much work: a twentieth of the time"),
        pytest.param(0.01, 8.0, False, 0.5, id="one that waited for Redis"),
        pytest.param(8.0, 8.0, False, 30.0, id="all are slow"),
        pytest.param(0.01, 0.01, True, 0.5, id="Redis refuses connections"),
        pytest.param(10.0, 10.0, True, 10.0, id="Redis does not answer"),
    ],
)
def test_pages_that_are_much_work_are_rendered_less_often(
    last: float, took: float, is_stale: bool, pause: float
) -> None:
    """Waiting for Redis is not work."""
    assert choose_pause(0.5, last, took, is_stale=is_stale) == pytest.approx(pause)


def test_a_list_that_became_empty_loses_its_rows() -> None:
    """Its page has no table for it any more."""
    before = Rendering(1, "emails", {}, {"tasks": {"emails/a": "<tr>"}}, {"tasks": {"emails/a": "<tr>"}})
    after = Rendering(2, "emails", {}, {}, {})
    assert [("rows", {"table": "tasks", "order": [], "put": {}})] == changes(before, after)


@pytest.mark.anyio
async def test_a_page_that_cannot_be_rendered_says_so_and_recovers(caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected error is logged, and does not end the updates."""
    is_broken = asyncio.Event()

    async def render(number: int) -> Rendering:
        if is_broken.is_set():
            raise ZeroDivisionError
        return Rendering(number, "Queues", {"pending": str(number)}, {}, {})

    channel = Channel(render, 0.01)
    async with channel.watched():
        before = await channel.after(-1, 60)
        is_broken.set()
        while (broken := await channel.after(before.number if before else -1, 60)) and not broken.is_stale:
            before = broken
        assert broken is not None
        [(event, data)] = changes(before, broken)
        assert ("stale", True) == (event, "cannot be updated" in data["text"])
        assert "ZeroDivisionError" in caplog.text
        is_broken.clear()
        while (mended := await channel.after(broken.number, 60)) and mended.is_stale:
            broken = mended
        assert mended is not None
        assert ["fresh", "cells"] == [name for name, _ in changes(broken, mended)]
