"""Worker of one instance of the service: it runs the tasks of the kinds `http` and `cmd`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from pyasynq._visible_text import visible
from pyasynq.consumer import Consumer, ConsumerConfig
from pyasynq.control import Archive
from pyasynq.errors import PyasynqError, QueuePausedError

from .admission import HostAdmission
from .http.outcomes import Gone
from .lane import Lane
from .outcome import PutBack, Throttled
from .throttled_tasks import DEFAULT_MAX_AGE, put_off_task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pyasynq.consumer import Attempt
    from pyasynq.gateway.configurations import HostRule, TaskConfiguration
    from pyasynq.gateway.leases.acts import DelayOfFailure
    from pyasynq.operations import HostGate

    from .cmd.commands import HostedCommands
    from .http.delivery import Deliveries
    from .outcome import HostedOutcome

    ListTypes = Callable[[], Mapping[str, TaskConfiguration]]
    MakeGate = Callable[[HostRule], HostGate]
    PauseQueue = Callable[[str, str], Awaitable[None]]

_log = logging.getLogger("pyasynq.gateway")

_REST_SECONDS: Final = 1.0
_SLOTS: Final = 100
"""Maximum number of running tasks of one host in one instance, even if the rule of the host allows more."""
_MOST_ATTEMPTS: Final = 10_000


class HostedWorker:
    """Runs the tasks of hosted types, and polls their configurations for changes. Belongs to one event loop.

    Args:
        redis: where Redis is, as for `Consumer`.
        list_types: returns the configuration of each type, by name.
        deliveries: sends requests; closed with the worker.
        commands: runs commands; closed with the worker.
        make_gate: returns the gate of a host, which limits the requests of all instances together.
        retry_delay: returns the seconds until a failed task is retried; None is the back-off of Asynq.
        pause_queue: pauses a queue, given the reason, when a host says that an endpoint is gone for good.
        rest: seconds between two checks of the types.
    """

    def __init__(
        self,
        redis: Any,
        list_types: ListTypes,
        deliveries: Deliveries,
        commands: HostedCommands,
        *,
        make_gate: MakeGate,
        retry_delay: DelayOfFailure,
        pause_queue: PauseQueue,
        rest: float = _REST_SECONDS,
    ) -> None:
        self._redis = redis
        self._list_types = list_types
        self._deliveries = deliveries
        self._commands = commands
        self._make_gate = make_gate
        self._retry_delay = retry_delay
        self._pause_queue = pause_queue
        self._rest = rest
        self._consumer: Consumer | None = None
        self._served: set[str] = set()
        self._lanes: dict[HostRule, Lane] = {}
        self._command_lane: Lane | None = None
        self._following: asyncio.Task[None] | None = None
        self._has_failed = False
        self._is_stopped = False

    @property
    def running(self) -> int:
        """Number of tasks that run now."""
        return sum(lane.running for lane in self._list_lanes())

    @property
    def throttled(self) -> dict[str, bool]:
        """Whether each host has asked for a pause (429 or 503) that is not over, by host name."""
        found: dict[str, bool] = {}
        for lane in self._lanes.values():
            if lane.queues:
                found[lane.name] = lane.is_throttled or found.get(lane.name, False)
        return found

    def _list_lanes(self) -> list[Lane]:
        return [*self._lanes.values(), *([self._command_lane] if self._command_lane is not None else [])]

    def start(self) -> None:
        """Begin to poll the types for changes, and to run their tasks. Idempotent."""
        if self._following is None and not self._is_stopped:
            self._following = asyncio.create_task(self._follow(), name="pyasynq hosted types")

    def stop(self) -> None:
        """Take no more tasks: the first step of a shutdown. Running tasks go on until `close`."""
        if self._is_stopped:
            return  # a second cancellation would interrupt the cleanup after the first
        self._is_stopped = True
        if self._following is not None:
            self._following.cancel()
        for lane in self._list_lanes():
            lane.stop()

    async def close(self, timeout: float) -> None:
        """Call `stop`, wait for running tasks, requeue the unfinished ones, and close the connections.

        Commands get SIGTERM at once, because few of them would end by themselves within the timeout.

        Args:
            timeout: seconds to wait for running tasks.
        """
        self.stop()
        if self._following is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
        ending = [lane.close(timeout) for lane in self._lanes.values()]
        if self._command_lane is not None:
            self._commands.begin_close()
            ending.append(self._command_lane.close(timeout, patience=0))
        await asyncio.gather(*ending)
        await self._commands.close()
        await self._deliveries.close()
        if self._consumer is not None:
            await self._consumer.close()

    async def _follow(self) -> None:
        while True:
            try:
                await self._serve_types()
            except PyasynqError as error:
                if not self._has_failed:
                    _log.warning("hosted types cannot be served: %s; retrying every second", visible(error))
                self._has_failed = True
            except Exception:  # noqa: BLE001 - without looks the instance would serve what is stale
                _log.exception("hosted types were not served; retrying every second")
            else:
                self._has_failed = False
            await asyncio.sleep(self._rest)

    async def _serve_types(self) -> None:
        """Serve the queue of each hosted type, and set the queues of each host's lane.

        Raises:
            RedisError: Redis cannot be reached, or refuses a queue.
        """
        types = self._list_types()
        requests = {name: one for name, one in types.items() if one.kind == "http"}
        # Redis also has command types from the files of other instances, which this instance cannot run.
        commands = {name for name in self._commands.names & types.keys() if types[name].kind == "cmd"}
        lanes: defaultdict[HostRule, list[str]] = defaultdict(list)
        for name in (*requests, *commands):
            await self._serve(name)
        for name, one in requests.items():
            assert one.url is not None  # noqa: S101 - the kind http has one
            lanes[self._deliveries.rule_of(one.url)].append(name)
        for rule, lane in self._lanes.items():
            lane.set_queues(lanes.pop(rule, ()))
        for rule, names in lanes.items():
            self._lanes[rule] = self._make_lane(rule)
            self._lanes[rule].set_queues(names)
        self._lease_commands(commands)
        await self._drop(self._served - requests.keys() - commands)

    def _lease_commands(self, names: set[str]) -> None:
        """Set the queues of the lane that all command types share; make the lane first if there is none."""
        if names and self._command_lane is None:
            assert self._consumer is not None  # noqa: S101 - it serves the queues
            self._commands.announce()
            self._command_lane = Lane(
                "commands",
                self._consumer,
                self._run_command,
                retry_delay=self._retry_delay,
                slots=self._commands.rules.concurrency,
            )
        if self._command_lane is not None:
            self._command_lane.set_queues(names)

    async def _run_command(self, attempt: Attempt) -> HostedOutcome:
        configuration = self._list_types().get(attempt.queue)
        if configuration is None or configuration.kind != "cmd" or attempt.queue not in self._commands.names:
            return PutBack()  # the type was changed in this moment
        return await self._commands.run(attempt)

    async def _serve(self, name: str) -> None:
        if name in self._served:
            return
        if self._consumer is None:
            await self._deliveries.start()
            config = ConsumerConfig(queues={name: 1}, concurrency=_MOST_ATTEMPTS)
            consumer = Consumer(self._redis, config)
            await consumer.start()
            self._consumer = consumer
        else:
            await self._consumer.serve(name)
        self._served.add(name)

    async def _drop(self, names: set[str]) -> None:
        """Stop serving the queues of types that are no longer hosted.

        The last queue stays, because a consumer needs at least one.
        """
        for name in names:
            if self._consumer is not None and len(self._served) > 1:
                await self._consumer.unserve(name)
                self._served.discard(name)

    def _make_lane(self, rule: HostRule) -> Lane:
        assert self._consumer is not None  # noqa: S101 - it serves the queues of the lane

        async def handle(attempt: Attempt) -> HostedOutcome:
            return await self._handle(attempt, lane)

        slots = min(_SLOTS, rule.concurrency or _SLOTS)
        lane = Lane(
            rule.name,
            self._consumer,
            handle,
            retry_delay=self._retry_delay,
            slots=slots,
            admission=HostAdmission(self._make_gate(rule)),
            put_off=self._put_off,
        )
        return lane

    async def _handle(self, attempt: Attempt, lane: Lane) -> HostedOutcome:
        """Send the request of an attempt; return the outcome.

        An answer 429 or 503 pauses the host's lane; 410 pauses the queue of the task type.
        """
        configuration = self._list_types().get(attempt.queue)
        if configuration is None or configuration.kind != "http":
            return PutBack()  # the type was changed in this moment
        outcome = await self._deliveries.deliver(attempt, configuration)
        if isinstance(outcome, Throttled):
            await lane.throttle(outcome.seconds)
            return self._put_off(attempt, outcome)
        if isinstance(outcome, Gone):
            with contextlib.suppress(QueuePausedError):
                await self._pause_queue(attempt.queue, outcome.reason)
            return Archive(outcome.reason)
        return outcome

    def _put_off(self, attempt: Attempt, throttled: Throttled) -> HostedOutcome:
        """Return the outcome of a task whose host is throttled: retry later, or archive after `max_age`."""
        configuration = self._list_types().get(attempt.queue)
        max_age = None if configuration is None else configuration.max_age
        return put_off_task(attempt, throttled, DEFAULT_MAX_AGE if max_age is None else max_age)
