"""Load of the task service that Prometheus scrapes: requests to a host, commands, leases, refused acts."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import threading

SERVICE_FILE = """
[service]
listen = "127.0.0.1:{service}"

[doors.gearman]
listen = "127.0.0.1:{door}"

[hosts."127.0.0.1:{host}"]
addresses = ["127.0.0.1"]

[tasks.deliver]
kind = "http"
url = "http://127.0.0.1:{host}/{{number}}"
retry = ["1s"]
max_retry = 1

[tasks.dump]
kind = "cmd"
argv = ["/bin/sleep", "{{seconds}}"]
timeout = "2s"
max_retry = 0

[tasks.resize]
retry = ["1s"]

[tasks.legacy]
kind = "list"
"""
_THROTTLED_EVERY = 50
_FAILED_EVERY = 10
_SLOW_EVERY = 20
_LAPSED_EVERY = 5


class FlakyHost(BaseHTTPRequestHandler):
    """A host that answers by the number in the path: most requests succeed, some fail, few are throttled."""

    def do_POST(self) -> None:
        """Answer a request of a task."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        number = int(self.path.strip("/"))
        status = 500 if number % _FAILED_EVERY == 0 else 200
        self.send_response(429 if number % _THROTTLED_EVERY == 1 else status)
        self.send_header("Retry-After", "1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


def open_host(port: int) -> ThreadingHTTPServer:
    """Return a host that listens on a port; `serve_forever` answers."""
    return ThreadingHTTPServer(("127.0.0.1", port), FlakyHost)


def load_service(port: int, stopped: threading.Event) -> None:
    """Enqueue tasks of each kind, and be a worker of some, until it is told to stop."""
    number = 0
    while not stopped.wait(0.2):
        with contextlib.suppress(OSError):  # it is not there yet
            _enqueue(port, "deliver", {"number": number})
            _enqueue(port, "dump", {"seconds": 60 if number % _SLOW_EVERY == 0 else 0})
            _enqueue(port, "resize", {"number": number})
            _work(port, number)
            number += 1


def _work(port: int, number: int) -> None:
    """Lease a task, and settle it; every fifth is kept until its lease lapses."""
    leased = _ask(port, "/v1/leases", {"queues": ["resize"], "wait": 1, "lease": 1})
    for task in leased.get("tasks", []):
        if number % _LAPSED_EVERY:
            extended = _ask(port, f"/v1/attempts/{task['token']}:extend", {"lease": 60})
            _ask(port, f"/v1/attempts/{extended.get('token', task['token'])}:complete", {})
    _ask(port, "/v1/attempts/none:complete", {})


def _enqueue(port: int, name: str, params: dict[str, Any]) -> None:
    _ask(port, "/v1/tasks", {"type": name, "params": params})


def _ask(port: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request; nothing for one that is refused."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            answer = response.read()
    except urllib.error.HTTPError as error:
        error.close()
        return {}
    found: dict[str, Any] = json.loads(answer) if answer else {}
    return found
