"""Events and transactions that Sentry gets from workers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import sentry_sdk
from sentry_sdk.transport import Transport

from pyasynq import App, Retry, Snooze
from pyasynq.contrib.sentry import instrument
from tests.fix_engine import serving
from tests.fix_kit import make_app, sound_kit
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sentry_sdk.envelope import Envelope


class Kept(Transport):
    """A transport that keeps what it is to send."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        """Keep events and transactions."""
        self.events += [item.payload.json for item in envelope.items if item.type in {"event", "transaction"}]

    def kind(self, kind: str) -> list[Any]:
        """Return the events of a type, `event` or `transaction`."""
        return [one for one in self.events if one.get("type", "event") == kind]


@pytest.fixture
def sent() -> Iterator[Kept]:
    """Initialise the SDK without its own integrations, and forget it afterwards."""
    kept = Kept()
    with sentry_sdk.isolation_scope():
        sentry_sdk.init(
            "http://key@127.0.0.1:9/1",
            transport=kept,
            traces_sample_rate=1.0,
            default_integrations=False,
            auto_enabling_integrations=False,
        )
        yield kept
        sentry_sdk.get_client().close()
        sentry_sdk.get_global_scope().set_client(None)


def run(error: BaseException | None, *, plain: bool) -> None:
    """Run a task that raises this, once."""
    app = make_app()
    instrument(app)

    def act(secret: str) -> None:
        if error is not None:
            raise error

    async def act_async(secret: str) -> None:
        act(secret)

    task = app.task("email:deliver", queue="mail", max_retry=0)(act if plain else act_async)
    with sound_kit(app) as kit:
        task.options(task_id="a").enqueue_sync(secret="hunter2")
        kit.drain_sync(raises=False)


@pytest.mark.parametrize("plain", [False, True])
def test_an_error_is_an_event_of_its_own_group(sent: Kept, plain: bool) -> None:
    """With the frames of the handler, the task, and a fingerprint without numbers; without the payload."""
    run(ValueError("no user 4711"), plain=plain)

    [event] = sent.kind("event")
    [exception] = event["exception"]["values"]
    assert ("ValueError", "no user 4711") == (exception["type"], exception["value"])
    assert "act" == exception["stacktrace"]["frames"][-1]["function"]
    assert ["pyasynq", "email:deliver", "ValueError", "no user <n>"] == event["fingerprint"]
    assert {"pyasynq.queue": "mail", "pyasynq.type": "email:deliver"} == event["tags"]
    assert ("a", 0) == (event["contexts"]["pyasynq"]["task_id"], event["contexts"]["pyasynq"]["retried"])
    [transaction] = sent.kind("transaction")
    assert transaction["contexts"]["trace"]["trace_id"] == event["contexts"]["trace"]["trace_id"]
    assert "internal_error" == transaction["contexts"]["trace"]["status"]
    assert "args" not in str(event.get("request", ""))


@pytest.mark.parametrize("error", [None, Snooze(3_600), Retry(3_600)])
def test_what_a_handler_asks_for_is_not_an_error(sent: Kept, error: BaseException | None) -> None:
    """There is a transaction for the attempt, and no event."""
    run(error, plain=False)

    assert [] == sent.kind("event")
    [transaction] = sent.kind("transaction")
    trace = transaction["contexts"]["trace"]
    assert ("email:deliver", "queue.process", "ok") == (
        transaction["transaction"],
        trace["op"],
        trace["status"],
    )
    assert "mail" == trace["data"]["messaging.destination.name"]


@run_async
async def test_a_timeout_is_reported_by_the_worker(sent: Kept, redis_url: str) -> None:
    """The handler is only cancelled, and cannot raise it."""
    app = App(redis_url)
    instrument(app)

    @app.task("slow", max_retry=0, timeout=1)
    async def slow() -> None:
        await asyncio.sleep(3_600)

    async with serving(redis_url, app) as running:
        handle = await slow.enqueue()
        await running.finished(handle.id)
    await app.close()

    [event] = sent.kind("event")
    assert "TaskTimeoutError" == event["exception"]["values"][-1]["type"]
    assert "slow" == event["tags"]["pyasynq.type"]
    assert "cancelled" == sent.kind("transaction")[0]["contexts"]["trace"]["status"]
