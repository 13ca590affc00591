# Generated from src/pyasynq/operations/operator/_runner.py by tools/unasync.py; change that file and run `make sync`.
"""The runner of one operation: makes steps of adapted size under a lease, and records each of them."""

from __future__ import annotations

import itertools
import json
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from pyasynq._broker.inspecting.pending_places import (
    NO_HINTS,
    PLACE_ATTEMPTS,
    WALK,
    PendingPlaces,
    find_places,
)
from pyasynq._broker.inspecting.tasks import find_tasks
from pyasynq._broker.operating.acts import (
    Stepped,
    forget_steps,
    read_restorable,
    read_step,
)
from pyasynq._broker.operating.operations import (
    LOST,
    advance_operation,
    forget_tasks,
    read_operation,
    read_operation_tasks,
    take_operation,
)
from pyasynq._broker.operating.periods import UNDO_SECONDS
from pyasynq._broker.queue_registry import register_queues
from pyasynq._clock import sleep_blocking
from pyasynq.errors import RedisError
from pyasynq.operations.acting import StepPace
from pyasynq.operations.operation import MAX_REFUSED, TASKS_IN_PART, Act, OperationState
from pyasynq.operations.operation_record import decode_options, decode_tasks
from pyasynq.operations.query import match_facts, parse_query

from ._acts import Acts, StepProgress, StepTasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._broker.inspecting.pending_places import Hints
    from pyasynq.operations.operation import OperationInfo
    from pyasynq.operations.redaction import Redactor

    from ._connections import OperatorConnections

_FIRST_SIZE: Final = 100
_LONGEST_REST: Final = 5.0


