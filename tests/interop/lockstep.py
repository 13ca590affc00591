"""The same sequence through Asynq and through pyasynq, on a database each; compared after each step."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from tests.interop.drawing import View, steps
from tests.interop.intended import LOUD, QUIET
from tests.interop.normal import Difference, Time, differences, error_text, fold_days, normalize, same
from tests.interop.places import places
from tests.interop.steps import LEASE
from tests.invariants import violations

if TYPE_CHECKING:
    from tests.interop.coverage import Coverage
    from tests.interop.database import Database, Entry
    from tests.interop.drawing import Pick
    from tests.interop.intended import Intended
    from tests.interop.normal import Snapshot
    from tests.interop.steps import Answer, Side, Step

_TIMES = ("last_failed_at", "next_process_at", "completed_at", "latency")


_OF_DAYS = {"history", "queue_info"}


def utc_day() -> date:
    """Return the day that names the counters now."""
    return datetime.now(UTC).date()


class Lockstep:
    """Runs sequences."""

    def __init__(self, go: Side, go_database: Database, our: Side, our_database: Database) -> None:
        self._go, self._our = go, our
        self._go_database, self._our_database = go_database, our_database
        self.seen: Counter[Intended] = Counter()
        """How often each intended difference was found."""

    def run(self, pick: Pick, coverage: Coverage) -> None:
        """Run a sequence."""
        for side, database in ((self._go, self._go_database), (self._our, self._our_database)):
            side.begin()
            database.clear()
        view = View()
        self._since = time.monotonic()
        trail: list[Step] = []
        for step in steps(pick, view):
            trail.append(step)
            before = view.places
            try:
                self._step(step, view)
            except AssertionError as error:
                sequence = "\n".join(f"  {number}. {one}" for number, one in enumerate(trail, 1))
                number = coverage.sequences + 1
                raise AssertionError(f"{error}\nin sequence {number}, after\n{sequence}") from None
            coverage.step(step, before, view.places)
        removed = any(step.operation == "remove_queue" for step in trail)
        found = violations(self._our_database.client)
        # A client names a queue again a minute after somebody else has removed it.
        assert [] == [one for one in found if not (removed and ": I18 " in one)], "our database is not sound"
        coverage.sequences += 1

    def _step(self, step: Step, view: View) -> None:
        day = utc_day()
        if step.operation == "wait":
            self._wait(step.arguments["seconds"], view)
            theirs = ours = None
        else:
            theirs, ours = self._go.do(step), self._our.do(step)
        go_entries, our_entries = self._go_database.read(), self._our_database.read()
        shared = go_entries.keys() & our_entries.keys()
        go_snapshot, our_snapshot = normalize(go_entries, shared), normalize(our_entries, shared)
        is_new_day = utc_day() != day
        if is_new_day:
            found = differences(fold_days(go_snapshot), fold_days(our_snapshot))
        else:
            found = differences(go_snapshot, our_snapshot)
        # Sides that are asked on different days have different days to tell of.
        if theirs is not None and ours is not None and not (is_new_day and step.operation in _OF_DAYS):
            found += _answers(step, theirs, ours)
        loud = self._judge(step, found)
        if (
            loud
            or is_new_day
            or _task_keys(go_entries) != _task_keys(our_entries)
            or _orders(go_snapshot) != _orders(our_snapshot)
        ):
            self._go_database.copy_from(self._our_database)
            our_snapshot = normalize(our_entries, our_entries.keys())
        self._look(step, ours, view, our_snapshot)

    def _judge(self, step: Step, found: list[Difference]) -> bool:
        """Return whether there is a difference that must be made even; fail for one that is not intended."""
        loud, strange = False, []
        for one in found:
            for intended in (*QUIET, *LOUD):
                if intended.covers(step, one, found):
                    self.seen[intended] += 1
                    loud = loud or intended in LOUD
                    break
            else:
                strange.append(one)
        assert not strange, "\n".join(
            [f"{step} leaves another Redis than Asynq:"]
            + [f"  {one.key} {one.part}: Asynq {one.theirs!r}, here {one.ours!r}" for one in strange]
        )
        return loud

    def _wait(self, seconds: int, view: View) -> None:
        """Let time pass for both, less what has really passed since the last time."""
        passed = int(time.monotonic() - self._since)
        self._since += passed
        for database in (self._go_database, self._our_database):
            database.age(seconds - passed)
            database.renew(view.held.values(), int(time.time()) + LEASE)

    def _look(self, step: Step, ours: Answer | None, view: View, snapshot: Snapshot) -> None:
        view.places = places(snapshot)
        slot = step.arguments.get("slot", "")
        if step.operation == "take" and ours and isinstance(ours.value, tuple):
            view.held[slot] = ours.value[:2]
        elif step.operation in {"finish", "stop", "cancel"}:
            del view.held[slot]


def _task_keys(entries: dict[str, Entry]) -> set[str]:
    """Sides make up different ids, and go on with the same."""
    return {key for key in entries if "}:t:" in key}


def _orders(snapshot: Snapshot) -> dict[str, list[str]]:
    """Rounding up and rounding down may put members of one second in another order."""
    return {
        key: sorted(parts, key=lambda member: (parts[member], member))
        for key, parts in snapshot.items()
        if parts and all(isinstance(score, Time) for score in parts.values())
    }


def _answers(step: Step, theirs: Answer, ours: Answer) -> list[Difference]:
    if theirs.refusal != ours.refusal:
        return [Difference("answer", "refusal", theirs.refusal, ours.refusal)]
    made_up = step.operation == "enqueue" and "task_id" not in step.arguments["options"]
    one, other = _comparable(theirs.value, made_up), _comparable(ours.value, made_up)
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            Difference("answer", name, one.get(name), other.get(name))
            for name in sorted(one.keys() | other.keys())
            if not same(one.get(name), other.get(name))
        ]
    return [] if same(one, other) else [Difference("answer", "value", one, other)]


def _comparable(value: Any, made_up: bool) -> Any:
    if isinstance(value, list):
        return [_comparable(one, made_up) for one in value]
    if isinstance(value, tuple):
        return list(value)
    if not isinstance(value, dict):
        return value
    view = dict(value)
    for name in _TIMES:
        if name in view:
            view[name] = Time(view[name])
    if "last_error" in view:
        view["last_error"] = error_text(view["last_error"])
    if made_up:
        view.pop("id", None)
    return view
