"""Draws steps that make sense where the tasks are, so that twenty of them go far."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from hypothesis import strategies as st

from tests.interop.places import Place, Task, in_place
from tests.interop.steps import MAX_SIZE, NOT_FAILURES, QUEUES, SLOTS, WAIT, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")

STEPS = 20
QUARTER = 91 * 86_400
"""Longer than an archived task is kept; a multiple of the other waits."""

GROUPS = ("g", "grüppe:1")
IDS = ("a", "b", "c", "d", "e", "ä:{x}")
TYPES = ("t", "email:größe")
PAYLOADS = (None, b"", b"1", b"\x00\xff\n", "größe".encode())
STATES = ("pending", "active", "scheduled", "retry", "archived", "completed", "aggregating")
RUN = ("scheduled", "retry", "archived", "aggregating")
ARCHIVE = ("pending", "scheduled", "retry", "aggregating")
DELETE = ("pending", "scheduled", "retry", "archived", "completed", "aggregating")

_OFTEN = [None, None, None]


NUMBERS = 18
"""How many choices a step has at most."""


class Pick:
    """Makes choices by numbers that were drawn before anything was known of the state.

    So the same numbers are drawn whatever the state is, and smaller ones choose what comes first.
    """

    def __init__(self, numbers: Sequence[Sequence[int]]) -> None:
        self._steps = iter(numbers)
        self.turn()

    def turn(self) -> None:
        """Go on to the numbers of the next step."""
        self._numbers = iter(next(self._steps, ()))

    def __call__(self, options: Sequence[T], /) -> T:
        """Return one of the options."""
        return options[next(self._numbers, 0) % len(options)]


SEQUENCES: st.SearchStrategy[list[list[int]]] = st.lists(
    st.lists(st.integers(0, 2**16 - 1), min_size=NUMBERS, max_size=NUMBERS),
    min_size=STEPS + 1,
    max_size=STEPS + 1,
)
"""The numbers of a sequence: of its beginning, then of each step."""


@dataclass
class View:
    """Existing names, to choose from."""

    places: dict[Task, Place] = field(default_factory=dict)
    held: dict[str, Task] = field(default_factory=dict)
    """What each busy worker runs."""

    @property
    def free(self) -> list[str]:
        """Workers that may take a task."""
        return [slot for slot in SLOTS if slot not in self.held]

    def tasks(self, *names: str) -> list[Task]:
        """Return the tasks in places of these names."""
        return in_place(self.places, lambda place: place.name in names)


def steps(pick: Pick, view: View) -> Iterator[Step]:
    """Choose a beginning, then steps until there are enough. The view is to be kept up to date meanwhile."""
    beginning = pick(BEGINNINGS)
    pick.turn()
    for count, step in enumerate(chain(beginning(pick, view), _any_steps(pick, view)), 1):
        yield step
        if count == STEPS:
            return
        pick.turn()


def _any_steps(pick: Pick, view: View) -> Iterator[Step]:
    while True:
        start = pick(range(len(_WEIGHTED)))
        for make in _WEIGHTED[start:] + _WEIGHTED[:start]:
            if (step := make(pick, view)) is not None:
                yield step
                break


def enqueue(pick: Pick, **given: Any) -> Step:
    """Return an enqueue with drawn options; those that are given win."""
    drawn = {
        "task_id": pick([*IDS, None]),
        "queue": pick([*_OFTEN, *QUEUES]),
        "max_retry": pick([None, 0, 1, 1, 25]),
        "timeout": pick([*_OFTEN, 90, 1_800.5]),
        "deadline": pick([*_OFTEN, *_OFTEN, 100_000, -100]),
        "unique": pick([*_OFTEN, 10, 60.5]),
        "process_in": pick([*_OFTEN, None, 0, 25, 75]),
        "process_at": pick([*_OFTEN, *_OFTEN, -25, 25]),
        "retention": pick([None, None, 25, 75.5]),
        "group": pick([*_OFTEN, *GROUPS]),
        "headers": pick([*_OFTEN, {"k": "größe", "": ""}]),
    } | given
    if drawn["process_at"] is not None:
        drawn["process_in"] = None
    now = int(time.time())
    for name in ("deadline", "process_at"):
        if drawn[name] is not None:
            drawn[name] += now
    return Step(
        "enqueue",
        {
            "task_type": pick(TYPES),
            "payload": pick(PAYLOADS),
            "options": {name: value for name, value in drawn.items() if value is not None},
        },
    )


def plain(pick: Pick, task_id: str, **given: Any) -> Step:
    """Return an enqueue of a task that will run and is in the first queue."""
    nothing = dict.fromkeys(("queue", "deadline", "unique", "process_in", "process_at", "group"))
    return enqueue(pick, **{**nothing, "task_id": task_id, **given})


def wait(seconds: int = WAIT) -> Step:
    """Return a step in which time passes."""
    return Step("wait", {"seconds": seconds})


def finish(pick: Pick, slot: str, kind: str | None = None) -> Step:
    """Return the end of an attempt."""
    kind = kind or pick(["succeed", "fail", "busy", "skip", "revoke", "panic", "vanish"])
    text = pick(["why", "größe\n2", ""])
    if kind == "busy":
        kind, text = "fail", f"{NOT_FAILURES} {text}"
    result = pick([None, b"", b"\x00result"])
    if kind == "vanish":
        result = None
    return Step("finish", {"slot": slot, "kind": kind, "text": text, "result": result})


def _one(operation: str, **arguments: Any) -> Step:
    return Step(operation, arguments)


def _queue(pick: Pick) -> str:
    return pick([QUEUES[0], QUEUES[0], QUEUES[1]])


# Beginnings: the shortest ways to what is seldom reached by chance.


def _nothing(pick: Pick, view: View) -> Iterator[Step]:
    yield from ()


def _several(pick: Pick, view: View) -> Iterator[Step]:
    for task_id in IDS[: pick(range(2, 6))]:
        yield enqueue(pick, task_id=task_id)


def _failed_one_of_a_group(pick: Pick, view: View) -> Iterator[Step]:
    yield plain(pick, "a", group=GROUPS[0], max_retry=25)
    yield _one("run_task", queue=QUEUES[0], task_id="a")
    yield _one("take", slot=SLOTS[0])
    yield finish(pick, SLOTS[0], "fail")
    yield wait()
    yield _one("forward")


def _group_and_time(pick: Pick, view: View) -> Iterator[Step]:
    yield plain(pick, "a", group=pick(GROUPS), process_in=25)
    yield wait()
    yield _one("forward")


def _group(pick: Pick, view: View) -> Iterator[Step]:
    unique = pick([None, 60])
    for task_id in IDS[: pick(range(1, 5))]:
        yield plain(pick, task_id, group=pick(GROUPS), unique=unique)
    yield wait()
    yield _one("aggregate", refuse=False)


def _full_group(pick: Pick, view: View) -> Iterator[Step]:
    for task_id in IDS[: pick((MAX_SIZE, MAX_SIZE - 1, MAX_SIZE + 1))]:
        yield plain(pick, task_id, group=GROUPS[0])
    yield _one("aggregate", refuse=False)


def _broken_aggregation(pick: Pick, view: View) -> Iterator[Step]:
    for task_id in IDS[: pick(range(1, 5))]:
        yield plain(pick, task_id, group=GROUPS[0])
    yield wait()
    yield _one("aggregate", refuse=True)
    yield wait(3 * WAIT)
    yield _one("recover")


def _old_archive(pick: Pick, view: View) -> Iterator[Step]:
    yield plain(pick, "a")
    yield _one("archive_task", queue=QUEUES[0], task_id="a")
    yield plain(pick, "b")
    yield wait(QUARTER)
    if pick((False, True)):
        yield _one("archive_task", queue=QUEUES[0], task_id="b")
    else:
        yield _one("take", slot=SLOTS[0])
        yield finish(pick, SLOTS[0], "skip")


def _crash(pick: Pick, view: View) -> Iterator[Step]:
    yield plain(pick, "a")
    for _ in range(pick(range(1, 4))):
        yield _one("take", slot=SLOTS[0])
        if SLOTS[0] in view.held:
            yield finish(pick, SLOTS[0], "vanish")
        yield wait(2 * WAIT)
        yield _one("recover")


def _kept(pick: Pick, view: View) -> Iterator[Step]:
    yield plain(pick, "a", retention=25)
    yield _one("take", slot=SLOTS[0])
    yield finish(pick, SLOTS[0], "succeed")
    yield wait()
    yield _one("delete_expired")


def _locked(pick: Pick, view: View) -> Iterator[Step]:
    lock = {"unique": pick([10, 60])}
    first, second = plain(pick, "a", **lock), plain(pick, "b", **lock)
    yield first
    same = {name: first.arguments[name] for name in ("task_type", "payload")}
    yield Step("enqueue", {**second.arguments, **same})
    yield _one("take", slot=SLOTS[0])
    yield finish(pick, SLOTS[0])


def _delayed(pick: Pick, view: View) -> Iterator[Step]:
    yield plain(pick, "a", process_in=pick((25, 75)))
    yield wait(2 * WAIT)
    yield _one("forward")


BEGINNINGS = (
    _nothing,
    *[_several] * 3,
    *[_group] * 2,
    _group_and_time,
    *[_full_group] * 2,
    *[_failed_one_of_a_group] * 3,
    *[_broken_aggregation] * 3,
    *[_old_archive] * 3,
    *[_crash] * 3,
    *[_kept] * 2,
    *[_locked] * 3,
    *[_delayed] * 2,
)


# Single steps; None where nothing of the kind makes sense.


def _enqueue(pick: Pick, view: View) -> Step:
    return enqueue(pick)


def _refused(pick: Pick, view: View) -> Step:
    name, value = pick(
        ([("queue", " "), ("task_id", ""), ("unique", 0.5), ("group", "\t")]),
    )
    return enqueue(pick, **{name: value})


def _take(pick: Pick, view: View) -> Step | None:
    if not view.free or (not view.tasks("pending") and pick(range(6))):
        return None
    return _one("take", slot=pick(view.free))


def _finish(pick: Pick, view: View) -> Step | None:
    return finish(pick, pick(sorted(view.held))) if view.held else None


def _stop(pick: Pick, view: View) -> Step | None:
    return _one("stop", slot=pick(sorted(view.held))) if view.held else None


def _cancel(pick: Pick, view: View) -> Step | None:
    # Asynq calls for a bare id, and every worker that runs one of this name obeys.
    ids = [task_id for _, task_id in view.held.values()]
    slots = [slot for slot, (_, task_id) in sorted(view.held.items()) if ids.count(task_id) == 1]
    if not slots:
        return None
    slot = pick(slots)
    queue, task_id = view.held[slot]
    return _one("cancel", slot=slot, queue=queue, task_id=task_id)


def _wait(pick: Pick, view: View) -> Step:
    return wait(WAIT * pick(range(1, 4)))


def _aggregate(pick: Pick, view: View) -> Step | None:
    return _one("aggregate", refuse=pick((False, True))) if view.tasks("group") else None


def _of_task(operation: str, *, seldom: tuple[str, ...] = ()) -> Callable[[Pick, View], Step | None]:
    def make(pick: Pick, view: View) -> Step | None:
        tasks = [task for task in view.tasks("none", *STATES, "group", "set") if task[1]]
        likely = [task for task in tasks if view.places[task].name not in seldom]
        choices = likely * 3 + tasks + [(QUEUES[0], "unknown"), ("no queue", "a")]
        queue, task_id = pick(choices)
        arguments: dict[str, Any] = {"queue": queue, "task_id": task_id}
        if operation == "update_payload":
            arguments["payload"] = pick([b"", b"other", b"\xff"])
        certain = pick((False, True))
        return Step(operation, arguments) if likely or certain else None

    return make


def _of_all(operation: str, states: tuple[str, ...]) -> Callable[[Pick, View], Step]:
    def make(pick: Pick, view: View) -> Step:
        there = {"aggregating" if place.name == "group" else place.name for place in view.places.values()}
        state = pick([one for one in states if one in there] * 3 + list(states))
        group = pick(GROUPS) if state == "aggregating" else ""
        return _one(operation, queue=_queue(pick), state=state, group=group)

    return make


def _list(pick: Pick, view: View) -> Step:
    step = _of_all("list_tasks", STATES)(pick, view)
    return Step("list_tasks", {**step.arguments, "page": pick(range(1, 3))})


def _remove(pick: Pick, view: View) -> Step:
    return _one("remove_queue", queue=_queue(pick), force=pick([True, True, False]))


def _of_queue(operation: str) -> Callable[[Pick, View], Step]:
    def make(pick: Pick, view: View) -> Step:
        return _one(operation, queue=_queue(pick))

    return make


def _bare(operation: str) -> Callable[[Pick, View], Step]:
    def make(pick: Pick, view: View) -> Step:
        return _one(operation)

    return make


_SINGLE: dict[Callable[[Pick, View], Step | None], int] = {
    _of_queue("queue_info"): 3,
    _enqueue: 18,
    _refused: 2,
    _take: 26,
    _finish: 24,
    _stop: 9,
    _cancel: 9,
    _wait: 8,
    _bare("forward"): 6,
    _bare("recover"): 2,
    _bare("delete_expired"): 5,
    _aggregate: 4,
    _of_task("run_task", seldom=("active", "pending")): 5,
    _of_task("archive_task", seldom=("active", "archived")): 4,
    _of_task("delete_task", seldom=("active",)): 3,
    _of_task("update_payload", seldom=("active", "pending", "archived", "completed", "group", "set")): 4,
    _of_task("task_info"): 3,
    _list: 3,
    _of_all("run_all", RUN): 2,
    _of_all("archive_all", ARCHIVE): 2,
    _of_all("delete_all", DELETE): 2,
    _of_queue("pause_queue"): 3,
    _of_queue("unpause_queue"): 3,
    _remove: 3,
    _bare("new_client"): 2,
    _of_queue("history"): 2,
    _of_queue("groups"): 4,
    _bare("queues"): 3,
}
_WEIGHTED = [make for make, weight in _SINGLE.items() for _ in range(weight)]
# A step that makes no sense is replaced by the next one in the list.
random.Random(1).shuffle(_WEIGHTED)
