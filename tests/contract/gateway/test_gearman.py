"""Gearman clients and workers at the door: jobs are tasks, and connections are heartbeats."""

from __future__ import annotations

import asyncio
import struct
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from pyasynq.client import Client
from pyasynq.gateway.doors.gearman.packets import PacketType as P
from pyasynq.task import Task, TaskInfo, TaskState
from tests.fix_gearman import connected, opened
from tests.fix_proxy import Proxy
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.fix_gearman import Door, Peer

pytestmark = pytest.mark.usefixtures("redis_client")


async def wait_for(door: Door, handle: bytes, state: TaskState) -> TaskInfo:
    """Return the task of a client's handle when it is in a state."""
    while True:
        task = await door.operator.task("resize", handle.split(b":", 2)[2].decode())
        if task.state is state:
            return task
        await asyncio.sleep(0.02)


async def wait_for_status(peer: Peer, handle: bytes, *status: bytes) -> None:
    """Wait until a job has a state: known, runs, and its progress."""
    while True:
        if [handle, *status] == (await peer.ask(P.GET_STATUS, handle))[1]:
            return
        await asyncio.sleep(0.02)


@run_async
async def test_a_foreground_job_brings_its_result(redis_url: str) -> None:
    """With what the worker tells on the way: data, warnings and its state."""
    async with opened(redis_url) as door, connected(door) as client, connected(door, "resize") as worker:
        handle = await client.submit("resize", b"a\x00b\xff")
        job, function, workload = await worker.grab()
        assert (b"resize", b"a\x00b\xff") == (function, workload)
        assert job != handle
        worker.send(P.WORK_DATA, job, b"half")
        worker.send(P.WORK_WARNING, job, b"hm")
        worker.send(P.WORK_STATUS, job, b"1", b"2")
        worker.send(P.WORK_COMPLETE, job, b"done\x00\xfe")
        assert [handle, b"half"] == await client.expect(P.WORK_DATA)
        assert [handle, b"hm"] == await client.expect(P.WORK_WARNING)
        assert [handle, b"1", b"2"] == await client.expect(P.WORK_STATUS)
        assert [handle, b"done", b"\xfe"] == await client.expect(P.WORK_COMPLETE)
        assert (P.STATUS_RES, [handle, b"0", b"0", b"0", b"0"]) == await client.ask(P.GET_STATUS, handle)


@run_async
async def test_a_failed_foreground_job_is_told_at_once(redis_url: str) -> None:
    """Without a retry; the text of an exception goes to clients that asked for it."""
    async with (
        opened(redis_url) as door,
        connected(door) as plain,
        connected(door) as curious,
        connected(door, "resize") as worker,
    ):
        assert (P.OPTION_RES, [b"exceptions"]) == await curious.ask(P.OPTION_REQ, b"exceptions")
        first = await plain.submit("resize", b"1")
        job, _, _ = await worker.grab()
        worker.send(P.WORK_EXCEPTION, job, b"no paper")
        worker.send(P.WORK_FAIL, job)
        assert [first] == await plain.expect(P.WORK_FAIL)
        second = await curious.submit("resize", b"2")
        job, _, _ = await worker.grab()
        worker.send(P.WORK_EXCEPTION, job, b"no ink")
        assert [second, b"no ink"] == await curious.expect(P.WORK_EXCEPTION)
        assert [second] == await curious.expect(P.WORK_FAIL)


@run_async
async def test_a_background_job_is_retried_as_its_type_says(redis_url: str) -> None:
    """The error is the worker's text."""
    async with opened(redis_url) as door, connected(door) as client, connected(door, "resize") as worker:
        handle = await client.submit("resize", b"1", kind=P.SUBMIT_JOB_BG)
        job, _, _ = await worker.grab()
        worker.send(P.WORK_EXCEPTION, job, b"no paper")
        task = await wait_for(door, handle, TaskState.RETRY)
        assert ("no paper", 1, 5) == (task.last_error, task.retried, task.max_retry)


@run_async
async def test_a_broken_connection_is_a_crash(redis_url: str) -> None:
    """The job runs elsewhere at once; a late end of the first attempt changes nothing."""
    async with opened(redis_url) as door, connected(door) as client:
        handle = await client.submit("resize", b"1")
        async with connected(door, "resize") as worker, connected(door, "resize") as other:
            await worker.grab()
            worker.close()
            job, _, _ = await other.grab()
            info = await wait_for(door, handle, TaskState.ACTIVE)
            assert 1 == info.crashes
            other.send(P.WORK_COMPLETE, job, b"x")
            assert [handle, b"x"] == await client.expect(P.WORK_COMPLETE)


