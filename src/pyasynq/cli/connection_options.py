"""Options that say which Redis to use, for single operator commands and for the group of all commands."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq.cli.completion import complete_profiles
from pyasynq.cli.connection import ASYNQ_FLAGS, URL_VARIABLE, find_connection

if TYPE_CHECKING:
    from collections.abc import Callable

_OTHER_COMMANDS: Final = frozenset(
    {"completion", "demo", "metrics", "scheduler", "version", "web", "work", "worker"}
)
"""Commands without the connection options: they need no Redis, or use the URL of the app."""
_FLAG_OPTIONS: Final = (
    click.option("-u", "--uri", metavar="HOST:PORT|URL", hidden=True),
    click.option("-n", "--db", type=click.IntRange(min=0), metavar="NUMBER", hidden=True),
    click.option("-p", "--password", metavar="TEXT", hidden=True),
    click.option("-U", "--username", metavar="TEXT", hidden=True),
    click.option("--cluster", is_flag=True, hidden=True),
    click.option("--cluster_addrs", "--cluster-addrs", metavar="HOST:PORT,...", hidden=True),
    click.option("--tls", is_flag=True, hidden=True),
    click.option("--tls_server", "--tls-server", metavar="NAME", hidden=True),
    click.option("--insecure", is_flag=True, hidden=True),
    click.option("--config", metavar="FILE", hidden=True),
)
_redis_option = click.option(
    "--redis",
    metavar="URL|PROFILE",
    shell_complete=complete_profiles,
    help=f"Which Redis: a URL, or a profile of your configuration file. [env: {URL_VARIABLE}]",
)


def _add_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed((_redis_option, *_FLAG_OPTIONS)):
        command = option(command)
    return command


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with the options that say which Redis to use; it gets them as `connection`.

    Options before the command, as in `pyasynq --redis prod queue ls`, apply if none of them follows the
    command.
    """

    @_add_options
    @functools.wraps(command)
    def wrapped(*args: Any, redis: str | None, **kwargs: Any) -> Any:
        flags = {name: kwargs.pop(name) for name in ASYNQ_FLAGS}
        before = click.get_current_context().find_root().params
        if not redis and not any(flags.values()):
            redis, flags = before.get("redis"), {name: before.get(name) for name in ASYNQ_FLAGS}
        return command(*args, connection=find_connection(redis, flags), **kwargs)

    return wrapped


def global_connection_options(group: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which Redis to use to the group of all commands, for operator commands."""

    @_add_options
    @functools.wraps(group)
    def wrapped(**given: Any) -> Any:
        command = click.get_current_context().invoked_subcommand
        if any(given.values()) and command in _OTHER_COMMANDS:
            raise click.UsageError(f"this option has another meaning here: give it after  pyasynq {command}")
        return group()

    return wrapped
