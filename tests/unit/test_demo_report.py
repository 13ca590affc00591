"""The demo's summary, report and picture, made from what Redis is said to hold."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pyasynq.cli.demo import report as pages
from pyasynq.cli.demo.analysis import SourceFacts
from pyasynq.cli.demo.picture import lease_line, picture, plain_line
from pyasynq.cli.demo.progress import DemoState, LeaseView, RateMeter, WorkerView
from pyasynq.cli.demo.sources import Sources
from pyasynq.cli.demo.summary import Remains, Summary, WorkerKill, summarize
from pyasynq.cli.demo.text import cut_line, shorten, table
from pyasynq.cli.output.progress import bar, percent
from pyasynq.info import QueueInfo
from pyasynq.task import TaskInfo, TaskState

if TYPE_CHECKING:
    import pytest

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ROOT = Path("/lib")
PLANTED = tuple(Path(f"/tmp/planted/{name}.py") for name in ("one", "two", "three"))
DEAD, ALIVE = 41, 42

QUEUE = QueueInfo(
    queue="sources",
    pending=0,
    active=0,
    scheduled=0,
    retry=0,
    archived=3,
    completed=2,
    aggregating=0,
    groups=0,
    processed=14,
    failed=12,
    processed_total=14,
    failed_total=12,
    latency=timedelta(0),
    paused=False,
    timestamp=NOW,
)


def _task(
    path: Path, state: TaskState, *, worker_pid: int | None = None, retried: int = 0, error: str = ""
) -> TaskInfo:
    facts = asdict(SourceFacts(9, 2, 1, "f", 4, ("os", "re")))
    result = None
    if worker_pid is not None:
        result = json.dumps({"worker_pid": worker_pid, "facts": facts}).encode()
    return TaskInfo(
        id=path.stem,
        queue="sources",
        type="source:measure",
        payload=json.dumps({"path": str(path)}).encode(),
        state=state,
        max_retry=3,
        retried=retried,
        timeout=None,
        deadline=None,
        next_process_at=None,
        retention=timedelta(hours=1),
        last_error=error,
        result=result,
    )


COMPLETED = [
    _task(ROOT / "a.py", TaskState.COMPLETED, worker_pid=DEAD),
    _task(ROOT / "pkg/b.py", TaskState.COMPLETED, worker_pid=ALIVE),
]
ARCHIVED = [_task(path, TaskState.ARCHIVED, retried=3, error="TokenError: no end") for path in PLANTED]
ENQUEUED = ("a", "b", "one", "two", "three")
KILL = WorkerKill("worker 1", DEAD, 0.12, frozenset({"b", "two"}), 31.2, 34.9)


def _summary(
    *, kill: WorkerKill | None = KILL, enqueued: tuple[str, ...] = ENQUEUED, queue: QueueInfo = QUEUE
) -> Summary:
    remains = Remains(queue, COMPLETED, ARCHIVED)
    return summarize(remains, Sources(ROOT, (), PLANTED), enqueued=enqueued, kill=kill, seconds=51.0)


def test_a_whole_demo_has_no_violations() -> None:
    """Enqueued = completed + archived, all else 0, and each attempt was counted once."""
    assert [] == _summary().violations()


def test_a_lost_task_is_a_violation() -> None:
    """An acknowledged id that is in no final state is named as lost."""
    assert ["1 tasks are lost"] == _summary(enqueued=(*ENQUEUED, "gone")).violations()


def test_an_unfinished_task_is_a_violation() -> None:
    """Anything that is still to be run breaks the proof."""
    assert ["1 tasks are unfinished"] == _summary(queue=replace(QUEUE, retry=1)).violations()


def test_an_outcome_written_twice_is_a_violation() -> None:
    """Redis' own counter of attempts must be what the final states explain."""
    assert ["15 attempts were counted instead of 14"] == _summary(
        queue=replace(QUEUE, processed_total=15)
    ).violations()


def test_only_tasks_that_the_dead_worker_held_and_another_finished_ran_twice() -> None:
    """A completed task names the process that finished it; an archived one was finished by a survivor."""
    assert {"b", "two"} == _summary().run_again
    survivor_held = replace(KILL, held=frozenset({"a"}))
    assert frozenset() == _summary(kill=survivor_held).run_again


def test_the_report_fits_eighty_columns_and_has_all_sections() -> None:
    """Each line is printed with two blanks before it."""
    sections = dict(pages.report(_summary()))
    assert 6 == len(sections)
    lines = [line for section in sections.values() for line in section]
    assert [] == [line for line in lines if len(line) > 78]


