"""The state machine of one queue: a table of every event in every state."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import pytest

from pyasynq._broker.dequeue import Dequeued, DequeuedTask, DequeueRules, LimitedBy
from pyasynq._clock import Instant
from pyasynq._engine.take.queue_state import Key, QueuePhase, QueueState, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

NOW: Final = 100.0
POLL: Final = NOW + 5
"""Time at which a held queue is asked again at the latest."""
LAST_OF_MANY: Final = 500
"""A number of servers of which this one draws the last place."""


def state(
    phase: QueuePhase, watch: Watch, seconds: float, rules: DequeueRules = DequeueRules.PLAIN
) -> QueueState:
    """Return a state that rests for this many seconds, of a queue that has seen one report."""
    look_at = 0.0 if phase is QueuePhase.UNKNOWN else NOW + seconds
    return QueueState(phase, look_at, watch, 1, rules, rules, not_before=NOW + 0.01)


STATES: Final = {
    "unknown": state(QueuePhase.UNKNOWN, Watch.NOTHING, 0),
    "checked": state(QueuePhase.UNKNOWN, Watch.TASKS, 0),
    "probed": state(QueuePhase.UNKNOWN, Watch.HOLDERS, 0, DequeueRules.LIMITED),
    "empty": state(QueuePhase.EMPTY, Watch.NOTHING, math.inf),
    "watched": state(QueuePhase.EMPTY, Watch.TASKS, math.inf),
    "deferred": state(QueuePhase.DEFERRED, Watch.NOTHING, 0.2),
    "rate": state(QueuePhase.RATE, Watch.NOTHING, 2, DequeueRules.LIMITED)._replace(not_before=NOW + 2),
    "slots": state(QueuePhase.CONCURRENCY, Watch.NOTHING, 0.01, DequeueRules.LIMITED),
    "slots w": state(QueuePhase.CONCURRENCY, Watch.HOLDERS, 5, DequeueRules.LIMITED),
    "order": state(QueuePhase.ORDER, Watch.NOTHING, 0.01, DequeueRules.ORDERED),
    "order w": state(QueuePhase.ORDER, Watch.HOLDERS, 5, DequeueRules.ORDERED),
    "head": state(QueuePhase.HEAD, Watch.HOLDERS, 5, DequeueRules.ORDERED),
    "failed": state(QueuePhase.FAILED, Watch.NOTHING, 3),
}

MORE: Final = Dequeued([DequeuedTask("a", b"", 0, 30)], 0, False, False, 30, Instant(10))
NONE: Final = Dequeued([], 0, True, False, 30, Instant(10))


def answer(reply: Dequeued, *, late: bool = False) -> Callable[[QueueState], QueueState]:
    """Return the event of an answer; a late one is older than the last report."""
    return lambda state: state.answered(reply, changes=0 if late else 1, now=NOW, look_at=POLL, draw=1.0)


def held(by: LimitedBy, *, late: bool = False, wait: float = 2.0) -> Callable[[QueueState], QueueState]:
    """Return the event of an answer without tasks, of a queue that is held."""
    return answer(NONE._replace(empty=False, limited_by=by, wait=wait), late=late)


def report(key: Key, servers: int = 1) -> Callable[[QueueState], QueueState]:
    """Return the event of a changed key; this server has the last place among all servers."""
    return lambda state: state.key_changed(key, now=NOW, servers=servers, draw=1.0)


EVENTS: Final[dict[str, Callable[[QueueState], QueueState]]] = {
    "more": answer(MORE),
    "empty": answer(NONE),
    "rate": held(LimitedBy.RATE),
    "slots": held(LimitedBy.CONCURRENCY),
    "slots late": held(LimitedBy.CONCURRENCY, late=True),
    "order": held(LimitedBy.ORDER),
    "order late": held(LimitedBy.ORDER, late=True),
    "head": answer(MORE._replace(limited_by=LimitedBy.ORDER)),
    "head late": answer(MORE._replace(limited_by=LimitedBy.ORDER), late=True),
    "pending": report(Key.PENDING),
    "paused": report(Key.PAUSED),
    "lease": report(Key.LEASE),
    "active": report(Key.ACTIVE),
    "to many": report(Key.PENDING, LAST_OF_MANY),
    "watch": lambda state: state.watched(changes=1),
    "watch none": lambda state: state.watched(changes=1, may_rest=True),
    "watch late": lambda state: state.watched(changes=0, may_rest=True),
    "watch lost": lambda state: state.watch_lost(),
    "look": lambda state: state.looked(has_tasks=True, changes=1),
    "look none": lambda state: state.looked(has_tasks=False, changes=1),
    "look late": lambda state: state.looked(has_tasks=True, changes=0),
    "no watch": lambda state: state.unwatchable(look_at=NOW + 1),
    "fail": lambda state: state.failed(look_at=NOW + 4),
    "slot freed": lambda state: state.slot_freed(),
    "asked": lambda state: state.asked(now=NOW),
    "polled": lambda state: state.asked(now=POLL),
    "doubted": lambda state: state.doubted(),
    "head start": lambda state: state.head_start_given(2.0, until=NOW + 60)._replace(
        head_start=0, head_start_until=0
    ),
}


TABLE: Final = """
          |unknown|checked|probed|empty |watched|deferred| rate |slots |slots w|order |order w| head |failed
