"""The logging recipes in docs/reporting.md run in a worker, and write what they promise."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from tests.fix_kit import make_app, sound_kit

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).parents[2] / "docs" / "reporting.md").read_text("utf-8")
_SENTRY, BY_DICT, AS_JSON, BY_STRUCTLOG = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Put the root logger and structlog back as they were."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
    structlog.reset_defaults()


def lines_of(recipe: str, capsys: pytest.CaptureFixture[str], log: Any) -> list[str]:
    """Return what a handler and the code outside of it log with a recipe."""
    exec(recipe, {"__name__": "recipe"})
    app = make_app()

    @app.task("email:deliver")
    async def deliver() -> None:
        log().warning("delivering")

    with sound_kit(app) as kit:
        deliver.options(task_id="a").enqueue_sync()
        kit.drain_sync()
    log().warning("outside")
    written = capsys.readouterr()
    return [line for line in (written.err + written.out).splitlines() if "deliver" in line or "outs" in line]


def test_a_dict_config_names_the_task(capsys: pytest.CaptureFixture[str]) -> None:
    """In the lines of handlers; outside the fields are empty."""
    lines = lines_of(BY_DICT, capsys, lambda: logging.getLogger("mine"))

    assert "WARNING email:deliver a delivering" in lines
    assert "WARNING   outside" == lines[-1]


def test_a_json_line_has_the_fields_of_the_task(capsys: pytest.CaptureFixture[str]) -> None:
    """One object for each record."""
    lines = [json.loads(line) for line in lines_of(AS_JSON, capsys, lambda: logging.getLogger("mine"))]

    [inside] = [line for line in lines if line["message"] == "delivering"]
    assert ("a", "email:deliver", "default") == (inside["task_id"], inside["task_type"], inside["queue"])
    assert ("outside", "") == (lines[-1]["message"], lines[-1]["task_id"])


def test_structlog_gets_the_task_from_the_context(capsys: pytest.CaptureFixture[str]) -> None:
    """Log events outside of handlers stay as they are."""
    lines = [json.loads(line) for line in lines_of(BY_STRUCTLOG, capsys, structlog.get_logger)]

    assert [
        {"task_id": "a", "task_type": "email:deliver", "event": "delivering"},
        {"event": "outside"},
    ] == lines
