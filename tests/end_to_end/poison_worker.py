"""A worker for `test_poison`: its leases are short, and some tasks kill it at once.

python poison_worker.py URL [group]
"""

import asyncio
import os
import signal
import sys
from dataclasses import replace

from pyasynq._engine.settings import DEFAULT_ENGINE_SETTINGS
from pyasynq.config import ServerConfig
from pyasynq.server import Server
from pyasynq.task import Task

POISON = b"poison"


async def handle(task: Task) -> None:
    """Die on poison, as after a crash in C code; otherwise work a little.

    As a group, also kill the process that has started the worker, as the kernel does with a container.
    """
    if task.payload == POISON:
        (os.killpg if sys.argv[2:] else os.kill)(
            os.getpgrp() if sys.argv[2:] else os.getpid(), signal.SIGKILL
        )
    await asyncio.sleep(0.01)


def main() -> int:
    """Serve until told to stop."""
    server = Server(sys.argv[1], ServerConfig(concurrency=50))
    # With leases of 30 seconds each crash would take 35 to show, and a silence is saved for in ten.
    server._settings = replace(
        DEFAULT_ENGINE_SETTINGS,
        lease=2,
        own_slack=1,
        heartbeat_interval=0.5,
        look_interval=0.5,
        silence_least=0.1,
    )
    return server.run_forever(handle)


if __name__ == "__main__":
    sys.exit(main())
