"""The data folder and its file locks, by which unrelated processes share a server.

Each process that uses the server holds a shared lock on the marker file. The guardian waits for the exclusive
lock on this file, which it gets when the last user is gone. The guardian also holds an exclusive lock on the
state file, and the server holds one on the log. The kernel frees the locks of a dead process, so nothing has
to be cleaned up after a kill.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyasynq._embedded.errors import DataFolderError

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKER_NAME = "pyasynq-embedded.json"
FORMAT = 1

_ABANDONED_AFTER = 3600.0


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The files of pyasynq in a data folder."""

    path: Path
    in_memory: bool = False

    @property
    def marker(self) -> Path:
        """The file that marks the folder as ours; each user of the server holds a shared lock on it."""
        return self.path / MARKER_NAME

    @property
    def state(self) -> Path:
        """The file with the server's address; its lock shows that a guardian is alive."""
        return self.path / "server.json"

    @property
    def log(self) -> Path:
        """The file with the server's output; its lock shows that a server is alive."""
        return self.path / "server.log"


def poll_pauses(seconds: float) -> Iterator[None]:
    """Pace a polling loop (back-off): yield at once, then after sleeps of 2 to 50 ms, for *seconds*."""
    deadline = time.monotonic() + seconds
    rest = 0.002
    yield
    while time.monotonic() < deadline:
        time.sleep(rest)
        rest = min(rest * 1.5, 0.05)
        yield


def try_lock(descriptor: int, kind: int) -> bool:
    """Take a lock (`LOCK_SH` or `LOCK_EX`) on an open file without waiting; return whether it was free."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path) -> bool:
    """Return whether a process holds the exclusive lock on a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def is_same_file(descriptor: int, path: Path) -> bool:
    """Return whether *path* still names the file that was opened."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def enter(folder: DataFolder, seconds: float) -> int:
    """Become a user of the folder: create or check the folder, and take the shared lock on its marker file.

    Return the file descriptor that holds the lock. Wait at most `seconds` for a server that is ending.
    """
    for _ in poll_pauses(seconds):
        try:
            descriptor = _open_marker(folder)
        except FileNotFoundError:
            continue  # removed between two steps, by the guardian of a server in memory
        except FileExistsError as error:
            message = f"{folder.path} is a file and cannot be a data folder. Name another folder."
            raise DataFolderError(folder.path, message) from error
        except OSError as error:
            message = f"The data folder {folder.path} cannot be used: {error}."
            raise DataFolderError(folder.path, message) from error
        try:
            if try_lock(descriptor, fcntl.LOCK_SH) and is_same_file(descriptor, folder.marker):
                _check_format(folder, descriptor)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    message = f"The last server of {folder.path} has not ended within {seconds:g} s; its log is {folder.log}."
    raise DataFolderError(folder.path, message)


def leave(folder: DataFolder, descriptor: int, seconds: float) -> bool:
    """Release the shared lock; the last user waits until the guardian and its server have ended.

    Return False if they have not ended within `seconds`.
    """
    # A lock (flock) belongs to the open file, which forked children share. Closing a descriptor keeps the
    # lock for them; unlocking would not. So a separate descriptor tests whether other users are left.
    try:
        probe = os.open(folder.marker, os.O_RDWR)
        state = os.open(folder.state, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        os.close(descriptor)
        return True
    os.close(descriptor)
    try:
        return any(try_lock(state, fcntl.LOCK_SH) or _others_are_left(probe) for _ in poll_pauses(seconds))
    finally:
        os.close(probe)
        os.close(state)


def _others_are_left(probe: int) -> bool:
    if try_lock(probe, fcntl.LOCK_EX):
        fcntl.flock(probe, fcntl.LOCK_UN)
        return False
    # Held by users or by a guardian that is ending its server; only users allow a shared lock.
    if try_lock(probe, fcntl.LOCK_SH):
        fcntl.flock(probe, fcntl.LOCK_UN)
        return True
    return False


def read_state(folder: DataFolder) -> dict[str, Any]:
    """Read the state that the guardian has written; empty while it is missing or incomplete."""
    try:
        state = json.loads(folder.state.read_text())
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def remove_abandoned(runtime: Path) -> None:
    """Remove the working folders of in-memory servers whose guardian was killed together with its server."""
    for path in (*runtime.glob("memory-*"), *runtime.glob("gone-*")):
        folder = DataFolder(path)
        with suppress(FileNotFoundError):
            is_old = time.time() - path.stat().st_mtime > _ABANDONED_AFTER
            if is_old and not is_locked(folder.state) and not is_locked(folder.log):
                socket = read_state(folder).get("socket")
                if isinstance(socket, str):
                    Path(socket).unlink(missing_ok=True)
                shutil.rmtree(path, ignore_errors=True)


def _open_marker(folder: DataFolder) -> int:
    folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return os.open(folder.marker, os.O_RDWR)
    except FileNotFoundError:
        _check_not_foreign(folder)
    return os.open(folder.marker, os.O_RDWR | os.O_CREAT, 0o600)


def _check_not_foreign(folder: DataFolder) -> None:
    names = sorted(os.listdir(folder.path))  # noqa: PTH208 -- names are wanted, not paths
    if names and MARKER_NAME not in names:
        shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        message = (
            f"{folder.path} is not empty and was not made by pyasynq: it holds {shown} and no {MARKER_NAME}. "
            f"Name a new or an empty folder, for example {folder.path / 'pyasynq'}."
        )
        raise DataFolderError(folder.path, message)


def _check_format(folder: DataFolder, descriptor: int) -> None:
    text = os.pread(descriptor, 4096, 0)
    if not text:  # just created; concurrent creators write the same
        os.pwrite(descriptor, json.dumps({"format": FORMAT}).encode(), 0)
        return
    try:
        version = json.loads(text)["format"]
    except (ValueError, KeyError, TypeError) as error:
        message = f"{folder.marker} was not written by pyasynq ({text[:60]!r}). Name another folder."
        raise DataFolderError(folder.path, message) from error
    if version != FORMAT:
        message = (
            f"{folder.path} has format {version!r}, and this pyasynq knows format {FORMAT} only: "
            "it was made by a newer one. Upgrade pyasynq, or name another folder."
        )
        raise DataFolderError(folder.path, message)
