"""Write the blocking twins of asyncio modules: the same source without `async` and `await`.

    python tools/unasync.py           write them
    python tools/unasync.py --check   say whether they are current; exit code 1 if not

The rules apply to the whole file, including comments and docstrings, without exceptions. Code that differs
between asyncio and threads is in lower modules, as pairs of classes and functions.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "pyasynq"
TWINS = {
    "client.py": "sync/client.py",
    "rate.py": "sync/rate.py",
    "operations/select.py": "operations/sync/select.py",
    "operations/sweep.py": "operations/sync/sweep.py",
    **{
        f"inspector/{name}.py": f"sync/inspector/{name}.py"
        for name in ("__init__", "_base", "bulk", "events", "queues", "series", "servers", "tasks", "walks")
    },
    **{
        f"operations/operator/{name}.py": f"operations/sync/{name}.py"
        for name in (
            *(
                "__init__",
                "_acts",
                "_admission",
                "_base",
                "_connections",
                "_operator_inspector",
                "_recorder",
                "_runner",
            ),
            *(
                "api_keys",
                "attention",
                "audit",
                "bulk",
                "commands",
                "deliveries",
                "doctor",
                "lease_workers",
                "operations",
                "queues",
                "search",
                "series",
                "servers",
                "service_doors",
                "tasks",
                "configurations",
                "views",
            ),
        )
    },
}

HEADER = "# Generated from {source} by tools/unasync.py; change that file and run `make sync`.\n"

RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\basync (def|with|for)\b", r"\1"),
        (r"\bawait ", ""),
        (r"\b__a(enter|exit)__\b", r"__\1__"),
        (r"\bAwaitable\[([^\[\]]*)\]", r"\1"),
        (r"^from collections\.abc import Awaitable, (.*)$", r"from collections.abc import \1"),
        (r"\bAsyncEvents\b", "BlockingEvents"),
        (r"\bAsyncDriver\b", "BlockingDriver"),
        (r"\bAsyncSelections\b", "BlockingSelections"),
        (r"\bpyasynq\.operations\.(select|sweep) import", r"pyasynq.operations.sync.\1 import"),
        (r"\boperations\.operator\._operator_inspector import", "operations.sync._operator_inspector import"),
        (r"\bAsyncTasks\b", "BlockingTasks"),
        (r"(?<!Blocking)\bEnqueueBatcher\b", "BlockingEnqueueBatcher"),
        (r"\bChunkSender\b", "BlockingChunkSender"),
        (r"\bGatheredCalls\b", "BlockingGatheredCalls"),
        (r"\bTaskWaits\b", "BlockingTaskWaits"),
        (r"\b(\w+)_async\b", r"\1_blocking"),
        (r"\bpyasynq\.(client|inspector) import", r"pyasynq.sync.\1 import"),
        (r"\baclosing\b", "closing"),
        (r"\bAsyncIterator\b", "Iterator"),
        (r"\bisasyncgenfunction\b", "isgeneratorfunction"),
    )
]


def blocking(source: str) -> str:
    """Return the source of a module without `async` and `await`: apply `RULES` to each line."""
    lines = []
    for line in source.splitlines():
        for pattern, replacement in RULES:
            line = pattern.sub(replacement, line)  # noqa: PLW2901 - one rule after the other
        lines.append(line)
    return "\n".join(lines) + "\n"


def twin(name: str) -> str:
    """Generate the text of a module's blocking twin; `name` is the path of the module under `src/pyasynq`."""
    source = (SOURCE / name).read_text("utf-8")
    return HEADER.format(source=f"src/pyasynq/{name}") + blocking(source)


def main(arguments: list[str]) -> int:
    """Write all twins, or with `--check` compare them; return the exit code."""
    stale = 0
    for name, twin_name in TWINS.items():
        path = SOURCE / twin_name
        wanted = twin(name)
        if path.exists() and path.read_text("utf-8") == wanted:
            continue
        if "--check" in arguments:
            print(f"{path} is not what {name} makes it: run `make sync`", file=sys.stderr)
            stale += 1
        else:
            path.write_text(wanted, "utf-8")
            print(f"wrote {path}")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
