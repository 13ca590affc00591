"""The example of a child process in docs/workers.md runs, and does what the page says."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyasynq import Inspector
from tests.fix_engine import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "workers.md"
[EXAMPLE] = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


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
