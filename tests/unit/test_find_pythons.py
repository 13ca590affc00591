"""Which Pythons of a machine the tests are run on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.find_pythons import Python, ask_python, choose, list_candidates, list_folders

ONLY_POSIX = pytest.mark.skipif(sys.platform == "win32", reason="only on systems with shebangs")


def put(folder: Path, name: str, answer: str) -> Path:
    """Put a program there that answers what an interpreter is asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)
    return path


@ONLY_POSIX
def test_pythons_are_found_where_version_managers_put_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PATH, in pyenv's folder of this user, and in the one that PYENV_ROOT names. (D49)"""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    expected = {
        put(tmp_path / "bin", "python3.11", "echo 3 11 0 0 a"),
        put(tmp_path / "home/.pyenv/versions/3.12.1/bin", "python3.12", "echo 3 12 1 0 b"),
        put(tmp_path / "home/.local/share/uv/python/cpython-3.13/bin", "python3.13t", "echo 3 13 0 1 c"),
        put(tmp_path / "pyenv/versions/3.14.0/bin", "python3.14", "echo 3 14 0 0 d"),
    }
    put(tmp_path / "bin", "python3.11-config", "exit 0")
    environment = {"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path / "pyenv")}
    found = set(list_candidates(list_folders(environment)))
    assert expected <= found
    assert tmp_path / "bin/python3.11-config" not in found


def test_the_newest_of_each_version_and_kind_is_chosen() -> None:
    """Versions that are too old are left out; a free-threaded build counts as a kind of its own. (D49)"""
    old, first, second = (Python((3, *rest), False, "p") for rest in ((10, 9), (12, 1), (12, 10)))
    threaded = Python((3, 12, 3), True, "t")
    assert [second, threaded] == choose([first, None, old, threaded, second])
    assert ["3.12", "3.12t"] == [second.name, threaded.name]


@ONLY_POSIX
@pytest.mark.parametrize("answer", ["exit 127", "echo"])
def test_a_name_that_does_not_run_is_not_a_python(tmp_path: Path, answer: str) -> None:
    """The shim of a version manager can be such a name. (D49)"""
    assert ask_python(put(tmp_path, "python3.12", answer)) is None


def test_this_python_says_what_it_is() -> None:
    """And where the interpreter is that its environment was made from. (D49)"""
    python = ask_python(Path(sys.executable))
    assert python is not None
    assert sys.version_info[:3] == python.version