class OperationRunner:
    """Runs one operation for one process.

    Args:
        connections: the connections.
        operation: id of the operation.
        redactor: redacts tasks before they are tested against the operation's query again.
        progress: callback that is called after each step with the state of the operation.
    """

    def __init__(
        self,
        connections: OperatorConnections,
        operation: str,
        redactor: Redactor,
        progress: Callable[[OperationInfo], object] | None,
    ) -> None:
        self._connections = connections
        self._inspector = connections.inspector
        self._operation = operation
        self._redactor = redactor
        self._progress = progress
        self._fence = 0
        self._pace = StepPace()
        self._size = _FIRST_SIZE
        self._unnoted = 0
        self._tasks: list[tuple[str, str, str]] = []
        self._restorable: list[tuple[int, str]] | None = None
        self._numbers: dict[str, int] = {}
        self._placed = ""
        self._places = PendingPlaces()
        self._hints: Hints | None = None

    def run(self) -> OperationInfo:
        """Run the operation while this process holds its lease; return the operation's state afterwards."""
        info: OperationInfo = self._inspector.operation(self._operation)
        self._fence = self._inspector.run(
            take_operation(self._operation, secrets.token_hex(8), now=self._inspector.redis_now())
        )
        if not self._fence:
            return info
        self._load(info, self._inspector.run(read_operation(self._operation)))
        self._load_tasks()
        try:
            while self._advance_once():
                pass
        except RedisError:
            # The lease expires, and any process can continue the operation.
            raise
        except Exception as error:
            self._note(OperationState.FAILED, error=f"{type(error).__name__}: {error}"[:1_000])
            self._forget()
            raise
        ended: OperationInfo = self._inspector.operation(self._operation)
        return ended

    def _load(self, info: OperationInfo, fields: dict[str, bytes]) -> None:
        self._act = info.act
        self._parts = 0 if info.act is Act.UNDO else -(-info.total // TASKS_IN_PART)
        self._queues = info.queues
        self._target = info.target
        self._undoes = info.undoes
        self._options = decode_options(fields["options"])
        self._acts = Acts(self._connections, info, self._options)
        self._query = parse_query(info.query) if info.query else None
        self._position = int(fields.get("position", 0))
        self._number = int(fields.get("step", 0))
        self._kept = int(fields.get("kept", 0))
        self._below = int(fields.get("below", 0))
        self._done, self._skipped, self._trimmed = info.done, info.skipped, info.trimmed
        self._undoable = info.undoable
        self._undo_until = fields.get("undo_until", b"").decode()
        self._refused = [list(one) for one in info.refused]
        self._began = time.monotonic()
        self._done_before = info.done

    def _load_tasks(self) -> None:
        """Read the tasks, and the size of a step that a dead process may have made without recording it."""
        if self._act is Act.UNDO:
            places, noted = list(self._queues), self._number
        else:
            self._tasks = decode_tasks(
                self._inspector.run(read_operation_tasks(self._operation, self._parts))
            )
            places, noted = [queue for queue, _, _ in self._tasks], self._position
        for queue in places[self._position : self._position + 1]:
            # A move makes several calls for each step; only the ledger in the target queue counts.
            queue = self._target or queue  # noqa: PLW2901 - as the comment says
            self._unnoted = max(0, self._inspector.run(read_step(self._operation, queue)) - noted)
        if self._query is not None:
            servers = self._inspector.servers() if self._query.needs_servers else ()
            self._facts = match_facts(self._inspector.now(), servers)

    def _advance_once(self) -> bool:
        """Make one step and record it; return whether to go on with the next step."""
        chunk = self._find_next_tasks()
        if chunk is None:
            self._note(OperationState.DONE)
            self._forget()
            return False
        began = time.monotonic()
        stepped = self._step(chunk)
        failures = 0
        while stepped.unplaced:
            failures += 1
            chunk = self._place(chunk, failures)
            began = time.monotonic()
            stepped = self._step(chunk)
        took = time.monotonic() - began
        if stepped.lost:
            return False
        queue, ids, *_ = chunk
        self._count(queue, ids, stepped)
        began = time.monotonic()
        state = self._note()
        # The round trip of `_note` approximates that of the step; the rest of the step's time is the work of
        # Redis.
        self._size = self._pace.next_size(len(ids), took, time.monotonic() - began)
        if self._progress is not None and state:
            self._progress(self._inspector.operation(self._operation))
        if state == OperationState.STOPPED:
            self._forget()
        return state == OperationState.RUNNING and self._rest()

    def _forget(self) -> None:
        self._inspector.run(forget_tasks(self._operation, self._parts))
        for queue in (*self._queues, *filter(None, [self._target])):
            self._inspector.run(forget_steps(self._operation, queue))

    def _find_next_tasks(self) -> StepTasks | None:
        """Choose the tasks and the number of the next step; return the tasks, None if there are no more."""
        if self._act is Act.UNDO:
            return self._find_next_restorable()
        rest = self._tasks[self._position : self._position + (self._unnoted or self._step_limit())]
        if not rest:
            return None
        queue, _, state = rest[0]
        # Tasks in one queue and state: a step is one call to one queue.
        alike = itertools.takewhile(lambda task: (task[0], task[2]) == (queue, state), rest)
        ids = [task_id for _, task_id, _ in alike]
        if queue == self._placed and not self._unnoted:
            ids = ids[: self._places.fit(ids)]
        # The number of a step is its end position, so that a process that takes over repeats the same tasks.
        self._number = self._position + len(ids)
        return StepTasks(queue, ids, state)

    def _place(self, chunk: StepTasks, failures: int) -> StepTasks:
        """Find the positions of pending tasks in their list; return the tasks that one call can remove.

        These are the first tasks of the step, as many as fit.
        """
        queue, ids, *_ = chunk
        left = {task_id for name, task_id, _ in self._tasks[self._position :] if name == queue}
        self._placed, self._places = queue, self._inspector.run(find_places(queue, left))
        if failures > PLACE_ATTEMPTS:
            self._hints = WALK
            ids = ids[:1]
        ids = ids[: self._places.fit(ids)]
        self._number = self._position + len(ids)
        return chunk._replace(ids=ids)

    def _choose_hints(self, queue: str, ids: Sequence[str]) -> Hints:
        if self._hints is not None:
            return self._hints
        return self._places.hints(ids) if queue == self._placed else NO_HINTS

    def _find_next_restorable(self) -> StepTasks | None:
        while self._position < len(self._queues):
            queue = self._queues[self._position]
            if self._restorable is None:
                self._inspector.run(register_queues([queue]))
                self._restorable = self._inspector.run(read_restorable(self._undoes, queue))
            # Numbers decrease from step to step, so higher ones were handled before.
            ways = [way for way in self._restorable if not self._below or way[0] < self._below]
            self._restorable = ways[self._step_limit() :]
            # An unrecorded step is repeated even if no task is left to restore.
            if ways or self._unnoted:
                self._number += 1
                self._numbers = {task_id: number for number, task_id in ways[: self._step_limit()]}
                return StepTasks(queue, list(self._numbers))
            self._position, self._below, self._restorable = self._position + 1, 0, None
        return None

    def _step_limit(self) -> int:
        return self._acts.size_limit(self._size)

    def _step(self, chunk: StepTasks) -> Stepped:
        """Act on the tasks of a step that still match the query; report all other tasks as `changed`.

        The script itself tests queue, id and state.
        """
        if self._query is None or self._unnoted or (chunk.state and not self._query.needs_content):
            return self._act_on(chunk)
        matching = self._find_still_matching(chunk.queue, chunk.ids)
        changed = {task_id: "changed" for task_id in chunk.ids if task_id not in matching}
        if self._act is Act.MOVE:
            return self._act_on(chunk._replace(unwanted=frozenset(changed)))
        stepped = Stepped()
        if matching:
            kept = [task_id for task_id in chunk.ids if task_id in matching]
            stepped = self._act_on(chunk._replace(ids=kept))
        return stepped._replace(refused=changed | stepped.refused)

    def _act_on(self, chunk: StepTasks) -> Stepped:
        hints = self._choose_hints(chunk.queue, chunk.ids)
        progress = StepProgress(
            self._number, self._position, self._kept, hints, is_repeated=bool(self._unnoted)
        )
        return self._acts.perform(chunk, progress)

    def _find_still_matching(self, queue: str, ids: Sequence[str]) -> set[str]:
        query = self._query
        if query is None:
            return set(ids)
        found = self._inspector.run(find_tasks(queue, ids, now=self._inspector.now()))
        if query.needs_redaction or self._redactor.has_hook:
            found = [self._redactor.task(task, payload_view=True) for task in found]
        return {task.id for task in found if query.matches(task, self._facts)}

    def _count(self, queue: str, ids: Sequence[str], stepped: Stepped) -> None:
        """Add the results of a step to the totals; a repeated step adds the results of its first run."""
        self._done += stepped.done
        # The ledger of an unrecorded step counts the tasks that no longer matched, but does not name them.
        untold = self._unnoted and self._act is not Act.UNDO
        self._skipped += len(ids) - stepped.done if untold else len(stepped.refused)
        self._trimmed += stepped.trimmed
        self._kept += stepped.kept
        self._unnoted = 0
        self._hints = None
        if self._act is Act.UNDO:
            seen = ids[: len(ids) - stepped.left]
            left_out = set(stepped.refused) if stepped.repeated else set(seen)
            numbers = [self._numbers[task_id] for task_id in left_out if task_id in self._numbers]
            self._below = min(numbers, default=self._below)
            # The first run of a repeated step had other tasks than this one, so the rest may still need to be
            # restored.
            rest = [(self._numbers[task_id], task_id) for task_id in ids[len(seen) :]]
            self._restorable = None if stepped.repeated else rest + (self._restorable or [])
        else:
            self._position += len(ids)
            if queue == self._placed:
                self._places.remove(task_id for task_id in ids if task_id not in stepped.refused)
        if self._act is Act.DELETE and stepped.kept:
            self._undoable += stepped.done
            self._undo_until = self._undo_until or repr(self._inspector.now().timestamp + UNDO_SECONDS)
        room = MAX_REFUSED - len(self._refused)
        self._refused += [[queue, *pair] for pair in list(stepped.refused.items())[:room]]

    def _note(self, state: str = "", *, error: str = "") -> str:
        """Store the progress of the operation; return its state."""
        fields: dict[str, Any] = {
            "position": self._position,
            "below": self._below,
            "step": self._number,
            "done": self._done,
            "skipped": self._skipped,
            "trimmed": self._trimmed,
            "kept": self._kept,
            "undoable": self._undoable,
            "refused": json.dumps(self._refused),
        }
        if self._undo_until:
            fields["undo_until"] = self._undo_until
        if error:
            fields["error"] = error
        plan = advance_operation(
            self._operation, self._fence, fields, state=state, now=self._inspector.redis_now()
        )
        found = self._inspector.run(plan)
        return "" if found == LOST else found

    def _rest(self) -> bool:
        """Wait until the rate limit allows the next step; return whether the operation still runs."""
        rate = self._options.rate
        if rate is None:
            return True
        while True:
            made = self._done + self._skipped - self._done_before
            left = self._began + made / rate - time.monotonic()
            if left <= 0:
                return True
            sleep_blocking(min(left, _LONGEST_REST))
            if self._note() != OperationState.RUNNING:
                return False
