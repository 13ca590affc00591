"""The command `pyasynq ping`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from pyasynq._exit_codes import EXIT_UNREACHABLE
from pyasynq._visible_text import visible
from pyasynq.cli.connection_options import connection_options
from pyasynq.cli.nouns import OperatorCommand
from pyasynq.errors import PyasynqError

if TYPE_CHECKING:
    from pyasynq.cli.connection import Connection


@click.command(
    cls=OperatorCommand, examples=("pyasynq ping", "pyasynq ping --redis redis://localhost:6379/0")
)
@connection_options
def ping(connection: Connection) -> None:
    """Send PING to Redis; exit with 5 if it does not answer, 2 for wrong usage."""
    # Imported late: help needs no Redis. A client instead of a driver would double the time until the answer.
    from pyasynq.cli.redis_without_metrics import import_redis_without_metrics  # noqa: PLC0415 - as above

    import_redis_without_metrics()
    from pyasynq._redis.driver import BlockingDriver  # noqa: PLC0415 - as above
    from pyasynq._redis.facts import check_health  # noqa: PLC0415 - as above
    from pyasynq._redis.url import parse_redis_url  # noqa: PLC0415 - as above

    target = parse_redis_url(connection.url)
    driver = BlockingDriver(target)
    began = time.perf_counter()
    try:
        driver.run(check_health())
    except PyasynqError as error:
        click.echo(f"Error: {visible(error)}", err=True)
        raise SystemExit(EXIT_UNREACHABLE) from error
    finally:
        driver.close()
    took = (time.perf_counter() - began) * 1000
    click.echo(f"Redis at {visible(target.address)} answered in {took:.1f} ms.")
