"""Start of the task service from the command line: one process of it, or several."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._human_text import counted
from pyasynq._listener import format_url, open_listener
from pyasynq._visible_text import visible
from pyasynq.cli.event_loop import run_until_done
from pyasynq.cli.log_options import set_up_logging
from pyasynq.cli.process_options import LISTENER, SUPERVISED
from pyasynq.cli.processes import process_name
from pyasynq.supervisor import Supervisor, SupervisorLink, SupervisorSettings, leave_process_1

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyasynq.gateway.configurations import ServiceFile

_SECRET: Final = "PYASYNQ_SECRET"  # noqa: S105 - a name
_LOG_FLAGS: Final = ("log_level", "log_format", "log_config")


def start_service(
    file: Path, redis: str | None, only: str | None, *, check: bool, options: dict[str, Any]
) -> int:
    """Run `pyasynq service` with its options; return the exit code.

    Args:
        file: settings and task types.
        redis: URL of Redis, which overrides the URL in the file.
        only: name of the only part that runs; None for all parts.
        check: whether to check the file only (dry run).
        options: values of the other options.

    Raises:
        UsageError: for invalid options.
        PyasynqError: the service could not start.
    """
    # Connect before anything that takes time, because the supervisor may end meanwhile.
    link = SupervisorLink(options["supervised"]) if options["supervised"] is not None else None
    from pyasynq.cli import service_server as server  # noqa: PLC0415 - of the extra `service`
    from pyasynq.gateway.configurations import read_service_file  # noqa: PLC0415 - as above

    read = server.replace_redis(read_service_file(file), redis)
    parts = server.choose_parts(read.service, only)
    if check:
        _tell_checked(file, read, parts)
        return 0
    set_up_logging(options, process=process_name() if link is not None else "")
    if not options["access_log"]:
        logging.getLogger("pyasynq.access").setLevel(logging.WARNING)
    if options["processes"] is not None:
        return _supervise(file, read, options, {"redis": redis, "only": only})
    if link is None:
        leave_process_1()
    listener = None if options["listener"] is None else socket.socket(fileno=options["listener"])
    return run_until_done(server.serve(server.ServiceRun(file, read, parts, listener, link)))


def _tell_checked(file: Path, read: ServiceFile, parts: frozenset[str]) -> None:
    from pyasynq.cli import service_server as server  # noqa: PLC0415 - as above

    server.build_site(read, parts)
    who = "with an API key" if read.service.keys else "from this machine, without a key"
    types = counted(len(read.tasks), "task type")
    address = format_url(read.service.host, read.service.port)
    click.echo(f"{visible(file)} is right: {types}, on {address}, {who}.")


def _supervise(
    file: Path, read: ServiceFile, options: Mapping[str, Any], typed: Mapping[str, str | None]
) -> int:
    """Run several processes that share one listening socket, under a supervisor; return the exit code."""
    from pyasynq.cli import service_server as server  # noqa: PLC0415 - as above
    from pyasynq.metrics import FleetMetrics  # noqa: PLC0415 - as above

    if not os.environ.get(_SECRET):
        # All processes need the same secret, because any of them settles leases of the others.
        os.environ[_SECRET] = secrets.token_hex(32)
        click.echo(f"{_SECRET} is not set: leases end with these processes", err=True)
    listener = open_listener(read.service.host, read.service.port)
    listener.set_inheritable(True)
    host, port = listener.getsockname()[:2]
    click.echo(f"The task service is at {format_url(host, port)}  (Ctrl-C stops it)", err=True)
    arguments = [str(file), f"{LISTENER}={listener.fileno()}", *_repeat_options(options, typed)]
    has_metrics = read.service.health is not None
    settings = SupervisorSettings(
        options["processes"],
        end_timeout=server.END_SECONDS + read.service.drain,
        health=server.probe_settings(read.service),
    )

    def command(link: int) -> list[str]:
        return [sys.executable, "-m", "pyasynq.cli", "service", *arguments, f"{SUPERVISED}={link}"]

    return Supervisor(command, settings, FleetMetrics() if has_metrics else None).run()


def _repeat_options(options: Mapping[str, Any], typed: Mapping[str, str | None]) -> list[str]:
    """Return the command-line options that each process needs, too."""
    given = {**typed, **{name: options[name] for name in _LOG_FLAGS}}
    repeated = [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value]
    flags = {"--no-logging": options["no_logging"], "--no-access-log": not options["access_log"]}
    return [*repeated, *(flag for flag, is_set in flags.items() if is_set)]
