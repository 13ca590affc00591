"""Main loop of `pyasynq work`: leases tasks for free slots, runs their commands, and handles signals."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import signal
import socket
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from pyasynq._exit_codes import EXIT_CLEAN, EXIT_FAILED, EXIT_UNFINISHED
from pyasynq._human_text import counted, some
from pyasynq.sdk.errors import ServiceError
from pyasynq.sdk.lease_answers import read_leased_tasks
from pyasynq.sdk.service_connection import ANSWER_SECONDS, Pauses, ServiceConnection

from .command_attempt import CommandAttempt, CommandWorkerSettings, EndCause

if TYPE_CHECKING:
    from pyasynq.sdk.service_connection import ServiceAnswer

_log = logging.getLogger("pyasynq.work")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_POLL_SECONDS: Final = 20.0
_MOST_TASKS: Final = 100
"""Maximum number of tasks in one answer: the service's limit."""
_OK: Final = 200
_NONE: Final = 204
_NOT_FOUND: Final = 404
_LASTING: Final = frozenset({400, 401, 403, 405, 413, 422})
"""HTTP statuses of permanent refusals: repeating the request would not help."""


class CommandWorker:
    """Leases tasks and runs a command for each. Belongs to one event loop.

    Args:
        connection: connection to the service.
        settings: queues to lease from, and the command to run.
    """

    def __init__(self, connection: ServiceConnection, settings: CommandWorkerSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._attempts: dict[asyncio.Task[None], CommandAttempt] = {}
        """Attempts in progress, by their asyncio tasks; a done callback removes each one."""
        self._poll: asyncio.Task[ServiceAnswer] | None = None
        self._answer_comes = asyncio.Event()
        """Event that is set while the answer to the long poll is received; then the poll is not cancelled."""
        self._changed = asyncio.Event()
        """Event that is set when a command has ended, or the worker has to end."""
        self._is_draining = False
        self._was_cut = False
        """Whether a second signal has ended running commands; it decides the exit code."""
        self._refusal: ServiceError | None = None

    @classmethod
    async def run_with(cls, service: str, key: str, settings: CommandWorkerSettings) -> int:
        """Run a worker until it is stopped; return the exit code.

        Raises:
            ConfigurationError: for an invalid address or key.
            ServiceError: the service does not answer at the start, or refuses this worker.
        """
        connection = ServiceConnection(service, key)
        try:
            return await cls(connection, settings).run()
        finally:
            await connection.close()

    async def run(self) -> int:
        """Lease and run tasks until a signal or a refusal; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            await self._probe()
            _log.info("leasing tasks of %s", some(self._settings.queues, 10))
            await self._lease_until_end()
            # Running commands may finish even after a refusal by the service; signals end them.
            while self._attempts:
                await asyncio.wait(self._attempts)
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
        if self._refusal is not None:
            _log.error("the worker ends: %s", self._refusal)
            return EXIT_FAILED
        return EXIT_UNFINISHED if self._was_cut else EXIT_CLEAN

    def stop(self) -> None:
        """Take no more tasks; at the second call, also end the running commands."""
        if not self._is_draining:
            self._is_draining = True
            self._stop_poll()
            self._changed.set()
            if self._attempts:
                _log.info("finishing %s; a second signal ends them", counted(len(self._attempts), "command"))
            return
        for attempt in self._attempts.values():
            self._was_cut = True
            attempt.end(EndCause.STOPPED)

    async def _probe(self) -> None:
        """Send one request without long polling, so that a wrong address, key or queue fails the start."""
        asked_at = asyncio.get_running_loop().time()
        answer = await self._ask(1, 0.0)
        if answer.status in _LASTING or answer.status == _NOT_FOUND:
            raise answer.error()
        self._take(answer, asked_at)

    async def _lease_until_end(self) -> None:
        pauses = Pauses()
        while not self._is_draining and self._refusal is None:
            free = self._settings.concurrency - len(self._attempts)
            pause = await self._lease(min(free, _MOST_TASKS), pauses) if free > 0 else None
            if pause is None or pause > 0:
                await self._wait_for_change(pause)

    async def _wait_for_change(self, seconds: float | None) -> None:
        """Wait until a command has ended, or the worker must end; at most `seconds`, None without a limit."""
        self._changed.clear()
        if self._is_draining:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _lease(self, limit: int, pauses: Pauses) -> float:
        """Request at most `limit` tasks by a long poll, and start their commands.

        Return the seconds until the next request: 0, or a back-off delay after an error.
        """
        asked_at = asyncio.get_running_loop().time()
        self._answer_comes.clear()
        self._poll = asyncio.create_task(self._ask(limit, _POLL_SECONDS), name="pyasynq work poll")
        await asyncio.wait({self._poll})
        if self._poll.cancelled():
            return 0.0
        error = self._poll.exception()
        try:
            if error is not None:
                raise error
            answer = self._poll.result()
            if answer.status in _LASTING:
                self._refusal = answer.error()
                return 0.0
            if answer.status not in {_OK, _NONE}:
                return self._back_off(answer.error(), pauses, answer.retry_after)
            self._take(answer, asked_at)
        except ServiceError as failure:
            return self._back_off(failure, pauses)
        pauses.reset()
        return 0.0

    def _back_off(self, error: ServiceError, pauses: Pauses, least: float = 0.0) -> float:
        pause = pauses.next(least)
        _log.warning("no tasks were leased: %s; trying again in %.1f s", error, pause)
        return pause

    async def _ask(self, limit: int, wait: float) -> ServiceAnswer:
        body = {
            "queues": list(self._settings.queues),
            "limit": limit,
            "wait": wait,
            "lease": self._settings.lease,
            "worker": {
                "name": "pyasynq work",
                "language": f"python {platform.python_version()}",
                "host": socket.gethostname()[:200],
                "pid": os.getpid(),
                "version": version("pyasynq"),
            },
        }
        return await self._connection.send(
            "POST", "/v1/leases", body, seconds=wait + ANSWER_SECONDS, on_answer=self._answer_comes
        )

    def _take(self, answer: ServiceAnswer, asked_at: float) -> None:
        """Start a command for each task in the service's answer; when draining, release the tasks instead.

        Raises:
            ServiceError: if the answer is not from the service (but from a proxy, for example).
        """
        tasks, skew = read_leased_tasks(answer)
        for leased in tasks:
            attempt = CommandAttempt(
                leased,
                asked_at=asked_at,
                clock_skew=skew,
                connection=self._connection,
                settings=self._settings,
            )
            work = attempt.release() if self._is_draining else attempt.run()
            task = asyncio.create_task(work)
            self._attempts[task] = attempt
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._attempts.pop(task, None)
        self._changed.set()
        if not task.cancelled() and task.exception() is not None:
            _log.error("an attempt was not settled; its task comes back", exc_info=task.exception())

    def _stop_poll(self) -> None:
        """Cancel the long poll, unless its answer has begun to arrive: tasks in it would be lost."""
        if self._poll is not None and not self._answer_comes.is_set():
            self._poll.cancel()
