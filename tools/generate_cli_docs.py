"""Write docs/cli.md from the commands, and docs/cli/schema from the views of their output.

    python tools/generate_cli_docs.py [--check]

With --check nothing is written; exit code 1 says that a file is not current.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pyasynq.cli import main as pyasynq_command
from pyasynq.cli.schemas import VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
PAGE: Final = DOCS / "cli.md"
SCHEMAS: Final = DOCS / "cli" / "schema"
HEAD: Final = """\
# The command line

After reading this page you can look into queues from a shell, and change what waits there.
It is written by `make sync` from the commands themselves.

```console
$ pip install 'pyasynq[cli]'
$ export PYASYNQ_REDIS_URL=redis://localhost:6379/0
$ pyasynq stats
```

[Five commands](cli/journey.md) find what fails, since when and why, run exactly those tasks again,
and take back a deletion. [Another page](cli/screens.md) shows the output of those that look.

## Which Redis

`--redis` takes a URL, or the name of a profile of yours; without it, `PYASYNQ_REDIS_URL` is asked for either.
It may also come before the command: `pyasynq --redis prod queue ls`.
Profiles are in `~/.config/pyasynq/config.toml`:

```toml
[redis.prod]
url = "redis://:password@redis.example:6379/0"
color = "red"          # of its name in questions
confirm = "type-name"  # changes of tasks are confirmed by typing the name
read_only = false      # true refuses every change
```

The flags of Asynq's command work as well: `--uri HOST:PORT --db NUMBER --username TEXT --password TEXT`,
`--cluster --cluster_addrs HOST:PORT,...`, `--tls`, `--tls_server NAME`, `--insecure`, `--config FILE`.
`--uri` also takes a whole URL, as `--redis` does; the other flags are for HOST:PORT alone.
Without any of these, Asynq's variables count if `URI` or `CLUSTER` is set,
and then its file, `~/.asynq.yaml`.

## Many tasks

Commands that change tasks take ids, `-` for ids from stdin, or `--where` with a [query](query.md):

```console
$ pyasynq task run --where 'state:archived error:timeout failed:<1d' --dry-run
$ pyasynq task run --where 'state:archived error:timeout failed:<1d' --rate 100/s --reason "provider is back"
```

The tasks are counted first. Then a question names their number and Redis: `--yes` answers it in scripts.
More than 1,000 tasks are confirmed by typing their number; deletions and more than 100 tasks need a reason.
Tasks that change meanwhile and no longer match are left as they are; the command reports them.
One command acts on 200,000 tasks at most, and says if there are more.

Many tasks are an operation, which is noted in Redis and in the audit.
Ctrl-C pauses it after the step that is under way; `pyasynq op resume` goes on, from any computer.
If the process dies, its operation is `orphaned`, and `op resume` goes on as well.
`pyasynq undo` puts deleted tasks back for a day, except those that were deleted by id without a reason.

## Misspelt names

`pyasynq enqueue TYPE` without `-q` uses the queue that workers publish for the type, and says so on stderr.
If workers publish types but not this one, a warning names the nearest type.
The task is enqueued all the same.
Workers in Go publish nothing, so a system without workers in Python gets no warning.

`pyasynq queue pause NAME` also pauses a queue before its first task.
A warning on stderr says that the queue does not exist yet, names the nearest one,
and gives the command that resumes it. The exit code is 0.

## Output

Data goes to stdout, everything else to stderr.

| Format | What it prints |
|---|---|
| `-o table` | what people look at first; on a terminal, long texts are cut to its width, ids never |
| `-o wide` | more columns, nothing cut |
| `-o json`, `--json` | a list of objects with all fields, by the schema that is named with each command |
| `-o jsonl` | the same, one object a line |
| `-o csv` | the same as a table with a line of headings |
| `-o name` | the name or id of each, for `xargs` and for commands that read ids from `-` |

