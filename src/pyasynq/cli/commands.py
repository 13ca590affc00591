"""What commands there are. Each one's module is imported only when the command is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._visible_text import visible, visible_lines
from pyasynq.errors import PyasynqError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMMANDS: Final[Mapping[str, str]] = {
    "demo": "pyasynq.cli.demo.command:demo",
    "doctor": "pyasynq.cli.doctor:doctor",
    "ping": "pyasynq.cli.ping:ping",
    "scheduler": "pyasynq.cli.scheduler:scheduler",
    "worker": "pyasynq.cli.worker:worker",
}
# The first sentence of each command's docstring, so that `--help` imports none of them.
_SHORT_HELP: Final[Mapping[str, str]] = {
    "demo": "See two workers at work, and one of them killed.",
    "doctor": "Find damage in a live Redis, and repair it while workers run.",
    "ping": "Ask Redis for a sign of life; exit with 1 if there is none, 2 for wrong usage.",
    "scheduler": "Enqueue what the cron expressions of an app say.",
    "worker": "Run the tasks of an app.",
}


class Commands(click.Group):
    """Imports commands when they are asked for, and shows pyasynq's errors without a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Return a command, or None when there is none of that name."""
        place = _COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their short help, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _SHORT_HELP[name]) for name in self.list_commands(ctx)])

    def resolve_command(
        self,
        ctx: click.Context,
        args: list[str],
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or name the one most like it."""
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            ctx.fail(f"there is no command {name!r}{nearest(name, _COMMANDS)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. What pyasynq raises becomes one line, and exit code 1."""
        try:
            return super().invoke(ctx)
        except PyasynqError as error:
            user_traceback: str = getattr(error, "user_traceback", "")
            if user_traceback:
                click.echo(visible_lines(user_traceback), err=True, nl=False)
            raise click.ClickException(visible(error)) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "-V", "--version", package_name="pyasynq", message="pyasynq %(version)s")
def main() -> None:
    """Run and look after background tasks on Redis or Valkey, together with Asynq in Go."""
