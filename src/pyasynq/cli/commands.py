"""Table of the commands. Each one's module is imported only when the command is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._exit_codes import EXIT_ABORTED
from pyasynq._visible_text import visible, visible_lines
from pyasynq.cli.connection_options import global_connection_options
from pyasynq.cli.garbage_collection import collect_less_often, skip_last_collection
from pyasynq.errors import PyasynqError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMMANDS: Final[Mapping[str, str]] = {
    "attention": "pyasynq.cli.attention:attention",
    "audit": "pyasynq.cli.look:audit",
    "command": "pyasynq.cli.hosted_command:command",
    "completion": "pyasynq.cli.completion:completion",
    "cron": "pyasynq.cli.cron:cron",
    "delivery": "pyasynq.cli.delivery:delivery",
    "demo": "pyasynq.cli.demo.command:demo",
    "doctor": "pyasynq.cli.doctor:doctor",
    "door": "pyasynq.cli.door:door",
    "enqueue": "pyasynq.cli.enqueue:enqueue_command",
    "errors": "pyasynq.cli.look:errors",
    "events": "pyasynq.cli.look:events",
    "group": "pyasynq.cli.group:group",
    "key": "pyasynq.cli.key:key",
    "latency": "pyasynq.cli.latency:latency",
    "limits": "pyasynq.cli.limits:limits",
    "mark": "pyasynq.cli.mark:mark",
    "metrics": "pyasynq.cli.metrics:metrics",
    "op": "pyasynq.cli.operation:operation_group",
    "ping": "pyasynq.cli.ping:ping",
    "queue": "pyasynq.cli.queue:queue",
    "scheduler": "pyasynq.cli.scheduler:scheduler",
    "search": "pyasynq.cli.search:search_command",
    "server": "pyasynq.cli.server:server_group",
    "service": "pyasynq.cli.service:service",
    "stats": "pyasynq.cli.stats:stats",
    "task": "pyasynq.cli.task:task",
    "top": "pyasynq.cli.top:top",
    "types": "pyasynq.cli.look:types",
    "undo": "pyasynq.cli.operation:undo",
    "version": "pyasynq.cli.version:version",
    "view": "pyasynq.cli.view:view",
    "web": "pyasynq.cli.web:web",
    "work": "pyasynq.cli.work:work",
    "worker": "pyasynq.cli.worker:worker",
}
# The first sentence of each command's docstring, so that `--help` imports none of them.
_SHORT_HELP: Final[Mapping[str, str]] = {
    "attention": "List problems that need an operator now, each with the one action that resolves it.",
    "audit": "Show the audit log: who changed what and why, the newest first.",
    "command": "List the commands that the task service runs for tasks; kill them.",
    "completion": "Print the script that lets a shell complete commands, options, queues and types.",
    "cron": "List the entries (periodic tasks) of running schedulers; pause, resume, and run them.",
    "delivery": "List the hosts that the task service sends tasks to, and the requests that failed.",
    "demo": "Watch two workers run tasks, and recover after one is killed.",
    "doctor": "Find inconsistent task data in a live Redis, and repair it while workers run.",
    "door": "List the protocol gateways (doors) of the task service, such as the one for Gearman.",
    "enqueue": "Enqueue a task of a type, with a payload in JSON.",
    "errors": "Group failed tasks by their errors, the most frequent first.",
    "events": "Print events of tasks live, until Ctrl-C.",
    "group": "List aggregation groups: tasks that wait to be combined into one task.",
    "key": "Make API keys of programs for the task service; list, rotate, and delete them.",
    "latency": "Show how long tasks waited and ran, by queue and type, from statistics of pyasynq workers.",
    "limits": "Show the limits of queues; with options, change those of one queue.",
    "mark": "Add a mark (annotation) to all charts, such as a deployment; list and remove marks.",
    "metrics": "Serve the metrics of all queues to Prometheus at /metrics.",
    "op": "List bulk operations on many tasks; pause, resume, and stop them.",
    "ping": "Send PING to Redis; exit with 5 if it does not answer, 2 for wrong usage.",
    "queue": "List queues; pause, resume, and remove them.",
    "scheduler": "Run the scheduler of an app: enqueue its periodic tasks when they are due.",
    "search": "Find tasks in all states by a query, the newest first.",
    "server": "List the servers that run tasks; quiet and stop them.",
    "service": "Serve tasks over HTTP to programs and workers in any language.",
    "stats": "Show all queues, the tasks processed today, and the state of Redis.",
    "task": "List tasks; enqueue, run, cancel, archive, and delete them.",
    "top": "Show the busiest queues or task types, live.",
    "types": "List the task types that workers have described within 30 days.",
    "undo": "Restore the tasks of a deletion, within a day; of your last deletion unless you name another.",
    "version": "Print the versions of pyasynq, Python and the libraries it uses.",
    "view": "Save queries under a name; list, run, and remove them.",
    "web": "Serve the dashboard for browsers.",
    "work": "Lease tasks over HTTP, and run a local command for each of them.",
    "worker": "Run the tasks of an app.",
}


version_flag: Final = click.version_option(
    None, "-V", "--version", package_name="pyasynq", message="pyasynq %(version)s"
)
"""Decorator that adds `-V` and `--version` to a command; they print the version of pyasynq."""


class Commands(click.Group):
    """Command group with lazy imports, which shows pyasynq's errors without a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import and return the command of this name; None if there is none."""
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
        """Find the command; if it does not exist, suggest the most similar one."""
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            ctx.fail(f"there is no command {name!r}{nearest(name, _COMMANDS)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. An error of pyasynq, or a missing extra, becomes one line and exit code 1.

        Ctrl-C becomes exit code 130.
        """
        # Imports make many objects and few cycles: the default threshold would slow them down by 10 %.
        collect_less_often()
        skip_last_collection()
        try:
            return super().invoke(ctx)
        except PyasynqError as error:
            user_traceback: str = getattr(error, "user_traceback", "")
            if user_traceback:
                click.echo(visible_lines(user_traceback), err=True, nl=False)
            raise click.ClickException(visible(error)) from error
        except ModuleNotFoundError as error:
            from pyasynq._extras import explain_missing  # noqa: PLC0415 - only where a package is missing

            explained = explain_missing(error)
            if explained is error:
                raise
            raise click.ClickException(str(explained)) from error
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            raise SystemExit(EXIT_ABORTED) from None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@version_flag
@global_connection_options
def main() -> None:
    """Run, inspect and manage background tasks on Redis or Valkey, together with Asynq in Go."""
