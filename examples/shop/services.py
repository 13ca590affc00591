"""What handlers depend on: the orders of the shop, and the bank. Tests replace them."""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyasynq import TaskContext, depends

if TYPE_CHECKING:
    from collections.abc import Generator

    from shop.models import Money


class BankBusyError(Exception):
    """The bank asks for another call later."""


class DeclinedError(Exception):
    """The bank refuses the payment for good."""


class Bank:
    """Stands for the client of a bank."""

    async def charge(self, amount: Money, token: str, reference: str) -> str:
        """Take an amount from a card, once for each reference, and return the bank's answer.

        Raises:
            BankBusyError: for now.
            DeclinedError: for good.
        """
        if token.startswith("declined"):
            raise DeclinedError("insufficient funds")
        return f"charged {amount} to a card that ends with {token[-2:]}, as {reference}"


async def open_bank() -> Bank:
    """Return the client of the bank; each worker process has one."""
    return Bank()


def make_reference(running: TaskContext) -> str:
    """Return a text that is the same for all attempts at a task, so that none charges a second time."""
    return f"{running.queue}/{running.task_id}"


class Orders:
    """States of orders, in a table."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)"
        )

    def set_state(self, order_id: int, state: str) -> None:
        """Write the state of an order."""
        self._connection.execute(
            "INSERT INTO orders VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET state = excluded.state",
            (order_id, state),
        )

    def state(self, order_id: int) -> str:
        """Return the state of an order; empty for one that does not exist."""
        row = self._connection.execute("SELECT state FROM orders WHERE id = ?", (order_id,)).fetchone()
        return "" if row is None else str(row[0])


@contextmanager
def open_database() -> Generator[sqlite3.Connection, None, None]:
    """Open the file of the orders, for the life of a worker process."""
    connection = sqlite3.connect(
        os.environ.get("SHOP_DATABASE", "shop.sqlite"),
        timeout=30,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        yield connection
    finally:
        connection.close()


async def begin(connection: sqlite3.Connection = depends(open_database, per="worker")) -> Orders:
    """Return the orders, for one attempt."""
    return Orders(connection)
