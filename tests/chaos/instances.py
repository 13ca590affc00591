"""Instances of the task service in chaos runs: how they start, are asked, and what they leave in Redis."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import httpx
import psutil

from pyasynq.inspector import Inspector
from tests.chaos.fleet import Fleet
from tests.chaos.hosted_judge import Ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyasynq.task import TaskInfo
    from tests.invariants import RedisClient

_START_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 0.1
_PAGE: Final = 1_000
_SECRET: Final = {"PYASYNQ_SECRET": "s" * 32}


def make_instance(
    settings: Mapping[str, Any],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    program: str = "pyasynq",
) -> Fleet:
    """Return a fleet of one instance, not started yet.

    Args:
        settings: content of its file.
        folder: for the file and the log.
        environment: variables in addition to the secret.
        program: the module that is run.
    """
    file = folder / f"service-{settings['service']['listen'].rpartition(':')[2]}.json"
    file.write_text(json.dumps(settings), "utf-8")
    arguments = ["service", str(file), "--no-access-log"]
    return Fleet(1, arguments, {**_SECRET, **(environment or {})}, folder / "log", program=program)


def wait_until_ready(port: int) -> None:
    """Wait until an instance answers that it is ready."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/ready").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > deadline:
            raise SystemExit("the service does not start")
        time.sleep(0.05)


class PatientSession:
    """Sends requests until an instance has answered them.

    Args:
        session: sends the requests.
        addresses: of the instances, without end; each request goes to the next one.
    """

    def __init__(self, session: aiohttp.ClientSession, addresses: Iterator[str]) -> None:
        self._session = session
        self._addresses = addresses

    async def ask(self, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Send a request until it is answered; return the status and the content of the answer."""
        while True:
            address = next(self._addresses) + path
            with suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):
                async with self._session.post(address, json=body, headers=headers) as answer:
                    content = await answer.read()
                    if answer.status < 500:
                        return answer.status, json.loads(content or b"null")
            await asyncio.sleep(_AGAIN_SECONDS)


async def read_tasks(
    url: str, queues: Sequence[str], get_name: Callable[[TaskInfo], str] = lambda task: task.id
) -> dict[str, Ended]:
    """Return all tasks of these queues, by their names."""
    tasks = {}
    async with Inspector(url) as inspector:
        for queue in queues:
            for state in ("active", "pending", "scheduled", "retry", "archived", "completed"):
                cursor = ""
                while True:
                    page = await inspector.walk_tasks(queue, state, cursor=cursor, page_size=_PAGE)
                    tasks.update({get_name(one): Ended(str(one.state), one.retried) for one in page.tasks})
                    cursor = page.cursor
                    if not cursor:
                        break
    return tasks


def count_unfinished(client: RedisClient, queues: Iterable[str]) -> int:
    """Return how many tasks of these queues wait or run."""
    left = 0
    for queue in queues:
        prefix = f"asynq:{{{queue}}}:"
        left += sum(int(client.llen(prefix + name)) for name in ("pending", "active"))
        left += sum(int(client.zcard(prefix + name)) for name in ("scheduled", "retry"))
    return left


def find_marked(variable: str, mark: str) -> list[str]:
    """Return a sentence for each process that has this value of a variable."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(variable) == mark:
                found.append(f"process {process.pid} is left: {' '.join(process.cmdline())[:100]}")
    return found
