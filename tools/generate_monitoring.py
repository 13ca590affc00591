"""Write dashboards, alert rules with their tests and pages, and scalers from `tools/monitoring`.

python tools/generate_monitoring.py           write them
python tools/generate_monitoring.py --check   say whether they are current; exit code 1 if not
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
_FOLDERS: Final = ("monitoring", "docs/alerts")


def main(arguments: list[str]) -> int:
    """Write or check the files; return the exit code."""
    sys.path.insert(0, str(ROOT))
    from tools.monitoring.build import build_files  # noqa: PLC0415 - found by the path above

    wanted = {ROOT / name: text for name, text in build_files().items()}
    there = {path for folder in _FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()}
    stale = [path for path, text in wanted.items() if path not in there or path.read_text("utf-8") != text]
    stale += there - wanted.keys()
    if "--check" in arguments:
        for path in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)} is not what tools/monitoring says: run `make sync`\n")
        return int(bool(stale))
    for path in there - wanted.keys():
        path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
