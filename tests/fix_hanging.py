"""Workers with hanging code, for tests of their shutdown."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from tests.fix_worker import ROOT, Program

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import asyncio, atexit, concurrent.futures, ctypes, os, signal, sys, threading, time
from contextlib import asynccontextmanager
from pyasynq import App, ServerConfig

HANG = os.environ["HANG"]

executor = concurrent.futures.ThreadPoolExecutor()

def tell(what):
    os.write(1, f"{what} {os.getpid()}\\n".encode())

async def hang():
    tell("hangs")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if "swallow" not in HANG:
                raise

def block():
    tell("blocks")
    while True:
        time.sleep(3600)

async def generate():
    try:
        yield 1
    finally:
        await hang()

left_behind = []

@asynccontextmanager
async def lifespan(app):
    tell("entering")
    if HANG.startswith("start"):
        if HANG == "start-blocked":
            tell("hangs")
            while True:
                time.sleep(3600)
        if HANG == "start-to-thread":
            await asyncio.to_thread(block)
        await hang()
    if HANG == "thread":
        threading.Thread(target=time.sleep, args=(3600,), name="forgotten").start()
    if HANG == "idle-executor":
        executor.submit(int).result()
        atexit.register(tell, "last act")
    if HANG == "atexit":
        atexit.register(time.sleep, 3600)
    yield
    if HANG.startswith("end"):
        if HANG == "end-blocked":
            tell("hangs")
            while True:
                time.sleep(3600)
        await hang()

app = App(lifespan=lifespan)

@app.task("async")
async def run() -> None:
    tell("started")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            tell("cancelled")

@app.task("spin")
async def spin() -> None:
    tell("started")
    while True:
        pass

@app.task("leave")
async def leave() -> None:
    left_behind.append(asyncio.create_task(hang()))

@app.task("generator")
async def leave_generator() -> None:
    left_behind.append(generate())
    await anext(left_behind[0])
    tell("hangs")

@app.task("executor")
async def leave_to_executor() -> None:
    left_behind.append(asyncio.get_running_loop().run_in_executor(None, block))

@app.aggregator("slow:*", grace_period=1)
async def aggregate(group, tasks):
    await hang()

@app.aggregator("plain:*", grace_period=1)
def aggregate_plainly(group, tasks):
    block()

@app.task("spin-thread")
def spin_in_thread() -> None:
    tell("started")
    while True:
        pass

@app.task("thread")
def run_thread() -> None:
    tell("started")
    while True:
        time.sleep(3600)

@app.task("child", executor="process")
def run_child() -> None:
    tell("started")
    while True:
        time.sleep(3600)

@app.task("lock")
def run_lock() -> None:
    tell("started")
    ctypes.PyDLL(None).sleep(3600)  # which keeps the interpreter's lock

@app.task("steal")
async def steal() -> None:
    signal.signal(signal.SIGTERM, lambda *_: tell("stolen"))
    tell("started")

async def check(error):
    if HANG.startswith("check-blocked"):
        tell("hangs")
        while True:
            time.sleep(3600)
    if HANG.startswith("check"):
        await hang()
"""
MAIN = """
import logging, sys
from hanging import ServerConfig, app, check

logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
config = ServerConfig(shutdown_timeout=0.5, cancel_timeout=1, health_check=check, health_check_interval=0.1)
sys.exit(app.server(config).run_forever(app))
"""
LIMIT = 0.5 + 1.0 + 2.0
"""Seconds: shutdown_timeout, cancel_timeout, and two."""
BUSY = 5.0
"""Seconds that signal handling and the end of interpreters may take on a busy machine."""
WORKER = ("-m", "pyasynq.cli", "worker", "hanging:app", "--shutdown-timeout", "0.5")
ALONE = ("-m", "alone")


class Hanging(Program):
    """A worker process of the program above."""

    def __init__(
        self, folder: Path, url: str, hang: str, *command: str, prefix: tuple[str, ...] = ()
    ) -> None:
        (folder / "hanging.py").write_text(PROGRAM)
        (folder / "alone.py").write_text(MAIN)
        path = os.pathsep.join([str(ROOT / "src"), str(folder)])
        environment = {"HANG": hang, "PYTHONPATH": path, "PYASYNQ_REDIS_URL": url}
        super().__init__(*prefix, sys.executable, *command, **environment)

    def seconds_to_end(self, pid: int | None = None) -> float:
        """Send TERM, wait for the end, and return how long it took."""
        sent = time.monotonic()
        os.kill(pid or self.pid, signal.SIGTERM)
        self.end(within=LIMIT + 2 * BUSY)
        return time.monotonic() - sent