`--fields` chooses fields and their order.
`--watch` looks again every 2 seconds: it redraws a terminal; elsewhere it writes changes as JSON lines.
On a terminal, output that is longer than it goes through `PAGER`, or `less`.
A search that takes longer shows its first tasks there while it goes on.
Leaving the pager ends the search, with code 0.
Its `less` has the options `FRX`, unless `LESS` has others.
Colors follow `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb`.
Text of tasks is never interpreted: control characters are shown as symbols.

## Exit codes

| Code | Meaning |
|---:|---|
| 0 | done; also if there is nothing to show |
| 1 | failed |
| 2 | wrong usage |
| 3 | nothing matched, with `--fail-empty` |
| 4 | not confirmed, or not allowed |
| 5 | Redis cannot be reached |
| 6 | a part is done |
| 130 | interrupted |

`attention` exits with 1 if there are findings, and so does `doctor`.
`worker`, `scheduler` and supervisors have [codes of their own](workers.md#signals-and-exit-codes) from 3 on.
With a format for programs, an error is an object on stderr: `{"error": {"code": "task_not_found", ...}}`.

"""
# Options that each operator command has; they are explained once, above.
COMMON: Final = frozenset(
    (
        "redis",
        "output_format",
        "as_json",
        "fields",
        "no_header",
        "utc",
        "fail_empty",
        "watch",
        "debug",
        "help",
    )
)


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield all commands with their names, in the order of the names."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        elif command is not None and not command.hidden:
            yield (*path, name), command


def command_text(path: tuple[str, ...], command: click.Command) -> str:
    """Return the section of a command: description, examples, options."""
    context = click.Context(command, info_name=" ".join(("pyasynq", *path)))
    usage = " ".join(one for one in command.collect_usage_pieces(context) if one != "[OPTIONS]")
    parts = [f"### `pyasynq {' '.join(path)}`", inspect.cleandoc(command.help or "").replace("\b\n", "")]
    examples = getattr(command, "examples", ())
    lines = [f"$ {one}" for one in examples] or [f"$ {context.info_name} {usage}".rstrip()]
    parts.append("```console\n" + "\n".join(lines) + "\n```")
    rows = [row for row in map(option_row, command.params) if row]
    if rows:
        parts.append("| Option | Meaning |\n|---|---|\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def option_row(parameter: click.Parameter) -> str:
    """Return the row of an option; empty for arguments, hidden options and options that all commands have."""
    if not isinstance(parameter, click.Option) or parameter.hidden or parameter.name in COMMON:
        return ""
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    text = " ".join((parameter.help or "").split()).replace("|", "\\|")
    return f"| {names} | {text} |"


def schema_list() -> str:
    """Return the section about the schemas."""
    rows = [
        f"| `{view.name}` | [{view.name}.v{view.version}.json](cli/schema/{view.name}.v{view.version}.json) |"
        for view in VIEWS
    ]
    return "## Schemas of the JSON\n\n| Records | Schema |\n|---|---|\n" + "\n".join(rows) + "\n"


def generate() -> dict[Path, str]:
    """Return the text of each file."""
    sections = [command_text(path, command) for path, command in commands(pyasynq_command)]
    files = {PAGE: HEAD + "## Commands\n\n" + "\n".join(sections) + "\n" + schema_list()}
    for view in VIEWS:
        path = SCHEMAS / f"{view.name}.v{view.version}.json"
        files[path] = json.dumps(view.schema(), indent=2, ensure_ascii=False) + "\n"
    return files


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Write docs/cli.md and docs/cli/schema.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not current")
    is_check = parser.parse_args().check
    files = generate()
    outdated = [path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
    outdated += [path for path in SCHEMAS.glob("*.json") if path not in files]
    for path in outdated:
        if is_check:
            sys.stderr.write(f"not current: {path} (run: python tools/generate_cli_docs.py)\n")
        elif path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], "utf-8")
        else:
            path.unlink()
    return 1 if is_check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
