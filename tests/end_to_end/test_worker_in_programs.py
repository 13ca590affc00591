"""Clients and servers inside other people's programs: forks, event loops in turn, threads that do not end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.fix_worker import Program, Worker, active, enqueue, task_field
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.invariants import RedisClient

COMMON = """
import asyncio, os, sys, threading
from pyasynq import App, Client, Server, ServerConfig, context, sync
from pyasynq.events import AttemptAbandoned

url, loop = sys.argv[1:]
if loop == "uvloop":
    import uvloop
factory = uvloop.new_event_loop if loop == "uvloop" else None


def run(coroutine):
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(coroutine)


def fork(work):
    # In the child: work, and end without the parent's clean-up.
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


def join(children):
    assert [0] * len(children) == [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
"""
FORKED_BLOCKING = """
client = sync.Client(url)
go_on = threading.Event()
made = []


def produce():
    while not go_on.is_set():
        made.append(client.enqueue("t").id)


producers = [threading.Thread(target=produce) for _ in range(4)]
[producer.start() for producer in producers]
while len(made) < 20:
    client.enqueue("t", queue="parent")
children = [fork(lambda: [client.enqueue("t", queue="children") for _ in range(5)]) for _ in range(10)]
join(children)
go_on.set()
[producer.join() for producer in producers]
client.close()
print("made", len(made))
"""
FORKED_ASYNC = """
client = Client(url)


async def send(queue, number):
    await asyncio.gather(*(client.enqueue("t", queue=queue) for _ in range(number)))


async def child():
    await send("children", 5)
    await client.close()


async def parent():
    # What is under way while the process forks is the parent's.
    under_way = asyncio.ensure_future(send("default", 20))
    await asyncio.sleep(0)
    children = [fork(lambda: run(child())) for _ in range(5)]
    await under_way
    join(children)
    await send("default", 20)

run(send("default", 20))
children = [fork(lambda: run(child())) for _ in range(5)]
run(parent())
join(children)
run(client.close())
"""
TWO_LOOPS = """
client = Client(url)
app = App(url)


@app.task("t")
async def declared() -> None: ...


async def one_loop(last):
    await client.enqueue("t")
    await declared.enqueue()
    await asyncio.gather(*(declared.enqueue() for _ in range(10)))
    if last:
        await client.close()
        await app.close()


for number in range(3):
    run(one_loop(number == 2))
"""
EMBEDDED = """
import dataclasses
from pyasynq._engine.settings import DEFAULT_ENGINE_SETTINGS

end = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), end.set()), daemon=True).start()


def handle(task):
    print("started", context().task_id)
    end.wait()
    print("ended")


async def main():
    server = Server(url, ServerConfig(shutdown_timeout=0.1, cancel_timeout=0.1))
    server._settings = dataclasses.replace(DEFAULT_ENGINE_SETTINGS, lease=2, heartbeat_interval=0.5)
    server.events.subscribe(AttemptAbandoned, lambda event: print("abandoned", event.task_id))
    code = asyncio.create_task(server.run(handle, signals=False))
    while server.state != "active" or not server._engine._roster:
        await asyncio.sleep(0.01)
    server.request_shutdown()
    print("code", await code)

run(main())
print("after the loop")
end.wait()
"""


def program(text: str, url: str, loop: str) -> Program:
    """Run a program to which every warning is an error."""
    # A fork while threads run is what is tested; Python 3.12 warns of it. A loop of uvloop warns of every
    # connection that is open when it is closed, and hangs if that is an error.
    warnings = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    if loop == "uvloop":
        warnings += ["-W", "ignore::ResourceWarning"]
    return Program(sys.executable, *warnings, "-c", COMMON + text, url, loop)


def lengths(client: RedisClient, *queues: str) -> list[int]:
    """Return how many tasks are pending in each queue."""
    return [client.llen(f"asynq:{{{queue}}}:pending") for queue in queues]


def test_a_blocking_client_works_in_forked_children_and_goes_on_in_the_parent(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The forks come while four threads of the parent are enqueueing."""
    with program(FORKED_BLOCKING, redis_url, "asyncio") as forking:
        assert 0 == forking.end(), forking.text
    [made] = forking.all(r"made (\d+)")
    assert [int(made), 50] == lengths(redis_client, "default", "children")


@pytest.mark.sample(1)
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_an_asyncio_client_works_in_forked_children_and_goes_on_in_the_parent(
    redis_url: str, redis_client: RedisClient, loop: str
) -> None:
    """Forks between two event loops, and in the middle of one."""
    with program(FORKED_ASYNC, redis_url, loop) as forking:
        assert 0 == forking.end(), forking.text
    assert [60, 50] == lengths(redis_client, "default", "children")
    assert "" == forking.text


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_client_and_an_app_serve_one_event_loop_after_the_other(
    redis_url: str, redis_client: RedisClient, loop: str
) -> None:
    """They connect again in each, and nothing is left to warn of."""
    with program(TWO_LOOPS, redis_url, loop) as looping:
        assert 0 == looping.end(), looping.text
    assert [36] == lengths(redis_client, "default")
    assert "" == looping.text


@pytest.mark.sample(1)
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_server_inside_another_program_does_not_end_it_and_keeps_the_leases_of_its_threads(
    redis_url: str, redis_client: RedisClient, loop: str
) -> None:
    """The task is not put back and not run a second time while its thread runs; an event names it.

    When the program ends, the lease lapses, and another worker recovers the task.
    """
    [task_id] = enqueue(redis_url, "wait")
    with program(EMBEDDED, redis_url, loop) as host:
        host.wait_for(f"abandoned {task_id}")
        host.wait_for("code 3")
        host.wait_for("after the loop")
        assert {task_id} == active(redis_client)
        lease = redis_client.zscore("asynq:{default}:lease", task_id)
        assert lease is not None
        wait_until(lambda: (redis_client.zscore("asynq:{default}:lease", task_id) or 0) >= lease + 2)
        host.say("end")
        assert 0 == host.end()
    assert {task_id} == active(redis_client)
    if loop == "asyncio":
        with Worker(redis_url, engine={"lease": 2, "own_slack": 1, "look_interval": 0.25}) as worker:
            worker.wait_for(f"started {task_id}")
            assert b"1" == task_field(redis_client, task_id, "x:crashes")
            worker.say("release")
            worker.wait_for(f"ended {task_id}")
            assert 0 == worker.terminate()
