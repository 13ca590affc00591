"""Working directory (cwd) of an attempt at a command; a folder left untouched is reused."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

_MODE: Final = 0o700


class AttemptFolder:
    """Private folder of an attempt, the default directory of its command. Its constructor raises `OSError`.

    A folder that the command left untouched is renamed for the next attempt, because making one on a disk
    takes longer than starting a program.

    Args:
        path: where it is made.
        owner: ids of its user and group.
    """

    def __init__(self, path: Path, owner: tuple[int, ...]) -> None:
        self.path = path
        self._owner = owner
        path.mkdir(_MODE)
        made = path.stat()
        if (made.st_uid, made.st_gid) != owner:
            os.chown(path, *owner)
        self._state = self._read_state()

    def move(self, path: Path, owner: tuple[int, ...]) -> bool:
        """Rename an untouched folder for the next attempt; return whether that was possible.

        A folder of another owner is removed instead.
        """
        if owner != self._owner:
            remove_folder(self.path)
            return False
        try:
            self.path.rename(path)
        except OSError:
            # The command may have removed the folder.
            return False
        self.path = path
        self._state = self._read_state()
        return True

    def is_untouched(self) -> bool:
        """Return whether the command has changed nothing: neither files, nor mode, owner or attributes.

        The time of the last change (ctime) alone does not show this: its resolution may be milliseconds.
        """
        try:
            return self._state == self._read_state() and not os.listdir(self.path)  # noqa: PTH208 - as names
        except OSError:
            return False

    def _read_state(self) -> tuple[object, ...]:
        found = self.path.lstat()
        attributes = os.listxattr(self.path, follow_symlinks=False) if hasattr(os, "listxattr") else []
        return (
            (found.st_dev, found.st_ino, found.st_mode, found.st_uid, found.st_gid, found.st_nlink),
            (found.st_ctime_ns, found.st_mtime_ns),
            attributes,
        )


def remove_folder(folder: Path) -> None:
    """Remove a folder with its content, even folders without access rights; skip what cannot be removed."""
    with suppress(OSError):
        # Most commands leave it empty.
        folder.rmdir()
        return
    try:
        shutil.rmtree(folder)
    except PermissionError:
        _open_folders(folder)
        shutil.rmtree(folder, ignore_errors=True)
    except (OSError, RecursionError):
        return


def _open_folders(folder: Path) -> None:
    """Give this process access to all subfolders. No process of the command is left that could add links."""
    for parent, names, _ in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            with suppress(OSError):
                if not path.is_symlink():
                    path.chmod(_MODE)
