"""The tasks of the shop."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pyasynq import Archive, Retry, context, depends
from shop.application import app, log_duration
from shop.models import ByCard, ByInvoice, Line, Money, Payment, Year
from shop.services import Bank, BankBusyError, DeclinedError, Orders, begin, make_reference, open_bank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq import Task, TypedCall
    from shop.application import Handler


@app.task("parcel:send", ordered=True)
async def send_parcel(order_id: int, orders: Orders = depends(begin)) -> None:
    """Send a parcel. The shop has one van, so these run strictly one after the other."""
    orders.set_state(order_id, "sent")


@app.task("payment:settled", queue="critical")
async def settled(
    id: str,  # noqa: A002 - the names of what every callback takes
    type: str,  # noqa: A002, ARG001
    outcome: str,
    error: str,
    orders: Orders = depends(begin),
) -> None:
    """Write how a payment ended, also if its worker was killed or an operator deleted it."""
    order_id = int(id.removeprefix("capture-"))
    orders.set_state(order_id, "paid" if outcome == "succeeded" else f"unpaid: {error or outcome}")
    if outcome == "succeeded":
        tomorrow = send_parcel.options(task_id=f"parcel-{order_id}", process_in=timedelta(days=1))
        await tomorrow.enqueue(order_id)
    await record_event.options(group="events:orders").enqueue(f"order {order_id}: {outcome}")


@app.task("payment:capture", queue="payments", max_retry=10, timeout=30, on_finished=settled)
async def capture(
    order_id: int,
    amount: Money,
    payment: Payment,
    bank: Bank = depends(open_bank, per="worker"),
    reference: str = depends(make_reference),
) -> None:
    """Take the money for an order. All workers together start at most 50 of these a second."""
    match payment:
        case ByInvoice(days=days):
            context().log.info("order %d is to be paid within %d days", order_id, days)
        case ByCard(token=token):
            try:
                context().log.info("%s", await bank.charge(amount, token.reveal(), reference))
            except BankBusyError as error:
                raise Retry(timedelta(minutes=1)) from error
            except DeclinedError as error:
                raise Archive(str(error)) from error


@capture.use
async def log_payment(call: TypedCall[..., None], call_next: Handler) -> bytes | str | None:
    """Log each attempt to take money; other tasks are not its business."""
    context().log.info("taking %s for order %d", call.arguments["amount"], call.arguments["order_id"])
    return await call_next(call)


@app.task("order:confirm", queue="critical", max_retry=5, timeout=30, result_ttl=timedelta(hours=1))
async def confirm(
    order_id: int, lines: list[Line], payment: Payment, orders: Orders = depends(begin)
) -> Money:
    """Add up an order and have it paid; the total can be read for an hour."""
    total = Money(sum(line.price.cents * line.count for line in lines))
    orders.set_state(order_id, "confirmed")
    context().log.info("order %d: %s", order_id, ", ".join(app.state.title(one.article) for one in lines))
    # A second confirmation of the order enqueues nothing.
    once = capture.with_options(task_id=f"capture-{order_id}", once_for=timedelta(days=1))
    await once.enqueue(order_id, total, payment)
    return total


@app.task("event:record")
async def record_event(text: str) -> None:
    """Record what happened; `digest` makes one message of many."""


@app.task("digest:send", unique=timedelta(minutes=1))
async def send_digest(texts: list[str]) -> None:
    """Tell the team what has happened."""
    context().log.info("news: %s", "; ".join(texts))


@record_event.aggregator("events:*", grace_period=2, max_size=100)
async def digest(group: str, calls: Sequence[TypedCall[[str], None]]) -> Task:
    """Make one message of the events of a group."""
    del group
    return send_digest.task([call.apply(lambda text: text) for call in calls])


@app.task(
    "report:build",
    result_ttl=timedelta(days=1),
    timeout=600,
    executor="process",
    middleware=[log_duration],
)
def build_report(year: Year) -> dict[str, int]:
    """Count something for a long time, in a process that is killed when its time is over."""
    counts: dict[str, int] = {}
    for month in range(1, 13):
        if context().cancelled:
            context().log.warning("the report is broken off: %s", context().cancelled.reason)
            break
        counts[f"{year}-{month:02}"] = month * 1_000
        context().progress(month, 12, note=f"month {month}")
    return counts


@app.cron("0 6 * * mon-fri", misfire="once")
@app.task("report:daily", queue="default", unique=timedelta(hours=1))
async def daily_report() -> None:
    """Have the report of the year built every working day."""
    await build_report.with_headers({"reason": "daily"}).enqueue(2026)