@run_async
async def test_the_queue_of_a_running_job_stays_served(redis_url: str) -> None:
    """A worker that runs a long job is silent; without its queue the end of the job would be ignored."""
    async with opened(redis_url) as door, connected(door) as client, connected(door, "resize") as worker:
        handle = await client.submit("resize", b"1")
        job, _, _ = await worker.grab()
        served = door.door._parts.served
        served._idle_seconds = 0
        await served.drop_idle()
        assert ["resize"] == list(served.names)
        worker.send(P.WORK_COMPLETE, job, b"x")
        assert [handle, b"x"] == await client.expect(P.WORK_COMPLETE)
        await served.drop_idle()
        assert [] == list(served.names)


@pytest.mark.long
@run_async
async def test_a_worker_sleeps_while_redis_is_away(redis_url: str) -> None:
    """An error, which gearmand never sends, would end programs like `while ($worker->work());`."""
    with Proxy(redis_url) as proxy:
        async with opened(proxy.url) as door, connected(door, "resize") as worker:
            assert P.NO_JOB is (await worker.ask(P.GRAB_JOB))[0]
            proxy.refuse()
            proxy.cut_all()
            assert P.NO_JOB is (await worker.ask(P.GRAB_JOB))[0]
            worker.send(P.PRE_SLEEP)
            proxy.refuse(False)
            async with Client(redis_url) as client:
                await client.enqueue(Task("resize", b"1", queue="resize"))
            await worker.expect(P.NOOP)
            job, _, workload = await worker.grab()
            assert b"1" == workload
            worker.send(P.WORK_COMPLETE, job, b"")
            assert (P.ECHO_RES, [b"settled"]) == await worker.ask(P.ECHO_REQ, b"settled")


@run_async
async def test_the_handle_of_another_attempt_changes_nothing(redis_url: str) -> None:
    """Neither a made-up one, nor that of another connection, nor one that was settled."""
    async with (
        opened(redis_url) as door,
        connected(door) as client,
        connected(door, "resize") as worker,
        connected(door, "resize") as thief,
    ):
        handle = await client.submit("resize", b"1")
        job, _, _ = await worker.grab()
        for wrong in (job, handle, b"H:a:x", b""):
            thief.send(P.WORK_COMPLETE, wrong, b"stolen")
        assert (P.ECHO_RES, [b"all was read"]) == await thief.ask(P.ECHO_REQ, b"all was read")
        worker.send(P.WORK_COMPLETE, job, b"mine")
        worker.send(P.WORK_COMPLETE, job, b"again")
        assert [handle, b"mine"] == await client.expect(P.WORK_COMPLETE)
        task = await wait_for(door, handle, TaskState.COMPLETED)
        assert b"mine" == task.result


@run_async
async def test_a_job_that_is_not_grabbed_wakes_another_worker(redis_url: str) -> None:
    """After two seconds, without a crash and without a retry."""
    async with (
        opened(redis_url) as door,
        connected(door) as client,
        connected(door, "resize") as lazy,
        connected(door, "resize") as worker,
    ):
        lazy.send(P.PRE_SLEEP)
        assert (P.ECHO_RES, [b"1"]) == await lazy.ask(P.ECHO_REQ, b"1")
        handle = await client.submit("resize", b"1", kind=P.SUBMIT_JOB_BG)
        await lazy.expect(P.NOOP)
        assert (P.NO_JOB, [b""]) == await worker.ask(P.GRAB_JOB)
        _, _, workload = await worker.grab()
        task = await wait_for(door, handle, TaskState.ACTIVE)
        assert (b"1", 0, 0) == (workload, task.crashes, task.retried)


@run_async
async def test_only_one_sleeper_is_woken_for_a_job(redis_url: str) -> None:
    """Ten sleep, one job comes, one NOOP goes out."""
    async with opened(redis_url) as door, connected(door) as client, AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(connected(door, "resize")) for _ in range(10)]
        for peer in peers:
            peer.send(P.PRE_SLEEP)
            await peer.ask(P.ECHO_REQ, b"")
        await client.submit("resize", b"1", kind=P.SUBMIT_JOB_BG)
        calls = {asyncio.create_task(peer.receive()): peer for peer in peers}
        [woken], waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert (P.NOOP, b"") == woken.result()
        assert P.JOB_ASSIGN is (await calls[woken].ask(P.GRAB_JOB))[0]
        assert not any(one.done() for one in waiting)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@run_async
