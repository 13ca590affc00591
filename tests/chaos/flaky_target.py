"""Host that answers each request as its path says, and records who called when."""

from __future__ import annotations

import asyncio
import itertools
import math
import socket
import struct
import threading
import time
from collections import defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING, Final, Self

import aiohttp

from tests.chaos.hosted_judge import Call

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WAIT: Final = 2
"""Seconds that a throttling answer asks for."""
_EMPTY: Final = "Content-Length: 0\r\n\r\n"
_DRIP_SECONDS: Final = 0.05
_CALLBACK_SECONDS: Final = 0.05
_LONGEST_HEAD: Final = 65_536


class FlakyTarget:
    """Listens on two ports of this machine, in a thread, for the time of a `with` block.

    The path of a request lists answers, as in `/500,reset,200`: the first call of a task gets the first one,
    and so on; the last one is repeated.

    Args:
        services: ports of the instances of the task service, where a task that was handed over is settled.
    """

    def __init__(self, services: Sequence[int]) -> None:
        self.calls: defaultdict[str, list[Call]] = defaultdict(list)
        """Calls of each task, in order. Written by the thread, and read when the block has ended."""
        self.ports: list[int] = []
        self._services = itertools.cycle(services)
        self._session: aiohttp.ClientSession | None = None
        self._settling: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flaky target", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._main is not None
        self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._main = asyncio.get_running_loop(), asyncio.current_task()
        async with aiohttp.ClientSession() as self._session:
            servers = [
                await asyncio.start_server(self._talk, "127.0.0.1", 0, limit=_LONGEST_HEAD, backlog=1_000)
                for _ in range(2)
            ]
            self.ports = [one.sockets[0].getsockname()[1] for one in servers]
            self._ready.set()
            await asyncio.Event().wait()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        try:
            while True:
                line, headers = _read_head(await reader.readuntil(b"\r\n\r\n"))
                await reader.readexactly(int(headers.get("content-length", 0)))
                if not await self._answer(reader, writer, line.split(" ")[1][1:].split(","), headers):
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            writer.close()

    async def _answer(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answers: Sequence[str],
        headers: Mapping[str, str],
    ) -> bool:
        """Answer one request; return whether the connection goes on."""
        calls = self.calls[headers["x-pyasynq-task-id"]]
        word = answers[min(len(calls), len(answers) - 1)]
        now = time.time()
        wait = 0.0
        if word in {"429s", "503s", "snooze"}:
            wait = _WAIT
        elif word == "429d":
            wait = math.ceil(now) + _WAIT - now
        calls.append(Call(now, headers["x-instance"], int(headers["x-pyasynq-attempt"]), word, wait))
        match word:
            case "429s" | "503s":
                text = f"HTTP/1.1 {word[:3]} \r\nRetry-After: {_WAIT}\r\n"
            case "429d":
                at = format_datetime(datetime.fromtimestamp(round(now + wait), UTC), usegmt=True)
                text = f"HTTP/1.1 429 \r\nRetry-After: {at}\r\n"
            case "snooze":
                text = f"HTTP/1.1 200 \r\nPyasynq-Outcome: snooze={_WAIT}\r\n"
            case "archive" | "cancel":
                text = f"HTTP/1.1 200 \r\nPyasynq-Outcome: {word}\r\n"
            case "lease":
                text = "HTTP/1.1 202 \r\nPyasynq-Callback: lease\r\n"
                self._settle_later(headers["x-pyasynq-token"])
            case "302":
                text = "HTTP/1.1 302 \r\nLocation: /200\r\n"
            case _ if word.isdigit():
                text = f"HTTP/1.1 {word} \r\n"
            case _:
                await _misbehave(reader, writer, word)
                return False
        writer.write((text + _EMPTY).encode())
        await writer.drain()
        return True

    def _settle_later(self, token: str) -> None:
        task = asyncio.get_running_loop().create_task(self._settle(token))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle(self, token: str) -> None:
        """Complete a task that was handed over; ask one instance after the other until one answers."""
        assert self._session is not None
        while True:
            await asyncio.sleep(_CALLBACK_SECONDS)
            address = f"http://127.0.0.1:{next(self._services)}/v1/attempts/{token}:complete"
            with suppress(aiohttp.ClientError, TimeoutError):
                async with self._session.post(address, json={}) as answer:
                    if answer.status < 500:
                        return


async def _misbehave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, word: str) -> None:
    """Answer what no client can take for an answer, or nothing."""
    match word:
        case "reset":
            one = writer.get_extra_info("socket")
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        case "cut":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        case "garbage":
            writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        case "drip":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(_DRIP_SECONDS)
        case "silent":
            await reader.read()


def _read_head(head: bytes) -> tuple[str, dict[str, str]]:
    """Return the first line and the headers of a request, by names in lower case."""
    line, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = (one.partition(":") for one in rest)
    return line, {name.lower(): value.strip() for name, _, value in pairs}
