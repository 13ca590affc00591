"""Where an embedded server lives: its URL, the runtime folder of the user, the name of its socket."""

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
"""Bytes: macOS has room for 104 with the closing NUL, Linux for 108."""

_SOCKET_NAME_LENGTH = len("/0123456789abcdef.sock")


class EmbeddedURL(NamedTuple):
    """What an `embedded://` URL says."""

    path: Path | None
    """The data folder as written, or None for a server in memory."""
    port: int | None
    """The TCP port that was asked for, or None."""


def parse_embedded_url(url: str) -> EmbeddedURL:
    """Read `embedded://PATH[?port=N]`: a relative, absolute or `~` path, percent-encoded; none is memory.

    Raises:
        EmbeddedServerError: the URL is malformed.
    """
    if not url.startswith(SCHEME):
        raise _malformed(url, f"it does not begin with {SCHEME}")
    text, _, query = url.removeprefix(SCHEME).partition("?")
    if "#" in url:
        raise _malformed(url, "a # in a path is written %23")
    if re.search(r"%(?![0-9A-Fa-f]{2})", url):
        raise _malformed(url, "a % in a path is written %25")
    raw = unquote_to_bytes(text)
    if b"\0" in raw or "\0" in url:
        raise _malformed(url, "a path cannot contain a NUL byte")
    try:
        path = Path(os.fsdecode(raw)).expanduser() if raw else None
    except RuntimeError as error:
        raise _malformed(url, str(error)) from error
    return EmbeddedURL(path, _read_port(url, query))


def is_embedded_in_memory(url: str) -> bool:
    """Tell whether a URL, of any scheme, stands for a server in memory, which no other process shares."""
    return url.startswith(SCHEME) and parse_embedded_url(url).path is None


def _read_port(url: str, query: str) -> int | None:
    port = None
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name != "port":
            raise _malformed(url, f"it has an unknown setting {name!r}; the only one is port")
        if not re.fullmatch(r"[0-9]{1,5}", value):
            raise _malformed(url, f"the port {value!r} is not a number from 0 to 65535")
        port = int(value)
    return port


def _malformed(url: str, reason: str) -> EmbeddedServerError:
    return EmbeddedServerError(
        f"{url!r} cannot be used: {reason}. Write embedded://./data for a folder beside you, "
        "embedded:///var/lib/data for one anywhere, embedded:// for a server in memory."
    )


def unix_url(socket_path: str) -> str:
    """Make the URL of a server that listens on a unix socket."""
    return f"unix://{quote(os.fsencode(socket_path))}"


def runtime_folder() -> Path:
    """Make (once) and check the folder of this user's sockets, which nobody else can enter.

    Raises:
        DataFolderError: what stands there is not ours alone.
    """
    name = f"pyasynq-{os.geteuid()}"
    folder = Path(tempfile.gettempdir()).absolute() / name
    if len(os.fsencode(folder)) + _SOCKET_NAME_LENGTH > LONGEST_SOCKET_PATH:
        folder = Path("/tmp") / name  # noqa: S108 -- checked below as any other
    check_private_folder(folder)
    return folder


def check_private_folder(folder: Path) -> None:
    """Make a folder of mode 0700, or see that the one that stands there is a real folder, ours and closed.

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
            f"{folder} must be a folder that belongs to user {os.geteuid()} and that nobody else can enter "
            f"(mode 0700), and it is not. Remove it, or set TMPDIR to a folder of your own."
        )
        raise DataFolderError(folder, message)


def socket_path(folder: Path) -> Path:
    """Name the socket of the server of a data folder: short whatever the length of the folder's path.

    A folder that was deleted and made again has another inode and so another socket: the server of the
    deleted one may still be about to remove its own.
    """
    identity = b"%s %d" % (os.fsencode(folder), folder.stat().st_ino)
    return runtime_folder() / f"{hashlib.sha256(identity).hexdigest()[:16]}.sock"


def new_memory_name() -> str:
    """Name the working folder of a server in memory, inside the runtime folder."""
    return f"memory-{secrets.token_hex(8)}"


@functools.cache
def memory_name_of_process(pid: int) -> str:  # noqa: ARG001 -- the cache's key: a forked child gets another name
    """Name the working folder of the server in memory that all of a process shares."""
    return new_memory_name()
