"""Empty Redis database for each test, on an embedded server of this process or on a given server."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.plan import CommandCall, Plan, Replay, ask
from pyasynq._redis.url import parse_redis_url
from pyasynq.embedded import EmbeddedServer
from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq._redis.plan import Argument, Reply

_MARK: Final = "pyasynq:testing"
"""Key that marks a database whose contents belong to tests."""
_DATABASES: Final = 16
"""Default number of databases of a server."""


class _SharedServer:
    """The embedded server of this process, started by the first test that needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: EmbeddedServer | None = None
        self._pid = 0
        self._taken: set[int] = set()

    def take(self) -> str:
        """Reserve a database until `give_back`, and return its URL. The first call starts the server."""
        with self._lock:
            if self._server is None or self._pid != os.getpid():
                self._server, self._pid = EmbeddedServer().start(), os.getpid()
                self._taken.clear()
                atexit.register(self.stop)
            free = sorted(set(range(_DATABASES)) - self._taken)
            if not free:
                raise ConfigurationError(
                    f"{_DATABASES} test kits are in use at the same time; there are no more"
                )
            self._taken.add(free[0])
            return with_database(self._server.url, free[0])

    def give_back(self, url: str) -> None:
        """Free a database that `take` has reserved."""
        with self._lock:
            self._taken.discard(parse_redis_url(url).database)

    def stop(self) -> None:
        """Stop the server, if this process started it."""
        with self._lock:
            server, self._server = self._server, None
            atexit.unregister(self.stop)
            if server is not None and self._pid == os.getpid():
                server.stop()


_shared = _SharedServer()


def stop_server() -> None:
    """Stop the embedded server of this process before the process ends; the next kit starts another."""
    _shared.stop()


@contextmanager
def database(url: str | None) -> Iterator[str]:
    """Provide the URL of an empty database within a `with` block, and flush the database at the block's end.

    Raises:
        EmbeddedServerError: when no server can be started.
        ConfigurationError: when the database of `url` holds data that no test has written.
        RedisError: when the server of `url` cannot be reached.
    """
    if url is not None:
        if (target := parse_redis_url(url)).is_cluster:
            raise ConfigurationError(
                f"Redis at {target.address} is a cluster, which has one database for all: a test kit needs a "
                "single server, or leave the url out"
            )
        with _open_emptied(_name_worker_database(url)) as named:
            yield named
        return
    free = _shared.take()
    try:
        with _open_emptied(free) as named:
            yield named
    finally:
        _shared.give_back(free)


@contextmanager
def _open_emptied(url: str) -> Iterator[str]:
    driver = BlockingDriver(parse_redis_url(url), client_name="pyasynq-testing")
    try:
        if driver.run(_command("DBSIZE")) and not driver.run(_command("EXISTS", _MARK)):
            number = parse_redis_url(url).database
            raise ConfigurationError(
                f"database {number} of Redis at {driver.target.address} holds keys that are not a test's, "
                "and a test kit would delete them: name an empty database"
            )
        driver.run(_command("FLUSHDB"))
        driver.run(_command("SET", _MARK, "what is in this database may be deleted"))
        yield url
        driver.run(_command("FLUSHDB"))
    finally:
        driver.close()


def _command(*command: Argument) -> Plan[Reply]:
    return ask(CommandCall(command, None, Replay.SAFE))


def _name_worker_database(url: str) -> str:
    """Return the URL with a database for this pytest-xdist process: the given database plus its number."""
    if parse_redis_url(url).embedded is not None:
        raise ConfigurationError(f"{url}: a test kit starts its own embedded server; leave the url out")
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    if not worker.isdecimal() or worker == "0":
        return url
    return with_database(url, parse_redis_url(url).database + int(worker))


def with_database(url: str, number: int) -> str:
    """Return the URL with this database number."""
    if parse_redis_url(url).path is not None:
        return f"{url.partition('?')[0]}?{_parameters(url, f'db={number}')}"
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"/{number}", query=_parameters(url)))


def _parameters(url: str, *more: str) -> str:
    others = [part for part in urlsplit(url).query.split("&") if part and not part.startswith("db=")]
    return "&".join([*others, *more])
