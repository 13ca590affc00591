"""The package as it was at an earlier commit, built and installed into a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
_INSTALLED: Final = _ROOT / ".mixed"


class MissingCommitError(Exception):
    """The commit is not in this clone."""


def install_base(commit: str) -> Path:
    """Build a wheel of a commit, install it without its dependencies, and return its folder.

    The folder is kept for the next run. Put it on `PYTHONPATH` before everything else.

    Raises:
        MissingCommitError: in a shallow clone, or for a name that git does not know.
    """
    full_name = _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}").decode().strip()
    if not full_name:
        raise MissingCommitError(f"commit {commit} is not in this clone; fetch the whole history")
    folder = _INSTALLED / full_name[:12]
    if not folder.exists():
        with tempfile.TemporaryDirectory(prefix="mixed-") as name:
            _install(full_name, Path(name))
            _INSTALLED.mkdir(exist_ok=True)
            shutil.move(Path(name) / "site", folder)
    return folder


def _install(commit: str, folder: Path) -> None:
    """Leave the installed package in `site` below a folder."""
    archive = folder / "source.tar"
    archive.write_bytes(_git("archive", "--format=tar", commit))
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "source", filter="data")
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wheel = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, folder / "source"]
    subprocess.run(wheel, check=True)
    [built] = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", folder / "site", built], check=True)


def _git(*arguments: str) -> bytes:
    """Run git in this clone; return what it prints, which is nothing after an error."""
    return subprocess.run(["git", *arguments], cwd=_ROOT, stdout=subprocess.PIPE, check=False).stdout
