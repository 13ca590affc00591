"""Answers to probes."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from pyasynq._engine.supervisor.health import Health, HealthSettings
from pyasynq._engine.supervisor.vitals import Vitals, answer
from pyasynq.errors import ConfigurationError
from pyasynq.events import Events, QueuesAsked, ServerStateChanged, SignOfLife

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_000.0


def worker(state: str, silent: float | None) -> Vitals:
    """Return a worker that was heard of this many seconds ago, with one queue that it can ask."""
    return Vitals(1, 42, state, None if silent is None else NOW - silent, reachable=1)


@pytest.mark.parametrize(
    ("workers", "live", "ready"),
    [
        ([], 200, 503),
        ([worker("starting", None)], 200, 503),
        ([worker("active", None)], 200, 503),
        ([worker("active", 10.0)], 200, 200),
        ([worker("active", 10.1)], 503, 503),
        ([worker("stopped", 1.0)], 200, 503),
        ([worker("closed", 1.0)], 200, 503),
        ([worker("active", 1.0), worker("starting", None)], 200, 200),
        ([worker("active", 1.0), worker("active", 11.0)], 503, 200),
    ],
)
def test_live_means_that_none_is_stuck_and_ready_that_one_takes_tasks(
    workers: list[Vitals], live: int, ready: int
) -> None:
    """A worker that starts is given its time."""
    assert live == answer("/live", workers, NOW).status
    assert ready == answer("/ready", workers, NOW).status


def test_the_body_names_each_worker() -> None:
    """With its process, state, and the age of its heartbeat."""
    told = json.loads(answer("/live", [worker("active", 11.04)], NOW).body)
    expected = {
        "worker": 1,
        "pid": 42,
        "state": "active",
        "seconds_since_heartbeat": 11.0,
        "unreachable_queues": [],
    }
    assert {"live": False, "workers": [expected]} == told


def test_a_worker_is_followed_by_its_events() -> None:
    """State and heartbeat."""
    events, vitals = Events(), Vitals(1, 42)
    vitals.watch(events)
    events.emit(ServerStateChanged("id", "active"))
    assert ("active", None) == (vitals.state, vitals.beat_at)
    events.emit(SignOfLife("id"))
    assert vitals.beat_at is not None
    assert not vitals.is_ready(vitals.beat_at)
    events.emit(QueuesAsked("id", 2, ("b",)))
    assert vitals.is_ready(vitals.beat_at)


def test_a_worker_is_ready_while_one_of_its_queues_can_be_asked() -> None:
    """Queues that cannot be read are named; that none can is not a reason to restart the worker. (D46)"""
    one = worker("active", 1.0)
    one.note_queues(2, ["b"])
    told = answer("/ready", [one], NOW)
    assert (200, ["b"]) == (told.status, json.loads(told.body)["workers"][0]["unreachable_queues"])

    one.note_queues(2, ["a", "b"])
    assert (503, 200) == (answer("/ready", [one], NOW).status, answer("/live", [one], NOW).status)


def ask(port: int, method: str, path: str) -> tuple[int, bytes]:
    """Make a request and return status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_http_requests_are_answered_at_the_port(tmp_path: Path) -> None:
    """An invalid request gets no answer, and delays no other."""
    beat = tmp_path / "alive"
    vitals = Vitals(1, 42)
    with Health(HealthSettings(0, "127.0.0.1", str(beat)), lambda: [vitals]) as health:
        port = health.port
        assert port
        with socket.create_connection(("127.0.0.1", port)) as silent:
            with socket.create_connection(("127.0.0.1", port)) as rude:
                rude.sendall(b"x" * 100_000)
                assert (200, True) == (ask(port, "GET", "/live?a=b")[0], beat.exists())
            silent.sendall(b"GET /live HTTP/1.0\r\n\r\n")
            assert silent.recv(1_000).startswith(b"HTTP/1.1 200 OK\r\n")
        assert 503 == ask(port, "GET", "/ready")[0]
        assert (200, b"") == ask(port, "HEAD", "/live")
        assert 404 == ask(port, "GET", "/")[0]
        assert 405 == ask(port, "POST", "/live")[0]
    assert not beat.exists()
    with pytest.raises(OSError, match="refused"):
        ask(port, "GET", "/live")


def test_a_port_that_is_taken_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    """A health file that cannot be written is an error too."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        remedy = "another program listens there; stop it, or choose another port"
        message = f"^health port: http://127.0.0.1:{port} cannot be opened: {remedy}$"
        with (
            pytest.raises(ConfigurationError, match=message),
            Health(HealthSettings(port, "127.0.0.1"), list),
        ):
            pass
    with (
        pytest.raises(ConfigurationError, match=r"the health file .*/none/alive cannot be written: "),
        Health(HealthSettings(path=str(tmp_path / "none" / "alive")), list),
    ):
        pass


def test_silent_connections_do_not_keep_probes_from_an_answer() -> None:
    """The oldest is turned away for the next one; one that says nothing is closed after a second. (D21)"""
    with Health(HealthSettings(0, "127.0.0.1"), lambda: [Vitals(1, 42)]) as health, ExitStack() as stack:
        port = health.port
        assert port
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5)) for _ in range(70)
        ]
        assert 200 == ask(port, "GET", "/live")[0]
        for connection in silent:
            with contextlib.suppress(ConnectionResetError):
                assert b"" == connection.recv(1)
