"""The command `pyasynq service`: the task service, from its file."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._exit_codes import EXIT_FAILED, EXIT_UNREACHABLE
from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.cli.log_options import log_options, set_up_logging
from pyasynq.cli.nouns import OperatorCommand
from pyasynq.errors import ConfigurationError, RedisError

if TYPE_CHECKING:
    import uvicorn

    from pyasynq.gateway.api import TaskService
    from pyasynq.gateway.configurations import ServiceFile, ServiceSettings

_GRACE_SECONDS: Final = 30
"""Time for open requests at a shutdown: longer than an act waits for Redis."""
_NO_KEY: Final = """\
{address} asks for API keys, and there is none yet. Make one:
  pyasynq key make admin --scope admin"""
_UNSIGNED: Final = """\
PYASYNQ_SECRET is not set: leases end with this process, and a second instance cannot settle them."""


@click.command(
    cls=OperatorCommand,
    examples=("pyasynq service service.toml", "pyasynq service service.toml --check"),
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--redis", metavar="URL", help="Where Redis is, in place of what the file says.")
@click.option("--check", is_flag=True, help="Read the file, say what is wrong with it, and exit.")
@log_options
def service(file: Path, redis: str | None, *, check: bool, **options: Any) -> None:
    """Serve tasks over HTTP to programs and workers in any language.

    An address that other machines reach asks for API keys; `pyasynq key make` makes them.

    Exit codes: 0 stopped; 1 it could not start; 2 wrong usage; 5 Redis does not answer.
    """
    from pyasynq.gateway.configurations import read_service_file  # noqa: PLC0415 - of the extra `service`

    read = read_service_file(file)
    if redis:
        read = dataclasses.replace(read, service=dataclasses.replace(read.service, redis=redis))
    if check:
        _tell_checked(file, read)
        return
    set_up_logging(options)
    raise SystemExit(asyncio.run(_serve(read)))


def _tell_checked(file: Path, read: ServiceFile) -> None:
    from pyasynq.gateway.api import task_service  # noqa: PLC0415 - as above

    task_service(read)
    who = "with an API key" if read.service.keys else "from this machine, without a key"
    types = counted(len(read.tasks), "task type")
    click.echo(f"{visible(file)} is right: {types}, on {_format_address(read.service)}, {who}.")


async def _serve(read: ServiceFile) -> int:
    import uvicorn  # noqa: PLC0415 - as above

    from pyasynq.cli.web_server import make_server  # noqa: PLC0415 - as above
    from pyasynq.gateway.api import task_service  # noqa: PLC0415 - as above
    from pyasynq.web.auth.secret import SigningSecret  # noqa: PLC0415 - as above

    site = task_service(read, needs_keys=read.service.keys)
    config = uvicorn.Config(
        site,
        host=read.service.host,
        port=read.service.port,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = make_server(config)
    try:
        await _check_keys(site, read.service)
        await site.start()
        if SigningSecret().is_generated:
            click.echo(_UNSIGNED, err=True)
        click.echo(f"The task service is at {_format_address(read.service)}  (Ctrl-C stops it)", err=True)
        _stop_at_signals(server, site)
        await server.serve()
    except RedisError as error:
        click.echo(f"Error: {visible(error)}", err=True)
        return EXIT_UNREACHABLE
    finally:
        await site.close()
    return 0 if server.started else EXIT_FAILED


async def _check_keys(site: TaskService, settings: ServiceSettings) -> None:
    """Refuse an address that asks for keys while there is none.

    Raises:
        ConfigurationError: there is none.
    """
    if settings.keys and not await site.has_keys():
        raise ConfigurationError(_NO_KEY.format(address=_format_address(settings)))


def _stop_at_signals(server: uvicorn.Server, site: TaskService) -> None:
    """End at INT and TERM: waiting requests are answered, others go on; a second signal waits for none."""

    def stop() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True
        site.end_waits()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def _format_address(settings: ServiceSettings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"