async def test_equal_uniques_are_one_job(redis_url: str) -> None:
    """Both clients hear its end; `-` makes the workload the unique id; the worker learns it."""
    async with (
        opened(redis_url) as door,
        connected(door) as one,
        connected(door) as two,
        connected(door, "resize") as worker,
    ):
        handles = [await peer.submit("resize", b"1", b"u-1") for peer in (one, two)]
        assert handles[0] == handles[1]
        same = [await one.submit("resize", b"w", b"-", P.SUBMIT_JOB_BG) for _ in range(2)]
        assert same[0] == same[1] != handles[0]
        answer, (job, _, unique, _) = await worker.ask(P.GRAB_JOB_UNIQ)
        assert (P.JOB_ASSIGN_UNIQ, b"u-1") == (answer, unique)
        worker.send(P.WORK_COMPLETE, job, b"x")
        for peer in (one, two):
            assert [handles[0], b"x"] == await peer.expect(P.WORK_COMPLETE)
        answer, arguments = await worker.ask(P.GRAB_JOB_ALL)
        assert (P.JOB_ASSIGN_ALL, [b"resize", b"-", b"", b"w"]) == (answer, arguments[1:])


@run_async
async def test_high_jobs_run_first_and_low_ones_as_normal_ones(redis_url: str) -> None:
    """The newest high job is the first; in the foreground and in the background."""
    kinds = {
        b"normal": P.SUBMIT_JOB_BG,
        b"low": P.SUBMIT_JOB_LOW_BG,
        b"high": P.SUBMIT_JOB_HIGH_BG,
        b"low, waits": P.SUBMIT_JOB_LOW,
        b"high, waits": P.SUBMIT_JOB_HIGH,
    }
    async with opened(redis_url) as door, connected(door) as client, connected(door, "resize") as worker:
        handles = {
            workload: await client.submit("resize", workload, kind=kind) for workload, kind in kinds.items()
        }
        taken = []
        for _ in kinds:
            job, _, workload = await worker.grab()
            taken.append(workload)
            worker.send(P.WORK_COMPLETE, job, b"done")
        assert [b"high, waits", b"high", b"normal", b"low", b"low, waits"] == taken
        for workload in (b"high, waits", b"low, waits"):
            assert [handles[workload], b"done"] == await client.expect(P.WORK_COMPLETE)


@run_async
async def test_a_high_job_joins_an_equal_one(redis_url: str) -> None:
    """Which keeps its place; both clients hear its end."""
    async with (
        opened(redis_url) as door,
        connected(door) as one,
        connected(door) as two,
        connected(door, "resize") as worker,
    ):
        await one.submit("resize", b"other", kind=P.SUBMIT_JOB_BG)
        first = await one.submit("resize", b"1", b"u")
        assert first == await two.submit("resize", b"1", b"u", P.SUBMIT_JOB_HIGH)
        high = await one.submit("resize", b"2", b"v", P.SUBMIT_JOB_HIGH_BG)
        assert high == await two.submit("resize", b"2", b"v", P.SUBMIT_JOB_BG)
        assert [b"2", b"other", b"1"] == [(await worker.grab())[2] for _ in range(3)]
        assert (P.STATUS_RES, [first, b"1", b"1", b"0", b"0"]) == await two.ask(P.GET_STATUS, first)


@pytest.mark.parametrize("is_stored", [False, True])
@run_async
async def test_an_ordered_type_refuses_high_jobs(redis_url: str, is_stored: bool) -> None:
    """With the reason, also if only Redis knows that it is ordered; other jobs are taken."""
    types = {"resize": {} if is_stored else {"ordered": True}}
    async with opened(redis_url, types) as door, connected(door) as client:
        if is_stored:
            await door.operator.set_queue_limits("resize", ordered=True)
        for kind in (P.SUBMIT_JOB_HIGH, P.SUBMIT_JOB_HIGH_BG):
            answer, [code, text] = await client.ask(kind, b"resize", b"", b"1")
            assert P.ERROR is answer
            assert b"ordered" in text
            assert code in {b"ordered", b"not_enqueued"}
        await client.submit("resize", b"1", kind=P.SUBMIT_JOB_LOW_BG)
        assert 1 == (await door.operator.queue("resize")).size


