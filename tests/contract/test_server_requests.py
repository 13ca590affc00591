"""Requests of operators to servers: written down, read with the heartbeat, obeyed and acknowledged."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import App, ServerConfig
from pyasynq._broker.inspecting.servers import refresh_request, request_of_server
from pyasynq._broker.server_requests import ask_server, read_request
from pyasynq._broker.servers import write_server_state
from pyasynq._engine.logs import version_text
from pyasynq._wire.engine_text import (
    decode_answer,
    decode_engine,
    decode_engine_texts,
    decode_loop_blocked,
    encode_engine,
)
from pyasynq._wire.keys import SERVERS_KEY, server_request_key
from pyasynq.errors import InvalidOptionError, ServerNotFoundError
from pyasynq.events import HeartbeatWritten, RoundFailed, ServerAsked
from pyasynq.info import RequestStatus, ServerAction, ServerAnswer, ServerRequestResult
from pyasynq.inspector import Inspector
from pyasynq.limits import QueueLimits
from pyasynq.operations import Operator, User
from pyasynq.server import ServerState
from tests.contract.test_inspector import ask  # noqa: F401 - a fixture
from tests.contract.test_servers import server
from tests.factories import NOW
from tests.fix_broker import BlockingPerformer
from tests.fix_consumer import consuming
from tests.fix_engine import QUICK, Gate, Recorder, make_server, serving
from tests.run_async import run_async
from tests.waiting import set_to

if TYPE_CHECKING:
    from tests.contract.test_inspector import Ask
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

QUIET, STOP = ServerAction.QUIET, ServerAction.STOP


def test_a_request_holds_for_a_minute(perform: Perform, redis_client: RedisClient) -> None:
    """A later one replaces it."""
    assert perform(read_request("s")) is None
    first = perform(ask_server("s", QUIET, now=NOW))
    assert first == perform(read_request("s"))
    second = perform(ask_server("s", STOP, now=NOW.plus(1)))
    assert (STOP, second) == (second.action, perform(read_request("s")))
    assert first.number != second.number
    assert set_to(60) == redis_client.ttl(server_request_key("s"))
    assert perform(read_request("other")) is None


def test_a_request_that_is_sent_again_is_the_same(redis_client: RedisClient) -> None:
    """After a lost reply."""
    performer = BlockingPerformer(redis_client, replay=True)
    assert performer(ask_server("s", QUIET, now=NOW)) == performer(read_request("s"))


@pytest.mark.usefixtures("damage_allowed")
@pytest.mark.parametrize(
    "fields",
    [
        {"action": "burn", "number": "1"},
        {"action": "stop"},
        {"number": "1"},
        {"action": "stop", "number": "1" * 33},
        {"action": "stop", "number": b"\xff"},
    ],
)
def test_a_field_that_is_not_a_request_asks_for_nothing(
    perform: Perform, redis_client: RedisClient, fields: dict[Any, Any]
) -> None:
    """Any program may have written it."""
    redis_client.hset(server_request_key("s"), mapping=fields)
    assert perform(read_request("s")) is None


def test_an_answer_is_read_from_the_record() -> None:
    """Requests in addition to the limits; invalid ones are left out."""
    answer = ServerAnswer(QUIET, "1.000002", obeyed=False)
    for limits in ({}, {"default": QueueLimits(2)}):
        text = encode_engine("pyasynq", limits, answer=answer)
        assert (answer, ("pyasynq", limits)) == (decode_answer(text), decode_engine(text))
    for text in ("", "pyasynq", "pyasynq {", "pyasynq []", 'pyasynq {"answer":3}', 'pyasynq {"answer":{}}'):
        assert decode_answer(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pyasynq",
        "pyasynq {",
        "pyasynq []",
        'pyasynq {"blocked":"3"}',
        'pyasynq {"blocked":true}',
        'pyasynq {"blocked":0}',
        'pyasynq {"blocked":-1}',
        'pyasynq {"blocked":1e400}',
        'pyasynq {"blocked":1e300}',
    ],
)
def test_a_blocked_event_loop_is_read_from_the_record(text: str) -> None:
    """From one second on; a time that cannot be is none."""
    limits = {"default": QueueLimits(2)}
    told = encode_engine("pyasynq", limits, blocked=12.34)
    assert (timedelta(seconds=12.3), ("pyasynq", limits)) == (decode_loop_blocked(told), decode_engine(told))
    assert "pyasynq" == encode_engine("pyasynq", {}, blocked=0.9)
    assert decode_loop_blocked(text) is None


def test_versions_are_read_from_the_record() -> None:
    """Next to the limits; anything but text of at most 100 characters is left out."""
    texts = {"team": "", "version": "2026.11.2", "engine_version": "0.1.0"}
    text = encode_engine("pyasynq", {"default": QueueLimits(2)}, texts=texts)
    assert texts == decode_engine_texts(text)
    assert ("pyasynq", {"default": QueueLimits(2)}) == decode_engine(text)
    for wrong in ("7", "[]", f'"{"1" * 101}"'):
        assert {""} == set(decode_engine_texts(f'pyasynq {{"version":{wrong}}}').values())


def test_the_parts_of_a_record_are_read_in_any_order_between_those_of_others() -> None:
    """The parsed text of the last record is kept, and must not stand for another one."""
    texts = [encode_engine("pyasynq", {}, texts={"version": version}) for version in ("1", "2")]
    answered = encode_engine("pyasynq", {}, answer=ServerAnswer(QUIET, "1.000002", obeyed=True))
    assert ["1", "2", ""] == [decode_engine_texts(text)["version"] for text in (*texts, answered)]
    assert [None, True, None] == [
        answer and answer.obeyed for answer in map(decode_answer, (texts[0], answered, texts[1]))
    ]


def test_a_server_in_go_is_asked_for_nothing(ask: Ask, redis_client: RedisClient) -> None:  # noqa: F811
    """It would not read the request; the result says so."""
    BlockingPerformer(redis_client)(write_server_state(server(engine=""), [], now=NOW))
    for method, action in (("quiet_server", QUIET), ("stop_server", STOP)):
        assert ServerRequestResult("abc", action, RequestStatus.NOT_UNDERSTOOD) == ask(method, "abc", wait=60)
    assert [] == redis_client.keys("asynq:x:*")


def test_a_server_that_does_not_live_is_an_error(ask: Ask, redis_client: RedisClient) -> None:  # noqa: F811
    """One that never was, and one whose record has lapsed."""
    BlockingPerformer(redis_client)(write_server_state(server(), [], now=NOW.plus(-60)))
    for server_id in ("abc", "never"):
        with pytest.raises(ServerNotFoundError, match=f"'{server_id}'"):
            ask("quiet_server", server_id)
    with pytest.raises(InvalidOptionError, match=r"^server_id="):
        ask("stop_server", "")


def test_a_request_is_looked_at_again(perform: Perform, redis_client: RedisClient) -> None:
    """Open, acknowledged, refused, or over because the server has gone."""
    perform(write_server_state(server(engine="pyasynq"), [], now=NOW))
    result = perform(request_of_server("abc", QUIET, now=NOW))
    assert RequestStatus.REQUESTED is perform(refresh_request(result, now=NOW)).status
    for obeyed, status in ((True, RequestStatus.OBEYED), (False, RequestStatus.REFUSED)):
        engine = encode_engine("pyasynq", {}, answer=ServerAnswer(QUIET, result.number, obeyed))
        perform(write_server_state(server(engine=engine), [], now=NOW))
        assert status is perform(refresh_request(result, now=NOW)).status
    redis_client.delete(SERVERS_KEY)
    assert RequestStatus.ENDED is perform(refresh_request(result, now=NOW)).status


@run_async
async def test_a_server_that_is_asked_to_be_quiet_takes_no_more_tasks(redis_url: str) -> None:
    """It acknowledges the request in its record, once, and what runs goes on."""
    gate = Gate()
    async with serving(redis_url, gate) as running, Inspector(redis_url) as inspector:
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        await running.recorder.wait(HeartbeatWritten)
        assert running.server.id is not None

        result = await inspector.quiet_server(running.server.id, wait=60)

        assert (RequestStatus.OBEYED, ServerState.STOPPED) == (result.status, running.server.state)
        [info] = await inspector.servers()
        assert info.answer is not None
        assert ("stopped", QUIET, True) == (info.status, info.answer.action, info.answer.obeyed)
        assert ["a"] == [worker.task_id for worker in info.active_workers]
        await running.next_round("heartbeater")
        assert [ServerAsked(running.server.id, "quiet", True)] == running.recorder.of(ServerAsked)
        gate.open.set()
        await running.finished("a")
        assert [] == running.recorder.of(RoundFailed)


@run_async
async def test_a_server_that_is_asked_to_stop_ends_its_run(redis_url: str) -> None:
    """The request works like SIGTERM: running tasks may finish first."""
    made = make_server(redis_url)
    recorder = Recorder(made.events)
    run = asyncio.ensure_future(made.run(Gate(), signals=False))
    async with Inspector(redis_url) as inspector:
        await recorder.wait(HeartbeatWritten)
        assert made.id is not None
        result = await inspector.stop_server(made.id, wait=60)

    assert (RequestStatus.ENDED, 0) == (result.status, await run)
    assert ["stop"] == [event.action for event in recorder.of(ServerAsked)]


@run_async
async def test_all_servers_of_a_version_are_stopped(redis_url: str) -> None:
    """An app's version is in the records of its servers; those of another version work on."""
    old, new = App(redis_url, version="1"), App(redis_url, version="2")
    for app in (old, new):
        app.task("t")(_do_nothing)
    servers = [(app, app.server(ServerConfig())) for app in (old, old, new)]
    async with AsyncExitStack() as stack:
        operator = await stack.enter_async_context(Operator(redis_url, User.with_role("mira", "admin")))
        for app, one in servers:
            one._settings = QUICK
            recorder = Recorder(one.events)
            await one.start(app)
            stack.push_async_callback(one.shutdown)
            await recorder.wait(HeartbeatWritten)
        infos = await operator.servers()
        assert ["1", "1", "2"] == sorted(info.version for info in infos)
        assert {version_text()} == {info.engine_version for info in infos}

        with pytest.raises(InvalidOptionError, match=r"^confirm=3: must be the number of servers; 2 live"):
            await operator.stop_servers(version="1", confirm=3)
        results = await operator.stop_servers(version="1", confirm=2, wait=60)

        assert {servers[0][1].id, servers[1][1].id} == {result.server_id for result in results}
        assert {RequestStatus.ENDED} == {result.status for result in results}
        assert ["2"] == [info.version for info in await operator.servers()]
        [quiet] = await operator.quiet_servers(engine_version=version_text(), wait=60)
        assert (servers[2][1].id, RequestStatus.OBEYED) == (quiet.server_id, quiet.status)
        [_, entry] = (await operator.audit()).entries[:2]
        assert ("stop_servers", "1") == (entry.verb, entry.details["version"])


def _do_nothing() -> None:
    """Return."""


@run_async
async def test_a_server_inside_a_program_closes_when_it_is_asked_to_stop(redis_url: str) -> None:
    """The program goes on."""
    async with serving(redis_url, Gate()) as running, Inspector(redis_url) as inspector:
        assert running.server.id is not None
        await running.next_round("heartbeater")
        result = await inspector.stop_server(running.server.id, wait=60)
        assert RequestStatus.ENDED is result.status
        await running.server.shutdown()
        assert ServerState.CLOSED is running.server.state


@run_async
async def test_a_consumer_acknowledges_and_does_not_obey(redis_url: str) -> None:
    """Its program decides when it stops."""
    async with consuming(redis_url) as running, Inspector(redis_url) as inspector:
        await running.next_round("heartbeater")
        assert running.consumer.id is not None
        for method in (inspector.quiet_server, inspector.stop_server):
            assert RequestStatus.REFUSED is (await method(running.consumer.id, wait=60)).status
        assert 1 == len(await inspector.servers())
