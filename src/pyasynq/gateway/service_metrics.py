"""Metrics of one process of the task service."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyasynq.metrics.store import MetricStore
from pyasynq.metrics.text import render

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyasynq.events import LeaseLapsed, TaskRecovered
    from pyasynq.metrics.text import Samples
    from pyasynq.operations import ServiceDoor
    from pyasynq.supervisor import MetricRow


class ServiceMetrics:
    """Counts requests, leases, new and hosted tasks. Any thread may read it."""

    def __init__(self) -> None:
        self._store = MetricStore()

    def note_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._store.add("pyasynq_service_requests_total", (route, method, str(status)))
        self._store.observe("pyasynq_service_request_seconds", seconds, (route,))

    def note_leased(self, queues: Iterable[str]) -> None:
        """Count leased tasks, each by its queue."""
        for queue, tasks in Counter(queues).items():
            self._store.add("pyasynq_service_leases_total", (queue,), tasks)

    def note_act(self, queue: str, act: str) -> None:
        """Count a worker's act on an attempt."""
        if act == "extend":
            self._store.add("pyasynq_service_extends_total", (queue,))
        else:
            self._store.add("pyasynq_service_settles_total", (queue, act))

    def note_refused(self, act: str, reason: str) -> None:
        """Count an act that was refused, by the code of its problem."""
        self._store.add("pyasynq_service_acts_refused_total", (act, reason))

    def note_lapsed(self, event: TaskRecovered | LeaseLapsed) -> None:
        """Count a task that is pending again because its lease has expired."""
        self._store.add("pyasynq_service_leases_lapsed_total", (event.queue,))

    def note_delivery(self, host: str, status: str, seconds: float) -> None:
        """Count a request of a hosted task, by the class of its status."""
        self._store.add("pyasynq_service_deliveries_total", (host, status))
        self._store.observe("pyasynq_service_delivery_seconds", seconds, (host,))

    def note_command(self, queue: str, outcome: str, seconds: float, cpu: float) -> None:
        """Count a command that has ended."""
        self._store.add("pyasynq_service_commands_total", (queue, outcome))
        self._store.observe("pyasynq_service_command_seconds", seconds, (queue,))
        self._store.add("pyasynq_service_command_cpu_seconds_total", (queue,), cpu)

    def note_killed_command(self, queue: str, limit: str) -> None:
        """Count a command that was killed at a limit."""
        self._store.add("pyasynq_service_commands_killed_total", (queue, limit))

    def measure(
        self,
        *,
        parked: int,
        held: int,
        listening: Mapping[str, int],
        commands: int = 0,
        throttled: Mapping[str, bool] | None = None,
        door: ServiceDoor | None = None,
    ) -> None:
        """Set the gauges.

        Args:
            parked: number of requests that wait for tasks.
            held: number of tasks that workers have leased and not yet settled, both through this process.
            listening: number of workers of each type of the kind `list`.
            commands: number of running commands.
            throttled: whether each host has asked for a pause (429 or 503).
            door: state of the Gearman server of this process; None if it has none.
        """
        self._store.set_gauges("pyasynq_service_parked_polls", {(): parked})
        self._store.set_gauges("pyasynq_service_leases_held", {(): held})
        self._store.set_gauges("pyasynq_service_commands_running", {(): commands})
        workers: dict[tuple[str, ...], float] = {(queue,): number for queue, number in listening.items()}
        self._store.set_gauges("pyasynq_service_list_workers", workers)
        hosts: dict[tuple[str, ...], float] = {(host,): is_so for host, is_so in (throttled or {}).items()}
        self._store.set_gauges("pyasynq_service_host_throttled", hosts)
        if door is not None:
            name = door.protocol
            connections: dict[tuple[str, ...], float] = {
                (name, "worker"): door.workers,
                (name, "client"): door.clients,
            }
            self._store.set_gauges("pyasynq_service_door_connections", connections)
            self._store.set_gauges("pyasynq_service_door_jobs", {(name,): door.running})

    def note_enqueued(self, labels: Iterable[tuple[str, str, str]]) -> None:
        """Count tasks that were sent to be enqueued, each by its queue, type and outcome."""
        for label, tasks in Counter(labels).items():
            self._store.add("pyasynq_service_tasks_total", label, tasks)

    def samples(self) -> list[Samples]:
        """Return all metrics with their values."""
        return self._store.samples()

    def take_rows(self) -> list[MetricRow]:
        """Return the changes since the last call, which a supervisor adds up over its processes."""
        return self._store.take_rows()

    def render(self, accept: str = "") -> tuple[str, bytes]:
        """Return content type and body of the metrics, in the format that an `Accept` header asks for."""
        return render(self.samples(), accept)
