"""Files that the demo works on: Python sources of a folder, and three broken files that the demo adds."""

from __future__ import annotations

import sysconfig
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

_SKIPPED_FOLDERS: Final = frozenset({"site-packages", "dist-packages", "node_modules", "__pycache__"})
PLANTED_FOLDER: Final = "planted"


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of one demo."""

    root: Path
    files: tuple[Path, ...]
    planted: tuple[Path, ...]
    """Files that are broken on purpose: each must fail, be retried, and end in the archive."""

    def name_of(self, path: str) -> str:
        """Return a file's path for display: relative to the folder, or `planted/...`."""
        file = Path(path)
        if file in self.planted:
            return f"{PLANTED_FOLDER}/{file.name}"
        return str(file.relative_to(self.root)) if file.is_relative_to(self.root) else path


def standard_library() -> Path:
    """Return the folder of this Python's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def find_sources(folder: Path) -> tuple[Path, ...]:
    """Return the Python source files below a folder, sorted, without installed packages and hidden folders.

    Files whose name is not UTF-8 are left out, since a task's payload cannot carry it.
    """
    found = (path for path in folder.rglob("*.py") if path.is_file() and _is_wanted(path.relative_to(folder)))
    return tuple(sorted(found))


def plant_broken_files(folder: Path) -> tuple[Path, ...]:
    """Copy the package's broken files to `folder`, as Python sources, and return them.

    The package stores them with another file extension: installers and editors reject broken sources.
    """
    folder.mkdir()
    planted = []
    for stored in sorted(
        resources.files(__package__).joinpath(PLANTED_FOLDER).iterdir(), key=lambda file: file.name
    ):
        copy = folder / stored.name.replace(".txt", ".py")
        copy.write_bytes(stored.read_bytes())
        planted.append(copy)
    return tuple(planted)


def _is_wanted(path: Path) -> bool:
    if any(part in _SKIPPED_FOLDERS or part.startswith(".") for part in path.parts[:-1]):
        return False
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True
