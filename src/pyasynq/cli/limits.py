"""The command `pyasynq limits`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._face_records.fields import Field, Kind, View
from pyasynq._face_records.queues import describe_stored_limits
from pyasynq._visible_text import visible
from pyasynq.cli.actions import reason_option
from pyasynq.cli.completion import complete_queues
from pyasynq.cli.nouns import OperatorCommand
from pyasynq.cli.operator_command import operator_command
from pyasynq.errors import QueueNotFoundError

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session
    from pyasynq.limits import LimitChanges, QueueLimits

_PERIODS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0}
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)/([smh])(?:\+(\d+))?")
_NONE: Final = "none"

LIMITS: Final = View(
    "limits",
    "queue",
    (
        Field("queue", Kind.TEXT, "Name of the queue.", "QUEUE", shrinks=True),
        Field(
            "max_run",
            Kind.COUNT,
            "Tasks that run at once in all workers; null for any number.",
            "AT ONCE",
            is_optional=True,
        ),
        Field("active", Kind.COUNT, "Tasks that run.", "ACTIVE"),
        Field("rate", Kind.TEXT, "Starts in a time; null for any number.", "RATE", is_optional=True),
        Field("ordered", Kind.FLAG, "Whether tasks run strictly one after the other.", "ORDERED"),
        Field(
            "asked",
            Kind.TEXTS,
            "What servers ask for, by server; stored limits win.",
            "SERVERS ASK FOR",
            shrinks=True,
        ),
    ),
    "No queues.",
)


class MaxRunType(click.ParamType[Any]):
    """Parameter type for a limit of concurrent tasks: a number, or `none`."""

    name = "number|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the maximum number of tasks, or 0 for no limit."""
        if value == _NONE:
            return 0
        if isinstance(value, str) and value.isdecimal() and int(value):
            return int(value)
        return self.fail(f"{value!r} is not a limit; write a number from 1 on, or none", param, ctx)


class RateType(click.ParamType[Any]):
    """Parameter type for a rate limit such as `50/s` or `100/m+10`, or `none`."""

    name = "rate|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return number of starts, period in seconds, and burst; all three are None for no rate limit."""
        if value == _NONE:
            return (None, None, None)
        found = _RATE.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is not a rate; write it as 50/s, 100/m or 50/s+10, or none", param, ctx)
        return (float(found[1]), _PERIODS[found[2]], int(found[3]) if found[3] else None)


@click.command(
    cls=OperatorCommand,
    examples=(
        "pyasynq limits",
        "pyasynq limits mail --max-run 10 --rate 50/s",
        "pyasynq limits mail --rate none",
    ),
)
@click.argument("queue", required=False, shell_complete=complete_queues)
@click.option("--max-run", type=MaxRunType(), help="Tasks that run at once in all workers.")
@click.option("--rate", type=RateType(), help="Starts in a time in all workers, as in 50/s, 100/m, 50/s+10.")
@click.option("--ordered/--unordered", default=None, help="Whether tasks run strictly one after the other.")
@reason_option
@operator_command
async def limits(
    session: Session, queue: str | None, max_run: Any, rate: Any, reason: str, *, ordered: bool | None
) -> None:
    """Show the limits of queues; with options, change those of one queue. Workers in Go ignore limits."""
    changes: LimitChanges = {}
    if max_run is not None:
        changes["max_run"] = max_run or None
    if rate is not None:
        changes["rate"], changes["period"], changes["burst"] = rate
    if ordered is not None:
        changes["ordered"] = ordered
    if changes:
        if queue is None:
            raise click.UsageError("limits of which queue? Name it, as in  pyasynq limits mail --max-run 10")
        await session.operator.set_queue_limits(queue, reason=reason, **changes)
        click.echo(f"Changed the limits of queue {visible(queue)}; workers obey within 5 s.", err=True)
    elif queue is not None and not await session.operator.queues([queue]):
        raise QueueNotFoundError(queue)

    async def gather() -> list[Record]:
        infos = await session.operator.queue_infos(None if queue is None else [queue])
        servers = await session.operator.servers(running=False)
        asked = {
            info.queue: {one.id: str(one.limits[info.queue]) for one in servers if info.queue in one.limits}
            for info in infos
        }
        return [
            describe_queue_limits(info.queue, info.active, info.limits, asked[info.queue]) for info in infos
        ]

    await session.show(LIMITS, gather)


def describe_queue_limits(queue: str, active: int, limits: QueueLimits, asked: dict[str, str]) -> Record:
    """Return the record of a queue's limits; `asked` has the limits that servers declare, by server id."""
    return {
        "queue": queue,
        "active": active,
        **describe_stored_limits(limits),
        "asked": asked,
    }