@run_async
async def test_a_waiting_job_goes_with_its_last_client(redis_url: str) -> None:
    """One that another client waits for, a background job, and one that runs stay."""
    async with (
        opened(redis_url) as door,
        connected(door, "resize") as worker,
        connected(door) as stays,
    ):
        async with connected(door) as goes:
            await goes.submit("resize", b"runs")
            job, _, _ = await worker.grab()
            shared = await goes.submit("resize", b"shared", b"u")
            assert shared == await stays.submit("resize", b"shared", b"u")
            await goes.submit("resize", b"background", kind=P.SUBMIT_JOB_BG)
            alone = await goes.submit("resize", b"alone")
        await wait_for_status(stays, alone, b"0", b"0", b"0", b"0")
        worker.send(P.WORK_COMPLETE, job, b"")
        left = {(await worker.grab())[2] for _ in range(2)}
        assert {b"shared", b"background"} == left


@run_async
async def test_the_state_of_a_job_is_told(redis_url: str) -> None:
    """While it waits and while it runs, with its progress, also by another connection."""
    async with (
        opened(redis_url) as door,
        connected(door) as client,
        connected(door) as other,
        connected(door, "resize") as worker,
    ):
        handle = await client.submit("resize", b"1", b"u")
        assert [handle, b"1", b"0", b"0", b"0"] == (await other.ask(P.GET_STATUS, handle))[1]
        job, _, _ = await worker.grab()
        worker.send(P.WORK_STATUS, job, b"3", b"4")
        assert [handle, b"3", b"4"] == await client.expect(P.WORK_STATUS)
        await wait_for_status(other, handle, b"1", b"1", b"3", b"4")
        answer, arguments = await client.ask(P.GET_STATUS_UNIQUE, b"u")
        assert (P.STATUS_RES_UNIQUE, [b"u", b"1", b"1"]) == (answer, arguments[:3])
        for unknown in (b"H:x", b"", b"\xff" * 70):
            assert b"0" == (await other.ask(P.GET_STATUS, unknown))[1][1]


@pytest.mark.parametrize(
    ("function", "workload", "code"),
    [
        ("rezise", b"", b"unknown_function"),
        ("hosted", b"", b"unknown_function"),
        ("checked", b"no json", b"not_enqueued"),
        ("checked", b"{}", b"not_enqueued"),
    ],
)
@run_async
async def test_a_job_that_cannot_be_is_refused(
    redis_url: str, function: str, workload: bytes, code: bytes
) -> None:
    """The connection lives on, and nothing is enqueued; the error does not repeat the workload."""
    async with opened(redis_url) as door, connected(door) as client:
        answer, arguments = await client.ask(P.SUBMIT_JOB_BG, function.encode(), b"", workload)
        assert (P.ERROR, code) == (answer, arguments[0])
        assert b"no json" not in arguments[1]
        assert (P.ECHO_RES, [b"x"]) == await client.ask(P.ECHO_REQ, b"x")
        assert [] == await door.operator.queues() or 0 == (await door.operator.queue("checked")).size


@run_async
async def test_a_job_for_later_waits_until_then(redis_url: str) -> None:
    """A time that cannot be is refused."""
    async with opened(redis_url) as door, connected(door) as client:
        answer, arguments = await client.ask(P.SUBMIT_JOB_EPOCH, b"resize", b"", b"4102444800", b"1")
        assert P.JOB_CREATED is answer, arguments
        task = await wait_for(door, arguments[0], TaskState.SCHEDULED)
        assert datetime(2100, 1, 1, tzinfo=UTC) == task.next_process_at
        for epoch in (b"soon", b"-1", b"9" * 30):
            answer, arguments = await client.ask(P.SUBMIT_JOB_EPOCH, b"resize", b"", epoch, b"1")
            assert (P.ERROR, b"invalid_epoch") == (answer, arguments[0])


@run_async
async def test_reducers_and_unknown_packets_are_refused(redis_url: str) -> None:
    """The connection lives on."""
    async with opened(redis_url) as door, connected(door) as peer:
        for kind in (P.SUBMIT_REDUCE_JOB, P.SUBMIT_JOB_SCHED, 99, 0, P.JOB_CREATED):
            answer, arguments = await peer.ask(kind, b"x")
            assert (P.ERROR, b"unknown_command") == (answer, arguments[0])


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">4sII", b"\x00RES", 7, 0),
        struct.pack(">4sII", b"\x00REQ", 7, 2**32 - 1),
        struct.pack(">4sII", b"\x00REQ", 7, 3) + b"abc",
        b"\x00" * 12,
        b"x" * 100_000 + b"\n",
    ],
)
@run_async
async def test_bytes_that_are_not_packets_end_its_connection_alone(redis_url: str, data: bytes) -> None:
    """The door lives on, and its memory stays as it was."""
    async with opened(redis_url) as door, connected(door) as other:
        async with connected(door) as peer:
            peer.writer.write(data)
            rest = await peer.reader.read()
        assert b"" == rest or b"invalid_packet" in rest
        assert (P.ECHO_RES, [b"x"]) == await other.ask(P.ECHO_REQ, b"x")


