"""The examples of docs/workers.md run, and do what the page says."""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyasynq import Inspector
from pyasynq.events import QueueChanged
from pyasynq.limits import Queue
from tests.fix_engine import do_nothing, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "workers.md"
EXAMPLE, QUEUES = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@run_async
async def test_queues_come_and_go_as_the_page_says(redis_url: str) -> None:
    """Added, changed, removed, and soon gone."""
    async with serving(redis_url, do_nothing) as running:
        names: dict[str, Any] = {"server": running.server, "Queue": Queue}
        exec(f"async def change():\n{textwrap.indent(QUEUES, '    ')}", names)
        await names["change"]()
        await running.recorder.wait(QueueChanged, lambda event: event.change == "ended")
        changes = [event.change for event in running.recorder.of(QueueChanged)]
        assert ["added", "changed", "removed", "ended"] == changes


@run_async
async def test_the_example_runs_in_a_child(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child finds it by its module, as a worker does."""
    monkeypatch.setenv("PYASYNQ_REDIS_URL", redis_url)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "texts.py").write_text(EXAMPLE, "utf-8")
    text = tmp_path / "text.txt"
    text.write_text("to be or not\nto be\nto\n", "utf-8")
    texts = importlib.import_module("texts")
    try:
        async with serving(redis_url, texts.app), Inspector(redis_url) as inspector:
            handle = await texts.count_words.enqueue(str(text))
            counts = await handle.result(timeout=30)
            info = await inspector.task_info("default", handle.id)
            await texts.app.close()
    finally:
        del sys.modules["texts"]

    assert {"to": 3, "be": 2} == counts
    assert info.progress is not None
    assert (3, 3) == (info.progress.done, info.progress.total)
