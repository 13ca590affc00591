"""The website: orders come in, and their tasks are looked at, waited for and cancelled."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Header, HTTPException
from pydantic import AwareDatetime, BaseModel, Field

from pyasynq import (
    RedisError,
    Secret,
    TaskFailedError,
    TaskNotFoundError,
    TaskStateError,
    WaitTimeoutError,
)
from shop.application import app, customer
from shop.models import ByCard, ByInvoice, Line, Money, Year
from shop.tasks import build_report, confirm, send_parcel

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class LineIn(BaseModel):
    """One line of an order, as it is posted."""

    article: str
    price: str = Field(pattern=r"^\d+\.\d\d$")
    count: int = Field(default=1, gt=0)


class OrderIn(BaseModel):
    """An order, as it is posted."""

    id: int
    lines: list[LineIn]
    card_token: str | None = None


@asynccontextmanager
async def lifespan(_site: FastAPI) -> AsyncGenerator[None]:
    """Close the connections of the app at the end."""
    async with app:
        yield


site = FastAPI(lifespan=lifespan)


@site.post("/orders")
async def order(posted: OrderIn, x_customer: Annotated[str, Header()] = "none") -> dict[str, str]:
    """Confirm an order, and answer with its total."""
    customer.set(x_customer)
    lines = [Line(one.article, Money.parse(one.price), one.count) for one in posted.lines]
    payment = ByInvoice() if posted.card_token is None else ByCard(Secret(posted.card_token))
    try:
        handle = await confirm.enqueue(posted.id, lines, payment)
    except RedisError as error:
        raise HTTPException(503, "try again later") from error
    try:
        total = await handle.result(timeout=10)
    except WaitTimeoutError:
        return {"task": handle.id}
    except TaskFailedError as error:
        raise HTTPException(502, "the order could not be confirmed") from error
    return {"task": handle.id, "total": str(total)}


@site.put("/orders/{order_id}/parcel")
async def move_parcel(order_id: int, at: AwareDatetime | None = None) -> dict[str, str]:
    """Send a parcel at another time, or now."""
    handle = send_parcel.handle(f"parcel-{order_id}")
    try:
        await (handle.run_now() if at is None else handle.reschedule(at))
    except TaskNotFoundError as error:
        raise HTTPException(404, "parcel not found") from error
    except TaskStateError as error:
        raise HTTPException(409, "the parcel is on its way") from error
    return {"parcel": "now" if at is None else at.isoformat()}


@site.post("/reports/{year}", status_code=202)
async def start_report(year: Year) -> dict[str, str]:
    """Have a report built."""
    handle = await build_report.enqueue(year)
    return {"task": handle.id}


@site.post("/reports", status_code=202)
async def start_reports(years: list[Year]) -> dict[str, int]:
    """Have the reports of several years built."""
    results = await build_report.enqueue_many(build_report.task(year) for year in years)
    return {"enqueued": len(results)}


@site.get("/reports/tasks/{task_id}")
async def show_report(task_id: str) -> dict[str, Any]:
    """Return how far a report is, and its content once it is there."""
    handle = build_report.handle(task_id)
    try:
        state, progress = await handle.state(), await handle.progress()
        done = 0 if progress is None else progress.done
        report = await handle.result(timeout=0) if state == "completed" else None
    except TaskNotFoundError as error:
        raise HTTPException(404, "there is no such report") from error
    return {"state": str(state), "months": done, "report": report}


@site.delete("/reports/tasks/{task_id}")
async def cancel_report(task_id: str) -> dict[str, str]:
    """Have a report that is being built ended."""
    try:
        result = await build_report.handle(task_id).cancel("delete")
    except TaskNotFoundError as error:
        raise HTTPException(404, "there is no such report") from error
    return {"status": str(result.status)}
