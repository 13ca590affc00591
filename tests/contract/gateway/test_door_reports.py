"""What an instance reports of its Gearman door: connections, functions and running jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq.gateway.doors.gearman.door_table import DoorTable
from pyasynq.gateway.doors.gearman.packets import PacketType
from pyasynq.operations import report_doors
from tests.fix_gearman import connected, opened
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq.gateway.doors.gearman.session import GearmanSession

pytestmark = pytest.mark.usefixtures("redis_client")


@run_async
async def test_a_door_is_reported_with_its_connections(redis_url: str) -> None:
    """Workers by their functions, and the other connections as clients; in the end it is closed."""
    async with opened(redis_url) as door, connected(door, "resize") as worker, connected(door) as client:
        await client.submit("resize", kind=18)
        await worker.grab()
        await report_doors(door.operator, "i", door.door.table.take_changed())
        [found] = await door.operator.service_doors()
        door.door.stop()
        await report_doors(door.operator, "i", door.door.table.take_changed())
        [closed] = await door.operator.service_doors()

    assert ("gearman", "open", 1, 1, 1, {"resize": 1}) == (
        found.protocol,
        found.state,
        found.workers,
        found.clients,
        found.running,
        found.functions,
    )
    assert found.address.startswith("127.0.0.1:")
    assert ("closed", found.id) == (closed.state, closed.id)


@run_async
async def test_a_door_is_reported_when_something_changes_or_grows_old(redis_url: str) -> None:
    """One that was never opened is not reported; a report that was not stored comes back."""
    now = [1_800_000_000.0]
    sessions: set[GearmanSession] = set()
    table = DoorTable(sessions, clock=lambda: now[0])

    assert [] == table.take_changed()
    table.note_opened("h:4730")
    [first] = table.take_changed()
    assert [] == table.take_changed()
    now[0] += 31
    assert [first] == table.take_changed()
    table.put_back([first])
    assert [first] == table.take_changed()
    async with opened(redis_url) as door, connected(door, "resize") as worker:
        await worker.ask(PacketType.ECHO_REQ, b"x")
        sessions |= door.door._parts.sessions
        assert [1] == [one.workers for one in table.take_changed()]
