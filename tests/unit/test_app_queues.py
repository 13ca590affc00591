"""The queues that workers of an app serve, with the limits that the app declares."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from pyasynq import App, ConfigurationError, InvalidOptionError, Queue, Server, ServerConfig, WorkerConfig

URL = "redis://localhost:1"


@pytest.mark.parametrize("kind", [ServerConfig, WorkerConfig])
def test_a_configuration_without_queues_gets_those_of_the_app(kind: type[ServerConfig]) -> None:
    """Its other settings stay as they are."""
    app = App(URL, queues={"mail": Queue(rate=5)})
    app.task("x", max_run=1)(lambda: None)
    config = app.server(kind(burst=True)).config
    assert {"default": 1, "mail": Queue(rate=5), "x": Queue(max_run=1)} == config.queues
    assert (kind, True) == (type(config), config.burst)


@pytest.mark.parametrize("kind", [ServerConfig, WorkerConfig])
def test_queues_of_a_configuration_keep_the_limits_that_the_app_declares(kind: type[ServerConfig]) -> None:
    """A `Queue` overrides the limits that it has itself; a rate does so with its period and burst."""
    app = App(URL, queues={"mail": Queue(max_run=2), "sms": Queue(rate=5, period=60, burst=3, max_run=7)})
    given: dict[str, int | Queue] = {
        "mail": 5,
        "sms": Queue(priority=3, rate=1),
        "other": Queue(ordered=True),
        "default": 2,
    }
    assert {
        "mail": Queue(priority=5, max_run=2),
        "sms": Queue(priority=3, rate=1, max_run=7),
        "other": Queue(ordered=True),
        "default": 2,
    } == app.server(kind(queues=given)).config.queues
    assert {"default": 1} == app.server(ServerConfig(queues={"default": 1})).config.queues


def test_a_queue_that_cannot_have_a_declared_limit_is_refused_by_its_name() -> None:
    """The limits of two places may exclude each other."""
    app = App(URL, queues={"ledger": Queue(ordered=True)})
    with pytest.raises(ConfigurationError, match=r"queue 'ledger'.*: max_run=3: an ordered queue runs one"):
        app.server(ServerConfig(queues={"ledger": Queue(max_run=3)}))


def test_a_server_without_an_app_serves_the_default_queue() -> None:
    """An app alone knows others."""
    assert {"default": 1} == ServerConfig().queues == replace(ServerConfig(), burst=True).queues


@pytest.mark.parametrize("config", [5, WorkerConfig, {"burst": True}])
def test_something_else_than_a_configuration_is_refused(config: Any) -> None:
    """The error names what is taken."""
    remedy = "must be a WorkerConfig or a ServerConfig"
    for run in (App(URL).server, App(URL).run_worker, partial(Server, URL)):
        with pytest.raises(InvalidOptionError, match=f"^config=<.*>: {remedy}$"):
            run(config)


@pytest.mark.parametrize(
    ("queues", "unserved"), [({"default": 1}, "critical, low"), ({"low": 1, "critical": 2}, "")]
)
def test_a_worker_in_a_program_warns_of_queues_of_the_app_that_it_does_not_serve(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, queues: dict[str, int], unserved: str
) -> None:
    """Their tasks would wait for ever; `pyasynq worker` says so too."""
    monkeypatch.setattr("pyasynq.server.Server.run_forever", lambda *_, **__: 0)
    app = App(URL)
    app.task("a", queue="critical")(lambda: None)
    app.task("b", queue="low")(lambda: None)
    assert 0 == app.run_worker(ServerConfig(queues=queues))
    told = f"tasks of this app go to queues that this worker does not serve: {unserved}; add them to queues"
    assert ([told] if unserved else []) == caplog.messages
