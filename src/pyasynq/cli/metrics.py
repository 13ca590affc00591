"""The command `pyasynq metrics`."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import click

from pyasynq._background.plain_http import Answer, PlainHttp
from pyasynq._listener import open_listener
from pyasynq._visible_text import visible
from pyasynq.cli.connection_options import connection_options
from pyasynq.cli.nouns import OperatorCommand

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from pyasynq._background.plain_http import Request
    from pyasynq.cli.connection import Connection
    from pyasynq.metrics import QueueMetrics


@click.command(
    cls=OperatorCommand,
    examples=(
        "pyasynq metrics --redis redis://localhost:6379/0 --port 9876",
        "pyasynq metrics --queues 'mail*' --no-memory",
    ),
)
@click.option("--host", default="0.0.0.0", show_default=True, help="Address to listen on.")  # noqa: S104 - scrapers come from elsewhere
@click.option("--port", type=click.IntRange(0, 65_535), default=9876, show_default=True)
@click.option("--queues", metavar="PATTERN", multiple=True, help="Queues that are shown; may be repeated.")
@click.option(
    "--max-queues",
    type=click.IntRange(min=1),
    default=1_000,
    show_default=True,
    help="Number of queues that are told apart; the others are added up under _other.",
)
@click.option(
    "--memory/--no-memory",
    default=True,
    show_default=True,
    help="Estimate the memory of queues, of 10 to 50 in each reading.",
)
@click.option(
    "--attention", is_flag=True, help="Also expose what needs attention, which takes one more reading."
)
@connection_options
def metrics(
    connection: Connection,
    *,
    host: str,
    port: int,
    queues: tuple[str, ...],
    max_queues: int,
    memory: bool,
    attention: bool,
) -> None:
    """Serve the metrics of all queues to Prometheus at /metrics.

    A reading of Redis is kept for 50 times as long as it took, so that
    scrapes take at most 2 % of Redis' time. While Redis is unreachable,
    pyasynq_redis_up is 0.
    """
    from pyasynq.app import App  # noqa: PLC0415 - --help does without
    from pyasynq.metrics import QueueMetrics  # noqa: PLC0415 - of this command alone

    listener = open_listener(host, port)
    port = int(listener.getsockname()[1])
    shown = f"[{host}]" if ":" in host else host
    address = visible(App(connection.url).address)
    click.echo(f"Metrics of {address} are at http://{shown}:{port}/metrics  (Ctrl-C stops it)", err=True)

    def make() -> QueueMetrics:
        return QueueMetrics(
            connection.url, queues=queues or "*", max_queues=max_queues, memory=memory, attention=attention
        )

    asyncio.run(_serve(listener, make))


async def _serve(listener: socket.socket, make: Callable[[], QueueMetrics]) -> None:
    """Serve /metrics until SIGINT or SIGTERM; `make` returns the source of the metrics."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with make() as source:

        async def respond(request: Request) -> Answer:
            if request.path != "/metrics":
                return Answer(404, b"only /metrics exists\n", "text/plain; charset=utf-8")
            content_type, body = await source.render(request.headers.get("accept", ""))
            _report(source)
            return Answer(200, body, content_type)

        server = await PlainHttp(respond).start(listener)
        await stopped.wait()
        server.close()


def _report(source: QueueMetrics) -> None:
    """Print on stderr why Redis could not be read, if it could not."""
    if source.error is not None:
        click.echo(f"Redis could not be read: {visible(source.error)}", err=True)
