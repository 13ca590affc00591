"""Fresh folders of commands: which of them the next command may have."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from pyasynq.gateway.hosted.cmd.launcher.attempt_folder import AttemptFolder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OWNER = (os.geteuid(), os.getegid())


def test_an_untouched_folder_is_moved(tmp_path: Path) -> None:
    """It is empty, and other users may not enter it."""
    folder = AttemptFolder(tmp_path / "a", OWNER)
    made = (tmp_path / "a").stat().st_ino
    assert folder.is_untouched()
    assert folder.move(tmp_path / "b", OWNER)
    assert folder.is_untouched()
    assert ["b"] == [one.name for one in tmp_path.iterdir()]
    found = (tmp_path / "b").stat()
    assert (made, 0o40700) == (found.st_ino, found.st_mode)


@pytest.mark.parametrize(
    "touch",
    [
        lambda path: (path / "file").touch(),
        lambda path: (path / "folder").mkdir(),
        lambda path: (path / "link").symlink_to("/"),
        lambda path: path.chmod(0o777),
        lambda path: path.rmdir(),
        lambda path: (path.rmdir(), path.mkdir(0o700)),
        lambda path: (path.rename(path.with_name("moved")), path.symlink_to("moved")),
    ],
    ids=["file", "folder", "link", "mode", "removed", "made again", "replaced by a link"],
)
def test_a_touched_folder_is_not(tmp_path: Path, touch: Callable[[Path], object]) -> None:
    """The next attempt gets another one."""
    folder = AttemptFolder(tmp_path / "a", OWNER)
    touch(tmp_path / "a")
    assert not folder.is_untouched()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these attributes here")
def test_attributes_are_seen(tmp_path: Path) -> None:
    """They could tell the next attempt something."""
    folder = AttemptFolder(tmp_path / "a", OWNER)
    try:
        os.setxattr(tmp_path / "a", "user.note", b"secret")
    except OSError:
        pytest.skip("this file system has no attributes")
    assert not folder.is_untouched()


def test_a_folder_of_another_owner_or_a_removed_one_is_not_moved(tmp_path: Path) -> None:
    """The first is removed."""
    folder = AttemptFolder(tmp_path / "a", OWNER)
    assert not folder.move(tmp_path / "b", (OWNER[0], OWNER[1] + 1))
    assert [] == list(tmp_path.iterdir())
    assert not folder.move(tmp_path / "b", OWNER)
