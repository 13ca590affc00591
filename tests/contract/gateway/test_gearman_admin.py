"""The text protocol of the Gearman door: workers of all instances, and the jobs that there are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pyasynq._wire.keys import LEASE_WORKERS_KEY
from pyasynq.gateway.doors.gearman.connected_workers import ConnectedWorkers
from pyasynq.gateway.doors.gearman.packets import PacketType as P
from pyasynq.task import TaskState
from tests.fix_gearman import connected, opened
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fix_gearman import Peer
    from tests.invariants import RedisClient

pytestmark = pytest.mark.usefixtures("redis_client")

TYPES = {"resize": {"max_retry": 5}, "reverse": {}}


async def wait_for_answer(peer: Peer, line: bytes, fits: Callable[[bytes], object]) -> bytes:
    """Return the answer to a line as soon as it fits."""
    while not fits(answer := await peer.command(line)):  # noqa: ASYNC110 - what is looked at is in Redis
        await asyncio.sleep(0.05)
    return answer


@run_async
async def test_status_counts_the_workers_of_all_instances(redis_url: str, redis_client: RedisClient) -> None:
    """While they are connected, equal ones in one field of a hash that Redis forgets."""
    async with opened(redis_url, TYPES) as one, opened(redis_url, TYPES) as two, connected(one) as admin:
        await admin.command(b"version")
        async with (
            connected(one, "resize"),
            connected(two, "resize", "reverse") as other,
            connected(two, "reverse", "resize") as same,
        ):
            for peer in (other, same):
                await peer.ask(P.ECHO_REQ, b"")
            await wait_for_answer(admin, b"status", b"resize\t0\t0\t3\nreverse\t0\t0\t2\n.\n".__eq__)
            assert 2 == redis_client.hlen(LEASE_WORKERS_KEY)
            assert 0 < redis_client.ttl(LEASE_WORKERS_KEY) <= 600
            [waiting, _] = await one.operator.lease_workers()
            assert ("waiting", "Gearman", "127.0.0.1") == (waiting.state, waiting.language, waiting.host)
        await wait_for_answer(admin, b"status", b"resize\t0\t0\t0\nreverse\t0\t0\t0\n.\n".__eq__)


@run_async
async def test_workers_lists_those_of_all_instances(redis_url: str) -> None:
    """With their names, also while they work."""
    async with opened(redis_url, TYPES) as one, opened(redis_url, TYPES) as two, connected(one) as admin:
        async with connected(two, "resize") as worker:
            worker.send(P.SET_CLIENT_ID, b"far\x1b")
            await admin.submit("resize", b"1", kind=P.SUBMIT_JOB_BG)
            await worker.grab()
            listed = await wait_for_answer(admin, b"workers", lambda answer: b"far" in answer)
        [_, line, end] = listed.splitlines()
        assert line.startswith(b"2 127.0.0.1 far")
        assert line.endswith(b" : resize")
        assert b"." == end
        assert b"\x1b" not in listed


@run_async
async def test_reports_are_written_when_something_changes_or_grows_old(redis_url: str) -> None:
    """A worker that does nothing costs one write in 15 seconds; one that could not be written comes again."""
    now = [1_000.0]
    async with opened(redis_url, TYPES) as door, connected(door, "resize") as worker:
        await worker.ask(P.ECHO_REQ, b"")
        sessions = {*door.door.workers._sessions}
        table = ConnectedWorkers("here", sessions, door.operator, clock=lambda: now[0])
        [report] = table.take_changed()
        assert (1, ("resize",), {}) == (report.parked, report.queues, report.tasks)
        assert [] == table.take_changed()
        table.put_back([report])
        assert [report] == table.take_changed()
        now[0] += 16
        [again] = table.take_changed()
        assert 1_016.0 == again.seen
        sessions.clear()
        [gone] = table.take_changed()
        assert (0, report.id) == (gone.parked, gone.id)
        table.put_back([gone])
        assert [gone] == table.take_changed()
        assert [] == table.take_changed()


@run_async
async def test_jobs_and_their_uniques_are_shown(redis_url: str) -> None:
    """In gearmand's form: handle, crashes, an unused number, and whether the job waits."""
    async with (
        opened(redis_url, TYPES) as door,
        connected(door, "resize") as worker,
        connected(door) as admin,
    ):
        runs = await admin.submit("resize", b"1", b"u\x1b1", P.SUBMIT_JOB_BG)
        await worker.grab()
        waits = await admin.submit("resize", b"2", kind=P.SUBMIT_JOB_BG)
        answer, [later] = await admin.ask(P.SUBMIT_JOB_EPOCH, b"reverse", b"u-2", b"4102444800", b"1")
        assert P.JOB_CREATED is answer
        expected = [runs + b"\t0\t0\t0", waits + b"\t0\t0\t1", later + b"\t0\t0\t0", b"."]
        assert expected == (await admin.command(b"show jobs")).splitlines()
        uniques = (await admin.command(b"SHOW unique jobs")).splitlines()
        assert [b"", b"u-2", b"."] == uniques[1:]
        assert b"\x1b" not in uniques[0]
        assert b"ERR UNKNOWN_SHOW_ARGUMENTS\r\n" == await admin.command(b"show tasks")


@run_async
async def test_a_waiting_job_is_cancelled(redis_url: str) -> None:
    """Its client hears a failure; one that there is not is told as gearmand does."""
    async with opened(redis_url, TYPES) as door, connected(door) as client, connected(door) as admin:
        handle = await client.submit("resize", b"1")
        assert b"OK\r\n" == await admin.command(b"cancel job " + handle)
        assert [handle] == await client.expect(P.WORK_FAIL)
        assert b".\n" == await admin.command(b"show jobs")
        for unknown in (handle, b"H:x", b"H:x:y"):
            assert b"ERR UNKNOWN_JOB\r\n" == await admin.command(b"cancel job " + unknown)
        assert (await admin.command(b"cancel")).startswith(b"ERR unknown_command")


@run_async
async def test_a_running_job_is_cancelled(redis_url: str) -> None:
    """Its client hears a failure, and what its worker answers later changes nothing."""
    async with (
        opened(redis_url, TYPES) as door,
        connected(door, "resize") as worker,
        connected(door) as client,
        connected(door) as admin,
    ):
        handle = await client.submit("resize", b"1")
        job, _, _ = await worker.grab()
        assert b"OK\r\n" == await admin.command(b"cancel job " + handle)
        assert [handle] == await client.expect(P.WORK_FAIL)
        worker.send(P.WORK_COMPLETE, job, b"late")
        await worker.ask(P.ECHO_REQ, b"")
        await client.submit("resize", b"2")
        assert b"2" == (await worker.grab())[2]
        assert 0 == len(await door.operator.tasks("resize", TaskState.COMPLETED))
