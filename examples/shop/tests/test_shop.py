"""Tests of the shop, with the kit of pyasynq: a real queue, no worker, and a clock that is moved."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from httpx import ASGITransport, AsyncClient

from pyasynq import PayloadEncodingError, Secret
from pyasynq.testing import Kit, use
from shop import app
from shop.models import ByCard, ByInvoice, Line, Money
from shop.services import Bank, BankBusyError, Orders, begin, open_bank
from shop.tasks import build_report, capture, confirm, daily_report, send_digest, send_parcel, settled
from shop.website import site

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

LINES = [Line("book", Money(1250), 2), Line("pen", Money(120))]


@pytest.fixture
def orders() -> Orders:
    """Orders in memory."""
    return Orders(sqlite3.connect(":memory:", check_same_thread=False))


@pytest.fixture
def kit(orders: Orders) -> Iterator[Kit]:
    """The app under test, with orders in memory."""
    with use(app) as kit:
        kit.override(begin, lambda: orders)
        yield kit


def test_an_order_is_added_up_and_paid(kit: Kit, orders: Orders) -> None:
    """The callback writes how the payment ended, and the team gets one message."""
    assert Money(2620) == kit.perform_sync(confirm, 1, LINES, ByCard(Secret("tok-42"))).result
    kit.assert_enqueued(capture, order_id=1, amount=Money(2620), queue="payments")
    report = kit.advance_sync(seconds=10)
    assert "paid" == orders.state(1)
    assert (1, 1) == (len(report.of(settled)), len(report.of(send_digest)))


def test_a_second_confirmation_takes_no_second_payment(kit: Kit) -> None:
    """Also when the first payment has ended and is gone."""
    for _ in range(2):
        kit.perform_sync(confirm, 1, LINES, ByInvoice())
        kit.drain_sync()
    assert 1 == sum(attempt.type == "payment:capture" for attempt in kit.attempts)


def test_a_declined_payment_is_given_up(kit: Kit, orders: Orders) -> None:
    """It is archived at once, and the order says why."""
    kit.perform_sync(confirm, 1, LINES, ByCard(Secret("declined")))
    kit.drain_sync(raises=False)
    assert "unpaid: insufficient funds" == orders.state(1)
    assert 1 == len(kit.inspector.list_tasks("payments", "archived"))


class BusyBank(Bank):
    """A bank that is busy for one call."""

    def __init__(self) -> None:
        self.references: list[str] = []

    async def charge(self, amount: Money, token: str, reference: str) -> str:
        """Refuse the first call."""
        self.references.append(reference)
        if len(self.references) == 1:
            raise BankBusyError
        return await super().charge(amount, token, reference)


def test_a_busy_bank_is_asked_again_after_a_minute(kit: Kit, orders: Orders) -> None:
    """Under the same reference. No real time passes."""
    bank = BusyBank()
    kit.override(open_bank, bank)
    kit.perform_sync(confirm, 1, LINES, ByCard(Secret("tok-42")))
    kit.drain_sync(raises=False)
    assert (["payments/capture-1"], "confirmed") == (bank.references, orders.state(1))
    kit.advance_sync(minutes=1)
    assert (["payments/capture-1"] * 2, "paid") == (bank.references, orders.state(1))


def test_a_paid_order_is_sent_a_day_later(kit: Kit, orders: Orders) -> None:
    """The task waits in the queue of the van."""
    kit.perform_sync(confirm, 1, LINES, ByCard(Secret("tok-42")))
    kit.drain_sync()
    kit.assert_enqueued(send_parcel, order_id=1, queue="parcel:send")
    kit.advance_sync(hours=23)
    assert "paid" == orders.state(1)
    kit.advance_sync(hours=1)
    assert "sent" == orders.state(1)


def test_a_year_is_checked_before_anything_is_sent(kit: Kit) -> None:
    """The annotation of the argument says which years there are."""
    with pytest.raises(PayloadEncodingError, match="year"):
        build_report.enqueue_sync(20_026)
    kit.drain_sync()
    assert [] == kit.attempts


def test_the_report_is_built_on_working_days(kit: Kit) -> None:
    """Five times a week."""
    report = kit.advance_sync(days=7)
    assert 5 == len(report.of(daily_report)) == len(report.of(build_report))


@asynccontextmanager
async def open_site(orders: Orders) -> AsyncGenerator[tuple[Kit, AsyncClient]]:
    """Yield a kit, and a visitor of the website."""
    async with use(app) as kit:
        kit.override(begin, lambda: orders)
        async with AsyncClient(transport=ASGITransport(site), base_url="http://shop") as visitor:
            yield kit, visitor


ORDER: dict[str, Any] = {"id": 7, "lines": [{"article": "book", "price": "12.50"}]}


def test_the_website_answers_with_the_total(orders: Orders) -> None:
    """A view waits for its task while the kit runs it."""

    async def visit() -> None:
        async with open_site(orders) as (kit, visitor):
            with kit.eager():
                answer = await visitor.post("/orders", json=ORDER, headers={"X-Customer": "ada"})
            assert "12.50" == answer.json()["total"]
            assert "paid" == orders.state(7)
            assert ["order:confirm", "payment:capture"] == [attempt.type for attempt in kit.attempts[:2]]

    asyncio.run(visit())


def test_a_parcel_is_moved_and_then_sent_at_once(orders: Orders) -> None:
    """While it waits for its time."""

    async def visit() -> None:
        async with open_site(orders) as (kit, visitor):
            with kit.eager():
                await visitor.post("/orders", json=ORDER)
            later = (kit.now + timedelta(days=3)).isoformat()
            moved = await visitor.put("/orders/7/parcel", params={"at": later})
            await kit.advance(days=2)
            assert (200, "paid") == (moved.status_code, orders.state(7))
            await visitor.put("/orders/7/parcel")
            again = await visitor.put("/orders/7/parcel")
            await kit.drain()
            assert (409, "sent") == (again.status_code, orders.state(7))
            assert 404 == (await visitor.put("/orders/8/parcel")).status_code

    asyncio.run(visit())


def test_the_website_shows_how_far_a_report_is(orders: Orders) -> None:
    """Also several can be ordered at once."""

    async def visit() -> None:
        async with open_site(orders) as (kit, visitor):
            started = (await visitor.post("/reports/2026")).json()["task"]
            await kit.drain()
            shown = (await visitor.get(f"/reports/tasks/{started}")).json()
            assert ("completed", 12) == (shown["state"], shown["months"])
            assert 404 == (await visitor.get("/reports/tasks/none")).status_code
            several = await visitor.post("/reports", json=[2024, 2025])
            assert {"enqueued": 2} == several.json()
            kit.assert_enqueued(build_report, year=2024)
            await kit.drain()

    asyncio.run(visit())
