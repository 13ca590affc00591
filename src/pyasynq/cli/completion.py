"""Completion in shells: the command `pyasynq completion`, and the names that Redis knows."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from pyasynq._visible_text import visible
from pyasynq.cli.connection import ASYNQ_FLAGS, config_file, find_connection, read_profiles
from pyasynq.cli.nouns import OperatorCommand

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq.operations import Operator

_LIMIT: Final = 0.15
"""Maximum seconds that a completion waits for Redis, since a longer wait would disturb typing."""
_FRESH: Final = 30.0
"""Seconds for which names are cached in a file, so that the next completion needs no connection."""
_MOST_NAMES: Final = 1_000
_SHELLS: Final = ("bash", "zsh", "fish")
_INSTALL: Final = {
    "bash": 'add to ~/.bashrc:  eval "$(pyasynq completion bash)"',
    "zsh": 'add to ~/.zshrc:  eval "$(pyasynq completion zsh)"',
    "fish": "write it to ~/.config/fish/completions/pyasynq.fish",
}


@click.command(
    cls=OperatorCommand,
    examples=(
        'eval "$(pyasynq completion bash)"',
        "pyasynq completion fish > ~/.config/fish/completions/pyasynq.fish",
    ),
)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that lets a shell complete commands, options, queues and types."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click has no completion for {shell}")
    root = context.find_root().command
    click.echo(kind(root, {}, "pyasynq", "_PYASYNQ_COMPLETE").source())
    if os.isatty(1):
        click.echo(f"To use it, {_INSTALL[shell]}", err=True)


def complete_queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's signature
    """Return the names of queues with this prefix; none if Redis does not answer at once."""
    return _items(known_names(ctx, "queues", lambda operator: operator.queues()), incomplete)


def complete_types(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's signature
    """Return the names of task types with this prefix, among those that workers have described."""

    async def ask(operator: Operator) -> list[str]:
        return [info.type for info in await operator.task_types() if not info.is_prefix]

    return _items(known_names(ctx, "types", ask), incomplete)


def complete_findings(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's signature
    """Return the ids of current findings (`pyasynq attention`) with this prefix, snoozed ones included."""

    async def ask(operator: Operator) -> list[str]:
        found = await operator.attention()
        return [one.short_id for one in (*found.findings, *found.snoozed)]

    return _items(known_names(ctx, "findings", ask), incomplete)


def complete_where(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return continuations of a query: fields, states, queues and types."""
    from pyasynq.operations.query import Known, complete  # noqa: PLC0415 - most completions need no query

    queues = [item.value for item in complete_queues(ctx, param, "")]
    types = [item.value for item in complete_types(ctx, param, "")]
    found = complete(incomplete, len(incomplete), Known(queues, types))
    return [CompletionItem(incomplete[: one.start] + one.insert, help=one.detail) for one in found]


def complete_profiles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's signature
    """Return the names of the user's profiles."""
    try:
        return _items(list(read_profiles(config_file())), incomplete)
    except click.ClickException:
        return []


def _items(names: list[str], incomplete: str) -> list[CompletionItem]:
    # A name with hidden characters cannot be typed, and would be written to the terminal raw.
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and name == visible(name)]


def known_names(ctx: click.Context, kind: str, ask: Callable[[Operator], Awaitable[list[str]]]) -> list[str]:
    """Return all names of a kind, such as queues: from a cache file at most 30 s old, else from Redis.

    Names from Redis are written to the cache file. If Redis does not answer, the result is empty.
    """
    try:
        given = {**ctx.find_root().params, **{name: value for name, value in ctx.params.items() if value}}
        flags = {name: given.get(name) for name in ASYNQ_FLAGS}
        url = find_connection(given.get("redis"), flags).url
    except click.ClickException:
        return []
    path = _cache_file(url, kind)
    kept = _read_kept(path)
    if kept is not None:
        return kept
    try:
        names = _ask_redis(url, ask)[:_MOST_NAMES]
    except Exception:  # noqa: BLE001 - a completion that fails completes nothing, and must not disturb the line
        return []
    _keep(path, names)
    return names


def _ask_redis(url: str, ask: Callable[[Operator], Awaitable[list[str]]]) -> list[str]:
    # Imported late: completing commands needs no Redis.
    import asyncio  # noqa: PLC0415 - as above

    from pyasynq.operations import Operator, User  # noqa: PLC0415 - as above

    async def visit() -> list[str]:
        async with asyncio.timeout(_LIMIT), Operator(url, User.local(), timeout=_LIMIT) as operator:
            return await ask(operator)

    return asyncio.run(visit())


def _cache_file(url: str, kind: str) -> Path:
    import hashlib  # noqa: PLC0415 - help needs no cache

    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    # The URL may hold a password: only its hash becomes a file name.
    name = hashlib.sha256(url.encode()).hexdigest()[:16]
    return Path(folder) / "pyasynq" / f"{kind}-{name}.json"


def _read_kept(path: Path) -> list[str] | None:
    try:
        if time.time() - path.stat().st_mtime > _FRESH:
            return None
        content: Any = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return [name for name in content if isinstance(name, str)] if isinstance(content, list) else None


def _keep(path: Path, names: list[str]) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(json.dumps(names), "utf-8")
    except OSError:
        return  # a read-only home: the next completion asks Redis again
