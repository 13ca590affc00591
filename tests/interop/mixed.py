"""One database, and each step of a sequence taken by Asynq or by pyasynq; sound after each of them."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from pyasynq._wire.messages import decode_task_message
from tests.interop.drawing import View, steps
from tests.interop.normal import normalize
from tests.interop.places import places
from tests.interop.steps import LEASE
from tests.invariants import violations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.interop.coverage import Coverage
    from tests.interop.database import Database, Entry
    from tests.interop.drawing import Pick
    from tests.interop.places import Place, Task
    from tests.interop.steps import Side, Step

ASYNQ = "Asynq"
PYASYNQ = "pyasynq"


class Permitted(NamedTuple):
    """What Asynq leaves behind against the invariants.

    Attributes:
        number: of the weak point.
        operations: after which of them; those of Asynq, unless `both`.
        violation: regular expression that matches all of the sentence, the queue's name aside.
        reason: what Asynq does.
        both: pyasynq does it too, or goes on with what Asynq has left.
    """

    number: str
    operations: str
    violation: str
    reason: str
    both: bool = False

    def covers(self, name: str, step: Step, sentence: str) -> bool:
        """Return whether this is what a step of a side has left."""
        asked = not self.operations or step.operation in self.operations.split()
        return (
            asked
            and (self.both or name == ASYNQ)
            and re.fullmatch(f".*?: {self.violation}", sentence, re.DOTALL) is not None
        )


PERMITTED = (
    Permitted("W2", "enqueue", "I9 lock .* belongs to .*", "a conflict of ids leaves the lock that it took"),
    Permitted(
        "W9",
        "enqueue",
        "I9 lock .* belongs to .*",
        "a lock that was left behind is that of the next task of this id",
        both=True,
    ),
    Permitted(
        "W3", "recover", "I7 group .* has tasks and is not in groups", "a reclaimed group is not named"
    ),
    Permitted(
        "W4", "forward", "I7 group .* has tasks and is not in groups", "a group that is joined is not named"
    ),
    Permitted(
        "W5", "enqueue", ".* has group b'', its message .*", "a scheduled task is not kept with its group"
    ),
    Permitted(
        "W5",
        "",
        ".* and has an x:group",
        "Asynq leaves the field in place",
        both=True,
    ),
    Permitted(
        "W8",
        "enqueue",
        "I18 has tasks and is not in .*",
        "a queue that was removed is named again by a new client, or by one of ours after a minute",
        both=True,
    ),
    Permitted("W9", "enqueue", ".* has unique_key None, its message .*", "in a group, the lock is not kept"),
    Permitted(
        "W10", "archive_task archive_all", "I4 .* is in no collection", "what is trimmed is not deleted"
    ),
    Permitted("W12", "remove_queue", "I18 has tasks and is not in .*", "tasks in groups are not removed"),
    Permitted(
        "W13", "run_task run_all stop", "I8 .* is pending and pending_since is None", "no time is kept"
    ),
    Permitted(
        "W13", "archive_task archive_all", "I8 .* is archived and pending_since .*", "the time is left"
    ),
    Permitted("H5", "", ".* and has an x:(attempt|crashes)", "our fields are kept, and mean nothing"),
)

_CHANGING = re.compile(r"b'\d{16,}'|is \w+(?= and has an)")
"""What a violation that stays says otherwise after the next step."""

_ENDING = {"finish", "take", "aggregate", "delete_task", "delete_all", "remove_queue", "delete_expired"}
_TRIMMING = {"finish", "take", "cancel", "archive_task", "archive_all", "recover"}


class Mixed:
    """Runs sequences."""

    def __init__(self, sides: Mapping[str, Side], database: Database) -> None:
        self._sides = sides
        self._database = database
        self.seen: Counter[Permitted] = Counter()
        """How often each permitted violation was found."""

    def run(self, pick: Pick, coverage: Coverage) -> None:
        """Run a sequence."""
        for side in self._sides.values():
            side.begin()
        self._database.clear()
        view, known, known_owned, trail = View(), set[str](), set[str](), list[str]()
        owners: dict[str, str] = {}
        for step in steps(pick, view):
            slot = step.arguments.get("slot", "")
            name = owners.get(slot) or pick((ASYNQ, PYASYNQ))
            trail.append(f"{name}: {step}")
            before = view.places
            self._perform(name, step, view)
            entries = self._database.read()
            view.places = places(normalize(entries, entries.keys()))
            if slot in view.held:
                owners[slot] = name
            else:
                owners.pop(slot, None)
            problems = _lost(step, before, view.places)
            owned = _owned_locks(entries)
            if name == PYASYNQ:
                problems += [f"{lock} was left behind" for lock in (known_owned - owned) & entries.keys()]
            known_owned = owned
            now = {_CHANGING.sub("...", one) for one in violations(self._database.client)}
            problems += self._strange(name, step, now - known)
            known = now
            assert not problems, "\n".join([*problems, "after", *trail])
            coverage.step(step, before, view.places)
        coverage.sequences += 1

    def _perform(self, name: str, step: Step, view: View) -> None:
        slot = step.arguments.get("slot", "")
        if step.operation == "wait":
            self._database.age(step.arguments["seconds"])
            self._database.renew(view.held.values(), int(time.time()) + LEASE)
            return
        answer = self._sides[name].do(step)
        assert not (answer.refusal and step.operation in {"take", "finish", "stop", "cancel"}), (
            f"{name} cannot: {answer.refusal}"
        )
        if step.operation == "take" and isinstance(answer.value, tuple):
            view.held[slot] = answer.value[:2]
        elif step.operation in {"finish", "stop", "cancel"}:
            del view.held[slot]

    def _strange(self, name: str, step: Step, new: set[str]) -> list[str]:
        strange = []
        for sentence in sorted(new):
            covering = [one for one in PERMITTED if one.covers(name, step, sentence)]
            if covering:
                self.seen[covering[0]] += 1
            else:
                strange.append(sentence)
        return strange


def _lost(step: Step, before: Mapping[Task, Place], after: Mapping[Task, Place]) -> list[str]:
    """Return the tasks that are gone although the step deletes none of their kind."""
    gone = {task: place.name for task, place in before.items() if task not in after}
    return [
        f"{task} was lost from {place} by {step.operation}"
        for task, place in gone.items()
        if not (step.operation in _ENDING or (place == "archived" and step.operation in _TRIMMING))
    ]


def _owned_locks(entries: Mapping[str, Entry]) -> set[str]:
    """Return the locks that the messages of their owners name."""
    owned = set()
    for key, entry in entries.items():
        if "}:unique:" in key:
            owner = entries.get(f"{key.partition('}:')[0]}}}:t:{entry.value.decode()}")
            message = owner.value.get(b"msg") if owner is not None else None
            if message and decode_task_message(message).unique_key == key:
                owned.add(key)
    return owned
