"""Asynq's side of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.interop.go_peer import GoError, GoPeer, bytes_of, task
from tests.interop.steps import GRACE_PERIOD, MAX_DELAY, MAX_SIZE, QUEUES, RETRY_DELAY, SLOTS, Answer, Step

if TYPE_CHECKING:
    from pathlib import Path

_AGGREGATORS = 24
_ROUND = {"queues": QUEUES, "retry_delay": RETRY_DELAY}


class GoSide:
    """Drives the peer; a method for each operation that is not a call of the peer with the same arguments."""

    def __init__(self, program: Path, url: str) -> None:
        self.peer = GoPeer(program, url)
        self.peer.start_aggregators(
            queue=QUEUES[0],
            count=_AGGREGATORS,
            grace_period=GRACE_PERIOD,
            max_delay=MAX_DELAY,
            max_size=MAX_SIZE,
        )
        self._held: dict[str, str] = {}
        for slot in SLOTS:
            self._start(slot)

    def close(self) -> None:
        """End the peer."""
        self.peer.close()

    def begin(self) -> None:
        """Have workers forget what they run, and clients what they have registered."""
        for slot in list(self._held):
            self._finish(slot, "vanish", "", None)
        self.peer.new_client()

    def do(self, step: Step) -> Answer:
        """Perform a step."""
        try:
            return Answer(getattr(self, f"_{step.operation}")(**step.arguments))
        except GoError as error:
            return Answer(None, error.kind)

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            return self.peer.call(name.removeprefix("_"), **arguments)

        return call

    def _start(self, slot: str) -> None:
        self.peer.start_worker(server=slot, queues=QUEUES, retry_delay=RETRY_DELAY)

    def _enqueue(self, task_type: str, payload: bytes | None, options: dict[str, Any]) -> Any:
        return task_view(self.peer.enqueue(task=task(task_type, payload, **options)))

    def _take(self, slot: str) -> Any:
        taken = self.peer.take(server=slot)
        if taken is None or taken["attempt"] is None:
            return None if taken is None else "over"
        attempt = taken["attempt"]
        self._held[slot] = attempt["id"]
        payload = bytes_of(attempt["payload"]) or b""
        return attempt["queue"], attempt["id"], attempt["type"], payload, attempt["headers"] or {}

    def _finish(self, slot: str, kind: str, text: str, result: bytes | None) -> None:
        task_id = self._held.pop(slot)
        self.peer.finish(server=slot, id=task_id, outcome={"kind": kind, "text": text, "result": result})

    def _cancel(self, slot: str, queue: str, task_id: str) -> None:
        self._held.pop(slot)
        self.peer.cancel_taken(server=slot, id=task_id)

    def _stop(self, slot: str) -> None:
        self._held.pop(slot)
        self.peer.stop_server(server=slot)
        self._start(slot)

    def _forward(self) -> None:
        self.peer.forward(**_ROUND)

    def _delete_expired(self) -> None:
        self.peer.delete_expired(**_ROUND)

    def _recover(self) -> None:
        self.peer.recover(**_ROUND)

    def _new_client(self) -> None:
        self.peer.new_client()

    def _run_task(self, queue: str, task_id: str) -> None:
        self.peer.run_task(queue=queue, id=task_id)

    def _archive_task(self, queue: str, task_id: str) -> None:
        self.peer.archive_task(queue=queue, id=task_id)

    def _delete_task(self, queue: str, task_id: str) -> None:
        self.peer.delete_task(queue=queue, id=task_id)

    def _update_payload(self, queue: str, task_id: str, payload: bytes) -> None:
        self.peer.update_payload(queue=queue, id=task_id, payload=payload)

    def _queues(self) -> Any:
        return sorted(self.peer.queues())

    def _task_info(self, queue: str, task_id: str) -> Any:
        return task_view(self.peer.task_info(queue=queue, id=task_id))

    def _list_tasks(self, queue: str, state: str, group: str, page: int) -> Any:
        found = self.peer.list_tasks(queue=queue, state=state, group=group, page=page, page_size=2)
        return [task_view(one) for one in found]

    def _queue_info(self, queue: str) -> Any:
        info = self.peer.queue_info(queue=queue)
        for name in ("queue", "memory_usage", "timestamp"):
            del info[name]
        return info

    def _history(self, queue: str) -> Any:
        days = self.peer.history(queue=queue, days=2)
        return [(one["day"], one["processed"], one["failed"]) for one in days]


def task_view(info: dict[str, Any]) -> dict[str, Any]:
    """Return Asynq's description of a task in the words of both sides."""
    view = {**info, "payload": bytes_of(info["payload"]) or b"", "headers": info["headers"] or {}}
    view["result"] = bytes_of(info["result"]) or b""
    return view