@run_async
async def test_a_worker_serves_what_it_offers(redis_url: str) -> None:
    """Functions come and go, also while it sleeps; a type that comes later is served then."""
    async with opened(redis_url) as door, connected(door) as client, connected(door, "late") as worker:
        worker.send(P.PRE_SLEEP)
        await worker.ask(P.ECHO_REQ, b"")
        worker.send(P.CAN_DO_TIMEOUT, b"resize", b"5")
        await client.submit("resize", b"1", kind=P.SUBMIT_JOB_BG)
        await worker.expect(P.NOOP)
        job = (await worker.ask(P.GRAB_JOB))[1][0]
        worker.send(P.WORK_COMPLETE, job, b"")
        worker.send(P.CANT_DO, b"resize")
        await client.submit("resize", b"2", kind=P.SUBMIT_JOB_BG)
        assert (P.NO_JOB, [b""]) == await worker.ask(P.GRAB_JOB)
        worker.send(P.CAN_DO, b"resize")
        assert P.JOB_ASSIGN is (await worker.ask(P.GRAB_JOB))[0]
        worker.send(P.RESET_ABILITIES)
        assert (P.NO_JOB, [b""]) == await worker.ask(P.GRAB_JOB)


@run_async
async def test_commands_of_the_text_protocol(redis_url: str) -> None:
    """As monitoring programs ask; names are shown, never sent to a terminal as they are."""
    async with (
        opened(redis_url) as door,
        connected(door) as client,
        connected(door, "resize", "a\x1bb") as worker,
    ):
        worker.send(P.SET_CLIENT_ID, b"w\x1b1")
        for number in range(3):
            await client.submit("resize", str(number).encode(), kind=P.SUBMIT_JOB_BG)
        await worker.grab()
        async with connected(door) as admin:
            ask = admin.command
            assert b"checked\t0\t0\t0\nresize\t3\t1\t1\n.\n" == await ask(b"status")
            listed = await ask(b"workers")
            assert b"resize" in listed
            assert b"\x1b" not in listed
            assert b"b'" not in listed
            assert (await ask(b"version")).startswith(b"OK ")
            assert (await ask(b"getpid")).startswith(b"OK ")
            assert b"OK\n" == await ask(b"maxqueue resize 3")
            assert 3 == (await door.operator.queue_limits("resize")).stored.max_run
            assert (await ask(b"maxqueue rezise 3")).startswith(b"ERR invalid_args")
            assert (await ask(b"shutdown")).startswith(b"ERR not_allowed")
            assert (await ask(b"drop function resize")).startswith(b"ERR unknown_command")


@run_async
async def test_max_run_holds_for_gearman_workers(redis_url: str) -> None:
    """Across connections; the next job comes when one has ended."""
    types = {"resize": {"max_run": 2}}
    async with opened(redis_url, types) as door, connected(door) as client:
        await door.operator.set_queue_limits("resize", max_run=2)
        for number in range(3):
            await client.submit("resize", str(number).encode(), kind=P.SUBMIT_JOB_BG)
        async with connected(door, "resize") as one, connected(door, "resize") as two:
            first, _, _ = await one.grab()
            await two.grab()
            assert (P.NO_JOB, [b""]) == await one.ask(P.GRAB_JOB)
            one.send(P.WORK_COMPLETE, first, b"")
            await one.grab()


@run_async
async def test_a_shutdown_puts_running_jobs_back_without_a_crash(redis_url: str) -> None:
    """And answers sleepers by the end of their connections."""
    async with opened(redis_url) as door, connected(door) as client, connected(door, "resize") as worker:
        handle = await client.submit("resize", b"1", kind=P.SUBMIT_JOB_BG)
        await worker.grab()
        await door.door.close(0.1)
        assert b"" == await worker.reader.read()
        task = await wait_for(door, handle, TaskState.PENDING)
        assert (0, 0) == (task.crashes, task.retried)


@run_async
async def test_other_networks_are_not_admitted(redis_url: str) -> None:
    """The protocol knows no passwords."""
    from ipaddress import ip_network  # noqa: PLC0415 - of this test alone

    async with (
        opened(redis_url, networks=(ip_network("10.0.0.0/8"),)) as door,
        connected(door) as peer,
    ):
        peer.send(P.ECHO_REQ, b"x")
        with suppress(ConnectionResetError):
            assert b"" == await peer.reader.read()
