"""The commands `pyasynq delivery`: requests of the task service to hosts."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import click

from pyasynq._face_records.service_reports import DELIVERIES, DELIVERY, describe_delivery
from pyasynq._visible_text import visible, visible_lines
from pyasynq.cli.actions import for_each
from pyasynq.cli.nouns import NounGroup
from pyasynq.cli.operator_command import operator_command
from pyasynq.cli.output.cells import short_duration
from pyasynq.cli.output.printer import format_pairs, show
from pyasynq.errors import ReportNotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session
    from pyasynq.cli.output.cells import Moment
    from pyasynq.operations import FailedExchange, HostDeliveries


@click.group(cls=NounGroup, aliases={"ls": "list"})
def delivery() -> None:
    """List the hosts that the task service sends tasks to, and the requests that failed."""


@delivery.command("list", examples=("pyasynq delivery ls", "pyasynq delivery ls --watch"))
@operator_command
async def list_deliveries(session: Session) -> None:
    """List the requests of the last hour by host and task type."""

    async def gather() -> list[Record]:
        return [describe_delivery(one) for one in await session.operator.deliveries()]

    await session.show(DELIVERIES, gather)


@delivery.command(
    "inspect",
    examples=("pyasynq delivery inspect billing.example", "pyasynq delivery inspect invoices -o json"),
)
@click.argument("names", metavar="HOST|TYPE|ID...", nargs=-1, required=True)
@operator_command
async def inspect_deliveries(session: Session, names: Sequence[str]) -> int:
    """Show the requests of task types to hosts, each with its newest failed request and the answer."""
    listed = await session.operator.deliveries()
    found: dict[str, HostDeliveries] = {}

    async def find(name: str) -> None:
        by_id = {str(describe_delivery(one)["id"]): one for one in listed}
        named = {key: one for key, one in by_id.items() if name in {key, one.host, one.queue}}
        if not named:
            raise ReportNotFoundError("delivery", name)
        found.update(named)

    code = await for_each(names, find)
    if not found:
        return code
    if session.printer.is_for_people and session.printer.fields is None:
        moment = session.printer.moment()
        show("\n".join(describe_delivery_in_words(one, moment) for one in found.values()))
    else:
        session.printer.records(DELIVERY, [describe_delivery(one) for one in found.values()])
    return code


def describe_delivery_in_words(one: HostDeliveries, moment: Moment) -> str:
    """Format the requests of a task type to a host as lines of text."""
    record = describe_delivery(one)
    statuses = ", ".join(f"{count:,} {visible(name)}" for name, count in record["statuses"].items())
    pairs = [
        ("Host", visible(one.host)),
        ("Type", visible(one.queue)),
        ("State", one.state),
        ("Requests", f"{one.calls:,} within the last hour: {statuses}" if statuses else "0"),
    ]
    if record["p50"] is not None:
        times = (short_duration(record[name]) for name in ("p50", "p99"))
        pairs.append(("Duration", "{} median, {} for 99%".format(*times)))
    if one.throttled_until is not None:
        pairs.append(("Throttled", f"until {moment.exact(one.throttled_until)}"))
    if one.gone_at is not None:
        pairs.append(("Gone", f"{moment.relative(one.gone_at)}; its queue was paused"))
    pairs.append(("Seen", moment.relative(one.seen)))
    return format_pairs(pairs) + ("" if one.failed is None else _describe_exchange(one.failed, moment))


def _describe_exchange(one: FailedExchange, moment: Moment) -> str:
    """Format a failed request and its answer as lines of text."""
    pairs = [
        ("Task", visible(one.task_id)),
        ("Attempt", f"{one.attempt:,}, {moment.relative(one.at)}, after {short_duration(one.seconds)}"),
        ("Error", visible(one.reason)),
    ]
    request = [visible(f"{one.method} {one.url}"), *_list_headers(one.headers)]
    answer = [_describe_status(one.status), *_list_headers(one.answer_headers)]
    body = visible_lines(one.answer_body.decode("utf-8", "replace")).expandtabs()
    answer += ["", *body.split("\n")] if body else []
    return "".join(
        (
            "Newest failed request\n",
            _indent(format_pairs(pairs).splitlines()),
            "Request\n",
            _indent(request),
            "Answer\n",
            _indent(answer),
        )
    )


def _list_headers(headers: Sequence[tuple[str, str]]) -> list[str]:
    return [visible(f"{name}: {value}") for name, value in headers]


def _describe_status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status) if status else "(none)"


def _indent(lines: Sequence[str]) -> str:
    return "".join(f"  {line}".rstrip() + "\n" for line in lines)
