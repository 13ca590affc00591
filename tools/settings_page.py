"""Write `docs/settings.md` from the descriptions of settings; with --check say whether it is current."""

from __future__ import annotations

import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Final

from pyasynq._settings import settings_of
from pyasynq.cli.queue_settings import QUEUE_LIMITS
from pyasynq.cli.worker_settings import SETTINGS, flags_of
from pyasynq.config import ServerConfig
from pyasynq.worker_config import WorkerConfig

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

INTRODUCTION: Final = """\
# Settings of a worker

After reading this page you can set each option of a worker in the place that suits you,
and find out which place took effect.
It is written by `tools/settings_page.py` from the descriptions in the code.


## Four places

| Place | Example |
|---|---|
| flag | `pyasynq worker shop:app --concurrency 8` |
| environment | `PYASYNQ_CONCURRENCY=8` |
| file | `concurrency = 8` |
| app | `App(..., worker=WorkerConfig(concurrency=8))` |

They are in order of precedence: a setting in one place overrides the same setting in all places below it.
Flags and environment variables have the name of the setting:
`max_memory` is `--max-memory` and `PYASYNQ_MAX_MEMORY`.
The environment and the file are read when `pyasynq worker` starts, never when a module is imported.
The URL of Redis is not a setting: `--redis` wins over `App("redis://...")`.
`PYASYNQ_REDIS_URL` is for apps without a URL; the worker warns if the app has a different one.

The file is the nearest `pyproject.toml` with a table `[tool.pyasynq]`,
in the folder of the app's module or in a folder above it.
`--config worker.toml` names another file, whose settings are at the top level.

```toml
[tool.pyasynq]
concurrency = 8
shutdown_timeout = "1m30s"

[tool.pyasynq.queues]
bulk = 1
mail = { weight = 3, rate = "50/s", max_run = 10 }
```

`pyasynq worker shop:app --show-config` prints each value and where it came from, and starts nothing.

Durations are seconds, or text such as `500ms`, `5m` and `1h30m`. Sizes are bytes, or text such as `512M`.
Switches are `yes` or `no`, `true` or `false`, `on` or `off`, `1` or `0`.
`none` sets an optional setting to no value.
A wrong value ends the command, and the message begins with the source:
`PYASYNQ_CONCURRENCY='many': must be a whole number of at least 1`.


## A worker in a program of its own

`app.run_worker()` and `app.server()` read neither flags nor variables nor files.
They obey the settings of `App(worker=...)`, or those of a `WorkerConfig` or `ServerConfig` that is passed.
Prefer a `WorkerConfig`: a `ServerConfig` is for a `Server` without an app, and has fewer settings.
Without `queues`, both serve the queues of the app.
They obey the settings in the tables *Tasks and queues* and *In Python alone*, and `with_scheduler`.
The other settings of processes, probes and logs are for `pyasynq worker`.
`run_worker` logs a warning that names the given ones, and runs one process without them.
`app.server()` ignores them, because its program has an event loop, and often probes and logs, of its own.


## Queues

Unless `queues` says otherwise, a worker serves every queue that the app names, and `default`.
Weights and limits can be declared where the tasks are:

```python
app = App("redis://localhost", queues={"mail": Queue(rate=50), "bulk": 1})


@app.task("report:build", max_run=3)
async def build(year: int) -> None: ...


@app.task("mail:send", queue="mail")
async def send(user_id: int) -> None: ...
```

`max_run`, `rate` and `ordered` of a task limit its queue.
Without `queue` the task gets a queue of its own, whose name is the type: `report:build` here.
Two declarations that give one queue different limits are an error.
[Limits](limits.md) explains what they mean.

The highest place that gives `queues` chooses the names of the queues.
Limits are kept: each limit of a queue comes from the highest place that gives this limit.
So `--queues mail=3` replaces names and weights alone, and `queues={"mail": Queue(priority=3)}` of a
`WorkerConfig` or `ServerConfig` keeps a rate that the app declares.

A table in a file changes only the keys that it names:

| Key | Value |
|---|---|
| `weight` | share of the slots; the argument of `Queue` is `priority`, which is another word for the same |
| `max_run` | number of tasks that run at once, or `"none"` for no limit |
| `rate` | tasks per time, as in `"50/s"` or `"100/m+10"`, or `"none"` for no limit |
| `period`, `burst` | parts of the rate, as for `Queue`; a `rate` replaces those of lower places |
| `ordered` | `true` or `false` |

`none` also removes a limit in `--queue-max-run mail=none` and `--queue-rate mail=none`.
For example, an app declares `"mail": Queue(rate=50)` and `"lab": Queue(max_run=1, priority=3)`:

```toml
[tool.pyasynq.queues]
mail = { weight = 3 }
lab = { rate = "5/s", max_run = "none" }
```

```console
$ pyasynq worker shop:app --show-config
...
queues  mail=3 (rate 50/1s, burst 5), lab=3 (rate 5/1s, burst 1)  /srv/pyproject.toml: queues
```
"""


def build() -> str:
    """Return the text of the page."""
    of_server = {one.name for one, _ in settings_of(ServerConfig)}
    functions = [name for name, one in SETTINGS.items() if not one.kind.has_text]
    parts = [
        INTRODUCTION,
        "\n\n## Tasks and queues\n",
        _table([name for name in SETTINGS if name in of_server and name not in functions]),
        "\n\n## Processes, probes and logs\n",
        _table([name for name in SETTINGS if name not in {*of_server, *QUEUE_LIMITS, *functions}]),
        "\n\n## Limits of queues as text\n\nIn a file, these options are in the table of queues.\n",
        _table([*QUEUE_LIMITS]),
        "\n\n## In Python alone\n\n`groups` may also be in a file, as a table of tables.\n",
        _table(functions),
    ]
    return "\n".join(parts)


def _table(names: list[str]) -> str:
    rows = ["| Setting | Flag | Values | Default | Meaning |", "|---|---|---|---|---|"]
    for name in names:
        described = SETTINGS[name]
        flags = ", ".join(f"`{flag}`" for one in flags_of(name) for flag in one.split("/"))
        unit = f" {described.kind.unit}" if described.kind.unit and _default(name) not in {"none", ""} else ""
        default = described.default_text or (f"`{_default(name)}`{unit}" if _default(name) else "")
        cells = (f"`{name}`", flags, described.describe_values(), default, described.help)
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows) + "\n"


def _default(name: str) -> str:
    field = next((one for one in fields(WorkerConfig) if one.name == name), None)
    if field is None or field.default_factory is not MISSING:
        return ""
    return (
        SETTINGS[name].show(field.default).rpartition(".")[2]
        if callable(field.default)
        else SETTINGS[name].show(field.default)
    )


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    text = build()
    if "--check" in arguments:
        if PAGE.read_text("utf-8") == text:
            return 0
        print(f"{PAGE} is not current: run  make sync")
        return 1
    PAGE.write_text(text, "utf-8")
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
