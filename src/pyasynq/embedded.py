"""A real Valkey or Redis server for programs on one machine, with nothing else to install or start.

    with EmbeddedServer("./data") as server:
        ...  # server.url is a URL that redis-py and pyasynq accept

Processes that name the same folder share one server. It ends with the last process, even if that is killed.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pyasynq._checks import parse_positive_seconds
from pyasynq._embedded.address import (
    get_process_memory_name,
    new_memory_name,
    parse_embedded_url,
    runtime_folder,
)
from pyasynq._embedded.binary import ServerBinary, find_server_binary
from pyasynq._embedded.errors import DataFolderError, EmbeddedServerError, ServerBinaryError, ServerStartError

if TYPE_CHECKING:
    from types import TracebackType

    from pyasynq._embedded.folder import DataFolder
    from pyasynq._embedded.launch import RunningServer
    from pyasynq.options import Duration

__all__ = [
    "DataFolderError",
    "EmbeddedServer",
    "EmbeddedServerError",
    "ServerBinary",
    "ServerBinaryError",
    "ServerStartError",
    "find_server_binary",
    "open_embedded",
]

_STOP_SECONDS = 15.0
_LARGEST_PORT = 65535


class EmbeddedServer:
    """Handle of an embedded server, which processes share; a context manager, with `start` and `stop`.

    The server runs on Linux and macOS as the child of a small guardian process, in a session of its own, so
    Ctrl-C in a terminal does not reach it before its users have finished. It listens on a unix socket that
    only this user can reach. With *path*, it keeps its data there (append-only file, written to disk every
    second), and every process that names the same folder shares it. Without *path*, the data is in memory,
    and the server belongs to this object; other processes reach it by its `url` until this process stops it.
    An object uses the server until `stop` or the end of its process, for any reason. A forked child uses it
    too, until it calls `stop` or ends. Objects are not thread-safe; any number may be made for one folder.
    If the guardian itself is killed, Linux ends the server at once; on macOS, the next start on that folder
    ends it.

    Args:
        path: the data folder, made if it is missing; None for a server in memory.
        port: a TCP port on 127.0.0.1 to listen on as well, protected by a random password in `url`; 0 for any
            free one.
        binary: the server program, instead of the one that `find_server_binary` finds.
        start_timeout: how long `start` may take, including loading the data.

    Raises:
        InvalidOptionError: for an invalid timeout.
        EmbeddedServerError: for an invalid port or path.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        port: int | None = None,
        binary: str | os.PathLike[str] | None = None,
        start_timeout: Duration = 30.0,
    ) -> None:
        self._users: int | None = None
        if port is not None and not 0 <= port <= _LARGEST_PORT:
            message = (
                f"port={port!r} is not a TCP port; it is a number from 0 (any free one) to {_LARGEST_PORT}."
            )
            raise EmbeddedServerError(message)
        if path is not None and "\0" in os.fspath(path):
            message = f"path={path!r} contains a NUL byte."
            raise EmbeddedServerError(message)
        self._path = None if path is None else Path(path).resolve()
        self._memory_name = new_memory_name()
        self._port = port
        self._binary = binary
        self._start_timeout = parse_positive_seconds("start_timeout", start_timeout)
        self._running: RunningServer | None = None

    def start(self) -> Self:
        """Join the server of the folder, or start it.

        If this object was started before, check that the server answers, or restart it.

        Blocks, about a tenth of a second when it starts a server on an empty folder. An exception,
        including KeyboardInterrupt, releases the server again.

        Raises:
            ServerBinaryError: there is no server program, or it is too old.
            DataFolderError: the folder was not made by pyasynq, was made by a newer version of it, or
                cannot be used.
            ServerStartError: the server did not become ready; the error quotes its log.
            EmbeddedServerError: this is Windows, or the running server listens on another port.
        """
        refuse_windows(sys.platform)
        # Locks and signals of these modules do not exist on Windows, where this module must be importable.
        from pyasynq._embedded import folder as folders  # noqa: PLC0415
        from pyasynq._embedded.launch import StartOptions, join_or_start  # noqa: PLC0415

        folder = self._folder()
        if folder.in_memory:
            folders.remove_abandoned(folder.path.parent)
        try:
            if self._users is not None and not folders.is_same_file(self._users, folder.marker):
                self._release()
            if self._users is None:
                self._users = folders.enter(folder, self._start_timeout)
            self._running = join_or_start(folder, StartOptions(self._port, self._binary, self._start_timeout))
        except BaseException:
            self._release()
            raise
        return self

    def stop(self) -> None:
        """Stop using the server. The last user waits until the server has written its data and ended.

        Raises:
            EmbeddedServerError: it has not ended within 15 seconds.
        """
        if self._users is None:
            return
        from pyasynq._embedded import folder as folders  # noqa: PLC0415

        users, self._users, self._running = self._users, None, None
        folder = self._folder()
        if not folders.leave(folder, users, _STOP_SECONDS):
            raise EmbeddedServerError(
                f"The server of {folder.path} has not ended in {_STOP_SECONDS:g} s; see {folder.log}."
            )

    def __enter__(self) -> Self:
        """Call `start`."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Call `stop`."""
        self.stop()

    def __del__(self) -> None:
        """Release the server, and warn that `stop` was forgotten."""
        if getattr(self, "_users", None) is not None:
            warnings.warn(f"{self!r} was never stopped", ResourceWarning, source=self, stacklevel=2)
            self._release()

    def __repr__(self) -> str:
        """Show the folder and the process, never the password."""
        where = "in memory" if self._path is None else repr(os.fspath(self._path))
        state = "not started" if self._running is None else f"process {self._running.pid}"
        return f"<EmbeddedServer {where}, {state}>"

    @property
    def path(self) -> Path | None:
        """The absolute path of the data folder; None for a server in memory."""
        return self._path

    @property
    def url(self) -> str:
        """The server's URL: `unix://...`, or `redis://:PASSWORD@127.0.0.1:PORT` if a port was requested."""
        return self._require_started().url

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._require_started().pid

    @property
    def version(self) -> str:
        """The version of the server program, as in `9.1.2`."""
        return self._require_started().version

    @property
    def name(self) -> str:
        """The name of the server program: `Valkey` or `Redis`."""
        return self._require_started().name

    def _require_started(self) -> RunningServer:
        if self._running is None:
            message = f"{self!r} has no address yet: call start() or use it as a context manager."
            raise EmbeddedServerError(message)
        return self._running

    def _folder(self) -> DataFolder:
        from pyasynq._embedded.folder import DataFolder  # noqa: PLC0415

        if self._path is not None:
            return DataFolder(self._path)
        return DataFolder(runtime_folder() / self._memory_name, in_memory=True)

    def _release(self) -> None:
        users, self._users, self._running = self._users, None, None
        if users is not None:
            os.close(users)


def open_embedded(url: str) -> EmbeddedServer:
    """Start or join the server that an `embedded://` URL names; the caller must `stop` the result.

    `embedded://./data` and `embedded:///var/lib/data` name a folder. `embedded://` is a server in memory that
    all callers within this process share. `?port=6390` adds a TCP port. Raises what `EmbeddedServer.start`
    does, and `EmbeddedServerError` for a malformed URL.
    """
    parsed = parse_embedded_url(url)
    server = EmbeddedServer(parsed.path, port=parsed.port)
    if parsed.path is None:
        server._memory_name = get_process_memory_name(os.getpid())  # noqa: SLF001 -- the one other way to make one
    return server.start()


def refuse_windows(platform: str) -> None:
    """Raise on the platform where the server programs do not run.

    Raises:
        EmbeddedServerError: *platform* is Windows.
    """
    if platform == "win32":
        message = (
            "The embedded server runs on Linux and macOS, not on Windows. Run Valkey in WSL or Docker and "
            "give its address, for example redis://localhost:6379."
        )
        raise EmbeddedServerError(message)
