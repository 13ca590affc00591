"""Address of an embedded server: its URL, the user's runtime folder, the name of its socket."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import secrets
import stat
import tempfile
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from pyasynq._embedded.errors import DataFolderError, EmbeddedServerError

SCHEME = "embedded://"
LONGEST_SOCKET_PATH = 103
"""Maximum bytes of a socket's path: macOS has room for 104 with the closing NUL, Linux for 108."""

_SOCKET_NAME_LENGTH = len("/0123456789abcdef.sock")


class EmbeddedURL(NamedTuple):
    """The parts of an `embedded://` URL."""

    path: Path | None
    """The data folder as written, or None for a server in memory."""
    port: int | None
    """The requested TCP port, or None."""


def parse_embedded_url(url: str) -> EmbeddedURL:
    """Parse `embedded://PATH[?port=N]`. The path is percent-encoded; without it, the server is in memory.

    The path may be relative or absolute, or begin with `~`.

    Raises:
        EmbeddedServerError: the URL is malformed.
    """
    if not url.startswith(SCHEME):
        raise _malformed_error(url, f"it does not begin with {SCHEME}")
    text, _, query = url.removeprefix(SCHEME).partition("?")
    if "#" in url:
        raise _malformed_error(url, "a # in a path is written %23")
    if re.search(r"%(?![0-9A-Fa-f]{2})", url):
        raise _malformed_error(url, "a % in a path is written %25")
    raw = unquote_to_bytes(text)
    if b"\0" in raw or "\0" in url:
        raise _malformed_error(url, "a path cannot contain a NUL byte")
    try:
        path = Path(os.fsdecode(raw)).expanduser() if raw else None
    except RuntimeError as error:
        raise _malformed_error(url, str(error)) from error
    return EmbeddedURL(path, _read_port(url, query))


def show_embedded_url(url: str) -> str:
    """Return the URL with the absolute path of its data folder, for people; other URLs as they are."""
    path = parse_embedded_url(url).path
    if path is None:
        return url
    _, mark, query = url.partition("?")
    return f"{SCHEME}{quote(os.fsencode(os.path.abspath(path)))}{mark}{query}"  # noqa: PTH100 - keeps symbolic links


def is_embedded_in_memory(url: str) -> bool:
    """Return whether a URL, of any scheme, names a server in memory, which no other process shares."""
    return url.startswith(SCHEME) and parse_embedded_url(url).path is None


def _read_port(url: str, query: str) -> int | None:
    port = None
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name != "port":
            raise _malformed_error(url, f"it has an unknown setting {name!r}; the only one is port")
        if not re.fullmatch(r"[0-9]{1,5}", value):
            raise _malformed_error(url, f"the port {value!r} is not a number from 0 to 65535")
        port = int(value)
    return port


def _malformed_error(url: str, reason: str) -> EmbeddedServerError:
    return EmbeddedServerError(
        f"{url!r} cannot be used: {reason}. Write embedded://./data for a folder in the current one, "
        "embedded:///var/lib/data for one anywhere, embedded:// for a server in memory."
    )


def unix_url(socket_path: str) -> str:
    """Make the URL of a server that listens on a unix socket."""
    return f"unix://{quote(os.fsencode(socket_path))}"


def runtime_folder() -> Path:
    """Return the folder of this user's sockets; create it, or check that no other user can enter it.

    Raises:
        DataFolderError: the existing folder is accessible to others.
    """
    name = f"pyasynq-{os.geteuid()}"
    folder = Path(tempfile.gettempdir()).absolute() / name
    if len(os.fsencode(folder)) + _SOCKET_NAME_LENGTH > LONGEST_SOCKET_PATH:
        folder = Path("/tmp") / name  # noqa: S108 -- checked below as any other
    check_private_folder(folder)
    return folder


def check_private_folder(folder: Path) -> None:
    """Create a folder of mode 0700, or check that the existing one is a real folder, ours and private.

    Raises:
        DataFolderError: it is not.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        message = f"The folder for the sockets of embedded servers cannot be made: {error}. Set TMPDIR."
        raise DataFolderError(folder, message) from error
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not is_ours or stat.S_IMODE(status.st_mode) & 0o077:
        message = (
            f"{folder} must be a folder that belongs to user {os.geteuid()} and that no other user can enter "
            f"(mode 0700), and it is not. Remove it, or set TMPDIR to a folder of your own."
        )
        raise DataFolderError(folder, message)


def socket_path(folder: Path) -> Path:
    """Return the path of the socket of a data folder's server; short even if the folder's path is long.

    A folder that was deleted and created again has another inode, and so another socket path. The server of
    the deleted folder may still have to remove its own socket.
    """
    identity = b"%s %d" % (os.fsencode(folder), folder.stat().st_ino)
    return runtime_folder() / f"{hashlib.sha256(identity).hexdigest()[:16]}.sock"


def new_memory_name() -> str:
    """Return a random name for the working folder of an in-memory server, inside the runtime folder."""
    return f"memory-{secrets.token_hex(8)}"


@functools.cache
def get_process_memory_name(pid: int) -> str:  # noqa: ARG001 -- the cache's key: a forked child gets another name
    """Return the name of the working folder of the in-memory server shared within a process."""
    return new_memory_name()
