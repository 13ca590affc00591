"""Typed tasks: declare, enqueue, run.

Run a worker:   pyasynq worker shop:app --redis redis://localhost:6379/0
Enqueue:        PYASYNQ_REDIS_URL=redis://localhost:6379/0 python shop.py
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from pyasynq import App, context

app = App()


@dataclass
class Line:
    """One line of an order."""

    article: str
    price: Decimal
    count: int = 1


@app.task("order:confirm", queue="critical", max_retry=5, timeout=30, retention=3600)
async def confirm(order_id: int, lines: list[Line], ordered_at: datetime) -> Decimal:
    """Add up an order; the result is kept for an hour."""
    total = sum((line.price * line.count for line in lines), Decimal(0))
    context().log.info("order %d of %s: %s", order_id, ordered_at.date(), total)
    return total


@app.task("order:remind")
def remind(order_id: int) -> None:
    """Plain functions run in threads."""
    context().log.info("reminding about order %d", order_id)


async def main() -> None:
    """Enqueue one order, and a reminder for tomorrow."""
    async with app:
        lines = [Line("book", Decimal("12.50"), 2), Line("pen", Decimal("1.20"))]
        handle = await confirm.enqueue(1, lines, ordered_at=datetime.now(UTC))
        print(f"task {handle.id} is in queue {handle.queue}")
        await remind.options(process_in=timedelta(days=1)).enqueue(order_id=1)


if __name__ == "__main__":
    asyncio.run(main())