more      |   .   |   .   |  .   |  U   |   Ut  |   U    |  U   |  U   |   Uh  |  U   |   Uh  |  Uh  |  U
empty     |  Einf | Etinf |Ehinf |  .   |   .   |  Einf  | Einf | Einf | Ehinf | Einf | Ehinf |Ehinf | Einf
rate      |   R2  |  Rt2  | Rh2  |  R2  |  Rt2  |   R2   |  R2  |  R2  |  Rh2  |  R2  |  Rh2  | Rh2  |  R2
slots     | C0.02 | Ct0.02| Ch2  |C0.02 | Ct0.02| C0.02  |C0.02 |C0.02 |  Ch2  |C0.02 |  Ch2  | Ch2  |C0.02
slots late| !C0.02| !C0.02|!C0.02|!C0.02| !C0.02| !C0.02 |!C0.02|!C0.02| !C0.02|!C0.02| !C0.02|!C0.02|!C0.02
order     | O0.02 | Ot0.02| Oh5  |O0.02 | Ot0.02| O0.02  |O0.02 |O0.02 |  Oh5  |O0.02 |  Oh5  | Oh5  |O0.02
order late| !O0.02| !O0.02|!O0.02|!O0.02| !O0.02| !O0.02 |!O0.02|!O0.02| !O0.02|!O0.02| !O0.02|!O0.02|!O0.02
head      |   H5  |  Ht5  | Hh5  |  H5  |  Ht5  |   H5   |  H5  |  H5  |  Hh5  |  H5  |  Hh5  |  .   |  H5
head late |  !H5  |  !H5  | !H5  | !H5  |  !H5  |  !H5   | !H5  | !H5  |  !H5  | !H5  |  !H5  | !H5  | !H5
pending   |   !U  |   !U  |  !U  |  !U  |   !U  |   !U   |  .   |  .   |   .   |  .   |   .   |  .   |  !U
paused    |   !U  |   !U  |  !U  |  !U  |   !U  |   !U   | !R2  |!C0.01| !C0.01|!O0.01| !O0.01|  H5  |  !U
lease     |   !U  |   !U  |  !U  |  !U  |   !U  |   !U   | !R2  |!C0.01| !C0.01|!O0.01| !O0.01|  H5  |  !U
active    |   .   |   .   |  U   |  .   |   .   |   .    | !R2  |!C0.01| !C0.01|!O0.01| !O0.01|  H5  |  .
to many   |   !U  |   !U  |  !U  |!D0.25| !D0.25| !D0.2  |  .   |  .   |   .   |  .   |   .   |  .   |!F0.25
watch     |   Ut  |   .   |  Ut  |  Ut  |   Ut  |   Ut   | Rt2  |  Uh  |   Uh  |  Uh  |   Uh  |  Uh  | Ft3
watch none|   Ut  |   .   |  Ut  |Etinf |   .   | Etinf  | Rt2  |  Uh  |   Uh  |  Uh  |   Uh  |  Uh  | Ft3
watch late|   .   |   .   |  .   |  .   |   .   |   .    |  .   |  .   |   .   |  .   |   .   |  .   |  .
watch lost|   !U  |   !U  |  !U  |!Einf | !Einf | !D0.2  | !R2  |!C0.01| !C0.01|!O0.01| !O0.01| !H5  |  !U
look      |   .   |   .   |  .   |  !U  |   !U  |   .    |  .   |  .   |   .   |  .   |   .   |  .   |  .
look none |  Einf | Etinf |  .   |  .   |   .   |   .    |  .   |  .   |   .   |  .   |   .   |  .   |  .
look late |   .   |   .   |  .   |  .   |   .   |   .    |  .   |  .   |   .   |  .   |   .   |  .   |  .
no watch  |   .   |   .   |  .   |  E1  |  Et1  |   .    |  .   |  .   |   .   |  .   |   .   |  .   |  .
fail      |   F4  |  Ft4  | Fh4  |  F4  |  Ft4  |   F4   |  F4  |  F4  |  Fh4  |  F4  |  Fh4  | Fh4  |  F4
slot freed|   .   |   .   |  .   |  .   |   .   |   .    |  .   |  U   |   Uh  |  U   |   Uh  |  Uh  |  .
asked     |   .   |   .   |  .   |  .   |   .   |   .    |  .   |  .   |   .   |  .   |   .   |  .   |  .
polled    |   .   |   .   |  .   |  .   |   .   |   .    |  .   |  .   |   C5  |  .   |   O5  |  H5  |  .
doubted   |   .   |   .   |  .   |  U   |   Ut  |   U    |  U   |  U   |   Uh  |  U   |   Uh  |  Uh  |  U
head start|   .   |   .   |  .   |  .   |   .   |   .    |  .   |  .   |   .   |  .   |   .   |  .   |  .
"""
"""The state after each event. `.` is the same state. A letter is the phase: Unknown, Empty, Deferred, Rate,
Concurrency, Order, Head or Failed; `t` or `h` the watch: tasks or holders; a number the seconds to rest.
`!` says that the report counts, so that older answers and watches do not.
"""


def cell(before: QueueState, after: QueueState) -> str:
    """Return a transition as the table has it."""
    if before == after:
        return "."
    text = "!" if after.changes > before.changes else ""
    text += {"unknown": "U", "empty": "E", "deferred": "D", "failed": "F"}.get(after.phase.value, "")
    text += {"rate": "R", "concurrency": "C", "order": "O", "head": "H"}.get(after.phase.value, "")
    text += {Watch.NOTHING: "", Watch.TASKS: "t", Watch.HOLDERS: "h"}[after.watch]
    return text if after.phase is QueuePhase.UNKNOWN else f"{text}{after.look_at - NOW:g}"


def rows() -> dict[str, dict[str, str]]:
    """Return the cells of the table by event and state."""
    (_, *states), *events = (
        [one.strip() for one in line.split("|")] for line in TABLE.strip("\n").split("\n")
    )
    return {event: dict(zip(states, cells, strict=True)) for event, *cells in events}


def test_the_table_has_every_event_and_every_state() -> None:
    """A new reading is processed for all of the others."""
    assert list(EVENTS) == list(rows())
    assert all(list(STATES) == list(cells) for cells in rows().values())
    assert set(QueuePhase) == {state.phase for state in STATES.values()}


@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_leads_each_state_to_the_next(event: str, before: str) -> None:
    """Whatever comes next, a queue without known state is asked at once, and no other one is."""
    after = EVENTS[event](STATES[before])
    assert rows()[event][before] == cell(STATES[before], after)
    assert (after.phase is QueuePhase.UNKNOWN) is (after.look_at == 0)
    assert after.rules is STATES[before].rules


def test_vain_calls_double_the_gap_until_it_is_a_quarter_of_a_second() -> None:
    """A call that brings a task makes it short again."""
    state, gaps = STATES["slots"], []
    for _ in range(6):
        state = held(LimitedBy.CONCURRENCY)(state)
        gaps.append(round(state.not_before - NOW, 3))
    assert [0.02, 0.04, 0.08, 0.16, 0.25, 0.25] == gaps
    assert 0.01 == answer(MORE._replace(limited_by=LimitedBy.CONCURRENCY))(state).gap


def test_new_tasks_are_left_to_other_servers_until_their_head_start_ends() -> None:
    """A server that gives others a head start waits even if it is the only one."""
    state = STATES["watched"].head_start_given(2.0, until=NOW + 60)
    told = state.key_changed(Key.PENDING, now=NOW, servers=1, draw=0.0)
    assert (QueuePhase.DEFERRED, NOW + 2) == (told.phase, told.look_at)
    assert QueuePhase.UNKNOWN is state.key_changed(Key.PENDING, now=NOW + 60, servers=1, draw=0.0).phase
