"""The examples in docs/outcomes.md run, and do what the page says."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyasynq.events import Outcome
from pyasynq.inspector import Inspector
from tests.fix_engine import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "outcomes.md"
HANDLERS, GIVE_UP, HISTORY, PROGRESS = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
JOBS = {1: ("running", ""), 2: ("unknown", ""), 3: ("ready", "text")}
LOOK_BACK = f"async def main(url, task_id):\n{textwrap.indent(HISTORY, '    ')}"


class TooManyRequests(Exception):  # noqa: N818 - the name on the page
    seconds = 600


class Unsubscribed(Exception):  # noqa: N818 - the name on the page
    pass


class Gateway:
    @staticmethod
    def send(number: str, text: str) -> None:
        del text
        raise TooManyRequests("slow down") if number == "1" else Unsubscribed


async def ask_for(job: int) -> tuple[str, str]:
    """Return status and text of a job."""
    return JOBS[job]


@run_async
async def test_the_examples_run(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each job and each number takes another way."""
    monkeypatch.setenv("PYASYNQ_REDIS_URL", redis_url)
    names: dict[str, Any] = {
        "ask_for": ask_for,
        "gateway": Gateway(),
        "TooManyRequests": TooManyRequests,
        "Unsubscribed": Unsubscribed,
        "encode_frame": lambda number: None,
        "__name__": "myapp",
    }
    for source in (HANDLERS, GIVE_UP, PROGRESS, LOOK_BACK):
        exec(source, names)
    app = names["app"]
    async with serving(redis_url, app) as running:
        for job in JOBS:
            await names["fetch"].options(task_id=f"job-{job}").enqueue(job)
        for number in ("1", "2"):
            await names["send"].options(task_id=f"sms-{number}").enqueue(number, "hello")
        await names["encode"].options(task_id="video").enqueue(3)
        ids = ("job-1", "job-2", "job-3", "sms-1", "sms-2", "video")
        outcomes = [(await running.finished(task_id)).outcome for task_id in ids]
        await running.settled()
    await app.close()
    assert [
        Outcome.SNOOZED,
        Outcome.ARCHIVED,
        Outcome.SUCCEEDED,
        Outcome.RETRIED,
        Outcome.REVOKED,
        Outcome.SUCCEEDED,
    ] == outcomes
    for task_id in ("job-1", "job-2", "sms-1"):
        await names["main"](redis_url, task_id)
    printed = capsys.readouterr().out.splitlines()
    assert ["snoozed snoozed for 300 s", "archived there is no job 2"] == printed[:2]
    assert printed[2].startswith("retried TooManyRequests: slow down")
    async with Inspector(redis_url) as inspector:
        progress = (await inspector.task_info("default", "video")).progress
    assert progress is not None
    assert (3, 3, "encoding") == (progress.done, progress.total, progress.note)
