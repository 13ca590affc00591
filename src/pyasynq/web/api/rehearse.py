"""Dry runs of API requests: check everything as for the change itself, and change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq.errors import TaskStateError
from pyasynq.info import Refusal, RequestStatus, TaskResult
from pyasynq.operations import STATES_OF_ACT, VERBS, Act, Subject

from . import fleet, operations, queues, tasks
from .call import Listing
from .records import describe_task_result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq._face_records.fields import Record
    from pyasynq.operations import Verb

    from .call import ApiCall

_ACTS: Final = {
    "run_task": Act.RUN,
    "archive_task": Act.ARCHIVE,
    "delete_task": Act.DELETE,
    "reschedule_task": Act.RESCHEDULE,
    "edit_payload": Act.EDIT,
    "run_tasks": Act.RUN,
    "archive_tasks": Act.ARCHIVE,
    "delete_tasks": Act.DELETE,
    "cancel_tasks": Act.CANCEL,
}
"""Bulk action (`Act`) that is allowed in the same task states as a verb, by the name of the verb."""
_NEEDS_NO_QUEUE: Final = frozenset({"enqueue", "set_queue_limits", "set_wait_objective"})


async def rehearse(call: ApiCall, name: str) -> Record:
    """Check that a verb may be called with this request (dry run); return the record of the response.

    Raises:
        Exception: the error that the call itself would raise, if it can be predicted.
    """
    verb = VERBS[name]
    await _check_subject(call, verb)
    if "task" in call.names:
        info = await call.operator.task(call.queue, call.task)
        act = _ACTS.get(name)
        if act and info.state not in STATES_OF_ACT[act]:
            raise TaskStateError(name.partition("_")[0], call.queue, call.task, info.state)
    return {"dry_run": True, "verb": name, "summary": verb.summary}


async def _check_subject(call: ApiCall, verb: Verb) -> None:
    match verb.subject:
        case Subject.QUEUE:
            await _check_queue(call, verb.name)
        case Subject.QUEUES:
            _check_all(call, verb.name, call.body.queues or ())
        case Subject.SERVER:
            record = await fleet.handle_get_server(call)
            _check_all(call, verb.name, record["queues"])
        case Subject.ENTRY:
            record = await fleet.handle_get_schedule(call)
            _check_all(call, verb.name, [record["queue"]])
        case Subject.OPERATION:
            record = await operations.handle_get_operation(call)
            _check_all(call, verb.name, record["queues"])
        case _:
            _check_all(call, verb.name, ())


async def _check_queue(call: ApiCall, verb: str) -> None:
    queue = call.names.get("queue") or getattr(call.body, "queue", "")
    _check_all(call, verb, [queue] if queue else ())
    if "queue" in call.names and verb not in _NEEDS_NO_QUEUE:
        await queues.get_queue_state(call)


def _check_all(call: ApiCall, verb: str, names: Iterable[str]) -> None:
    call.ask.require_somewhere(verb)
    for queue in names:
        call.ask.require(verb, queue)


async def rehearse_enqueue(call: ApiCall) -> Record:
    """Check a task that is to be enqueued (dry run)."""
    tasks.build_task(call)
    return await rehearse(call, "enqueue")


async def rehearse_limits(call: ApiCall) -> Record:
    """Check a change of a queue's limits (dry run)."""
    queues.read_changes(call.body)
    return await rehearse(call, "set_queue_limits")


async def rehearse_payload(call: ApiCall) -> Record:
    """Check a replacement of a payload (dry run)."""
    tasks.read_new_payload(call)
    return await rehearse(call, "edit_payload")


async def rehearse_view(call: ApiCall) -> Record:
    """Check a view that is to be saved (dry run)."""
    return await rehearse(call, "share_view" if call.body.shared else "save_view")


async def rehearse_deletion_of_view(call: ApiCall) -> Record:
    """Check a view that is to be deleted (dry run)."""
    return await rehearse(call, "delete_shared_view" if call["shared"] else "delete_view")


async def rehearse_servers(call: ApiCall, name: str) -> Listing:
    """Predict which servers would be quieted or stopped (dry run)."""
    call.ask.require_somewhere(name)
    chosen = await fleet.find_asked_servers(call)
    for server in chosen:
        _check_all(call, name, server.queues)
    records = [{"id": server.id, "status": str(RequestStatus.REQUESTED), "obeyed": True} for server in chosen]
    return Listing(records, facts={"dry_run": True})


async def rehearse_by_ids(call: ApiCall, name: str) -> Listing:
    """Predict the result for each of the given tasks (dry run)."""
    await _check_subject(call, VERBS[name])
    wanted = list(dict.fromkeys(call.body.ids))
    found = {task.id: task.state for task in await call.operator.find_tasks(wanted, [call.queue])}
    results = [_foresee(task_id, found.get(task_id), _ACTS[name]) for task_id in wanted]
    done = sum(result.done for result in results)
    facts = {"dry_run": True, "done": done, "refused": len(results) - done, "trimmed": 0}
    return Listing([describe_task_result(result) for result in results], facts=facts)


def _foresee(task_id: str, state: str | None, act: Act) -> TaskResult:
    if state is None:
        return TaskResult(task_id, Refusal.MISSING)
    return TaskResult(task_id) if state in STATES_OF_ACT[act] else TaskResult(task_id, Refusal.STATE, state)