def test_the_report_names_the_kill_and_when_the_tasks_came_back() -> None:
    """Which worker, how many ran twice, and the seconds."""
    text = "\n".join(pages.proof(_summary()))
    assert "2 run twice: what worker 1 held at its death" in text
    assert "pending again 31 to 35 s later" in text
    assert "nothing was lost" in text


def test_a_broken_proof_is_said_in_capitals() -> None:
    """A reader must not take a failed demo for a good one."""
    text = "\n".join(pages.proof(_summary(enqueued=(*ENQUEUED, "gone"))))
    assert "VIOLATED: 1 tasks are lost" in text
    assert "nothing was lost" not in text


def test_what_to_type_next_works_where_the_environment_is_not_activated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Commands that PATH does not find are shown with their folder, as seen from the current one."""
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name in ("python", "pyasynq"):
        (folder / name).touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", str(folder / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert "    .venv/bin/pyasynq worker hello:app" in pages.next_steps()
    monkeypatch.setenv("PATH", str(folder))
    assert "    pyasynq worker hello:app" in pages.next_steps()
    assert '    print(f"Hello, {name}!")' in "\n".join(pages.next_steps())


def test_planted_failures_are_named_as_planted() -> None:
    """Three broken files come from the demo, others would be the user's own."""
    lines = pages.failures(_summary().failures)
    assert ["planted/one.py: planted, 4 attempts", "  TokenError: no end"] == lines[:2]
    assert 6 == len(lines)


def test_most_imported_modules_are_counted_by_files() -> None:
    """Two files import `os`."""
    assert ["os", "2"] == pages.most_imported(_summary().modules)[1].split()


def test_the_summary_can_be_written_as_json() -> None:
    """`--json` prints it."""
    written = json.loads(json.dumps(_summary().to_json()))
    assert (5, 2, 3, 0, 2) == tuple(
        written[key] for key in ("enqueued", "completed", "archived", "lost", "run_again")
    )
    assert 34.9 == written["kill"]["last_back_seconds"]


SNAPSHOT = DemoState(
    elapsed=4.0,
    total=1_796,
    queue=replace(QUEUE, pending=1_200, active=16, retry=3, completed=577),
    rate=412.3,
    workers=(WorkerView("worker 1", DEAD, 8, killed_for=3.0), WorkerView("worker 2", ALIVE, 8)),
    leases=tuple(LeaseView(f"test/a_rather_long_name_of_a_module_{n}.py", 27.5 - n) for n in range(10)),
)


def test_the_live_picture_fits_eighty_columns() -> None:
    """Progress, states, the living worker, the dead one with eight leases and how many more there are."""
    lines = list(picture(SNAPSHOT))
    assert 80 >= max(len(text) for _, text in lines)
    assert ["progress", "states", "worker", "dead", *["lease"] * 9] == [part for part, _ in lines]


def test_a_plain_line_fits_eighty_columns() -> None:
    """With leases it says how long they last, without them how fast the work goes."""
    assert 80 >= len(plain_line(SNAPSHOT))
    assert plain_line(SNAPSHOT).endswith("leases 10, 28 s left")
    assert plain_line(replace(SNAPSHOT, leases=())).endswith("412 tasks/s")


def test_a_hundred_percent_are_said_only_at_the_end() -> None:
    """One task of a thousand is not rounded away."""
    assert ("99%", "100%") == (percent(0.999), percent(1.0))


def test_a_lease_that_is_over_says_so() -> None:
    """Between the end of a lease and the recovery lie some seconds."""
    assert "over, to be recovered" in lease_line(LeaseView("a.py", -1.0))


def test_the_rate_is_measured_over_the_last_seconds() -> None:
    """What lies before the window does not count."""
    meter = RateMeter(window_seconds=2.0)
    assert 0.0 == meter.rate(0.0, 0)
    assert 10.0 == meter.rate(1.0, 10)
    assert 45.0 == meter.rate(3.0, 100)


def test_tables_shorten_their_widest_column_and_align_numbers() -> None:
    """Names keep their ends, which tell them apart."""
    lines = table(("name", "lines"), [("a" * 30 + "/module.py", 1_234), ("b.py", 5)], width=24)
    assert ["name", "lines"] == lines[0].split()
    assert {24} == {len(line) for line in lines}
    assert lines[1].endswith("module.py  1,234")


def test_texts_and_bars_are_cut_to_size() -> None:
    """One line, whatever came in."""
    assert "ab c" == shorten("ab\n  c", 10)
    assert 7 == len(shorten("a much longer text", 7))
    assert "a much…" == cut_line("a much longer text", 7)
    assert "██░░" == bar(0.5, 4)
    assert "████" == bar(7.0, 4)
