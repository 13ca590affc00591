"""Forks: a child never touches the sockets of its parent. Programs of their own, since pytest has threads."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import redis

    from tests.factories import Tasks

pytestmark = pytest.mark.single_server("it counts the connections of the server")

ASYNC = """
import asyncio, os, sys
from pyasynq.client import Client

client = Client(sys.argv[1], client_name="forked")
loop = asyncio.new_event_loop()
enqueue = lambda name: client.enqueue("t", task_id=name)
loop.run_until_complete(enqueue("parent-1"))
child = os.fork()
if not child:
    async def in_child():
        await asyncio.gather(enqueue("child-1"), enqueue("child-2"))
        await client.close()
    asyncio.run(in_child())
    sys.exit(0)  # with everything that the interpreter does at its end
assert os.waitpid(child, 0)[1] == 0
loop.run_until_complete(enqueue("parent-2"))
print(client._driver.last_disconnect)
loop.run_until_complete(client.close())
loop.close()
"""

INSIDE_LOOP = """
import asyncio, os, sys
from pyasynq.client import Client

async def main():
    client = Client(sys.argv[1], client_name="forked")
    await client.enqueue("t", task_id="parent-1")
    child = os.fork()
    if not child:
        async def in_child():
            for name in ("child-1", "child-2"):
                await client.enqueue("t", task_id=name)
            await client.close()
        asyncio.run(in_child())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    await client.enqueue("t", task_id="parent-2")
    print(client._driver.last_disconnect)
    await client.close()

asyncio.run(main())
"""

BLOCKING = """
import os, sys
from pyasynq.sync import Client

client = Client(sys.argv[1], client_name="forked")
client.enqueue("t", task_id="parent-1")
child = os.fork()
if not child:
    client.enqueue("t", task_id="child-1")
    client.enqueue("t", task_id="child-2")
    client.close()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
client.enqueue("t", task_id="parent-2")
print(client._driver.last_disconnect)
client.close()
"""

# The event loop that a child inherits is the program's to bother about, or not; it consists of two sockets.
STRICT = ("-W", "error", "-W", "ignore:unclosed event loop", "-W", "ignore:unclosed <socket.socket")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "program", [ASYNC, INSIDE_LOOP, BLOCKING], ids=["asyncio", "inside a loop", "blocking"]
)
def test_a_forked_child_leaves_the_sockets_of_its_parent_alone(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks, program: str
) -> None:
    """Both go on, the parent over the connection that it had, without a warning from either."""
    connections = int(redis_client.info("stats")["total_connections_received"])
    command = [sys.executable, *STRICT, "-c", program, redis_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ("None\n", "") == (done.stdout, done.stderr)
    assert {"parent-1", "parent-2", "child-1", "child-2"} == set(tasks.ids("pending"))
    after = int(redis_client.info("stats")["total_connections_received"])
    assert 2 == after - connections  # one of the parent, one of the child
