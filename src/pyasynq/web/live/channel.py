"""Live pages: rendered once for all viewers with the same view, and sent as diffs by server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyasynq.errors import PyasynqError, RedisUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

_log = logging.getLogger("pyasynq.web")

_LOAD_SHARE: Final = 20
"""Pause after a rendering, as a multiple of its duration: pages that take 1 s pause for 20 s."""
_LONGEST_INTERVAL: Final = 30.0


@dataclass(frozen=True, slots=True)
class Rendering:
    """Rendered content of a page at one time."""

    number: int
    title: str
    cells: dict[str, str]
    rows: dict[str, dict[str, str]]
    signatures: dict[str, dict[str, str]]
    is_stale: bool = False
    """Whether rendering failed, such as without Redis; title, cells and rows are the previous ones then."""
    problem: str = ""


@dataclass(slots=True)
class Channel:
    """Live page that is rendered periodically while it has viewers."""

    render: Callable[[int], Awaitable[Rendering]]
    """Function that renders the page; its argument is the `number` of the new rendering."""
    interval: float
    """Minimum seconds between two renderings."""
    epoch: str = field(default_factory=lambda: secrets.token_hex(4))
    latest: Rendering | None = None
    _viewers: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether the page has no viewer."""
        return self._viewers == 0

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Keep the page rendered within the `with` block; rendering stops when the last viewer leaves."""
        self._viewers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="pyasynq-live")
        try:
            yield
        finally:
            self._viewers -= 1
            if not self._viewers and self._task is not None:
                task, self._task, self.latest = self._task, None, None
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def after(self, seen: int, seconds: float) -> Rendering | None:
        """Wait for a rendering whose number differs from `seen`; return None at the timeout.

        A slow reader gets only the newest rendering.
        """
        try:
            async with asyncio.timeout(seconds):
                while self.latest is None or self.latest.number == seen:
                    await self._changed.wait()
        except TimeoutError:
            return None
        return self.latest

    async def _run(self) -> None:
        number, took = 0, 0.0
        while True:
            began = time.monotonic()
            number += 1
            self.latest = await self._render(number)
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
            last, took = took, time.monotonic() - began
            await asyncio.sleep(choose_pause(self.interval, last, took, is_stale=self.latest.is_stale))

    async def _render(self, number: int) -> Rendering:
        try:
            return await self.render(number)
        except RedisUnavailableError:
            problem = "Redis does not answer. The numbers below are the last ones known."
        except PyasynqError as error:
            problem = f"This page cannot be updated: {error}"
        except Exception:  # noqa: BLE001 - logged, and shown to viewers
            # Without this the rendering would end, and viewers would see old numbers as if they were current.
            _log.exception("a live page could not be rendered")
            problem = "This page cannot be updated, because of an error of the dashboard. Its log has more."
        before = self.latest
        if before is None:
            return Rendering(number, "", {}, {}, {}, is_stale=True, problem=problem)
        return Rendering(
            number, before.title, before.cells, before.rows, before.signatures, is_stale=True, problem=problem
        )


def choose_pause(interval: float, last: float, took: float, *, is_stale: bool) -> float:
    """Return the pause until the next rendering, in seconds; it is longer if the last two took long.

    Args:
        interval: minimum pause, in seconds.
        last: seconds that the previous rendering took; 0 if there was none.
        took: seconds that this rendering took.
        is_stale: whether this rendering failed.
    """
    # A failed rendering mostly waited for Redis: a short pause lets the page recover soon after Redis.
    # One slow rendering may have connected, or waited for Redis to restart; two have a lasting cause.
    pause = took if is_stale else min(last, took) * _LOAD_SHARE
    return min(max(interval, pause), _LONGEST_INTERVAL)


def changes(before: Rendering | None, after: Rendering) -> list[tuple[str, dict[str, Any]]]:
    """Return the events (name and data) that update a viewer from one rendering to the next."""
    if after.is_stale:
        return [] if before is not None and before.is_stale else [("stale", {"text": after.problem})]
    events: list[tuple[str, dict[str, Any]]] = []
    if before is None or before.is_stale:
        # The viewer may still show a list that became empty while no stream was open.
        events.append(("fresh", {"title": after.title, "tables": sorted(after.rows)}))
    known = before.cells if before is not None else {}
    cells = {key: text for key, text in after.cells.items() if known.get(key) != text}
    rows = [event for name in after.rows if (event := _row_changes(name, before, after)) is not None]
    gone = before.rows.keys() - after.rows.keys() if before is not None else set()
    # A page has no table for a list that is empty.
    rows += [{"table": name, "order": [], "put": {}} for name in sorted(gone)]
    events += [("rows", event) for event in rows]
    if cells:
        events.append(("cells", cells))
    if before is not None and before.title != after.title:
        events.append(("title", {"text": after.title}))
    return events


def _row_changes(name: str, before: Rendering | None, after: Rendering) -> dict[str, Any] | None:
    old = before.signatures.get(name, {}) if before is not None else {}
    new = after.signatures[name]
    order = list(new)
    put = {key: after.rows[name][key] for key in order if old.get(key) != new[key]}
    if before is not None and not put and list(old) == order:
        return None
    return {"table": name, "order": order, "put": put}


def event_text(name: str, data: dict[str, Any], event_id: str) -> str:
    """Return an event in the format of `text/event-stream`."""
    return f"id: {event_id}\nevent: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"


@dataclass(slots=True)
class Channels:
    """Channels of one Redis and event loop: one for each page, query, preferences and permissions."""

    open: dict[Hashable, Channel] = field(default_factory=dict)
    viewers: int = 0

    def find(self, key: Hashable, make: Callable[[], Channel]) -> Channel:
        """Return the channel for a key: the page, its query, the viewer's preferences and permissions.

        A missing channel is made. Channels without viewers are dropped.
        """
        for unused in [one for one, channel in self.open.items() if channel.is_idle]:
            del self.open[unused]
        if key not in self.open:
            self.open[key] = make()
        return self.open[key]
