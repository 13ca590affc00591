"""What a heartbeat does to leases.

Asynq's comes every five seconds by a timer that cannot be set, so it is not a step of the drawn sequences;
there, time passes for tasks that are held as if their workers had renewed them.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from pyasynq._engine.services.heartbeater import Heartbeater
from tests.interop.go_peer import GoPeer, task
from tests.interop.intended import QUIET
from tests.interop.normal import differences, normalize
from tests.interop.our_side import OurSide
from tests.interop.steps import LEASE, SLOTS, Step
from tests.waiting import PATIENCE, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.database import Database
    from tests.interop.normal import Snapshot

LEASES = "asynq:{default}:lease"
SOON = 6
"""Seconds that a lease holds when the next heartbeat of Go comes, which is within five."""


def of_queues(database: Database) -> Snapshot:
    """Return the keys and values in Redis without the records of servers."""
    entries = {key: entry for key, entry in database.read().items() if key.startswith("asynq:{")}
    return normalize(entries, entries.keys())


def test_a_renewal_leaves_the_same_leases(peer_program: Path, databases: tuple[Database, Database]) -> None:
    """The lease of a task that is held lasts 30 s again.

    One that somebody has removed comes back with us, while the task is active and names our attempt (H7).
    With Asynq it does not, and the task is not recovered when its worker dies.
    """
    for one in databases:
        one.clear()
    with (
        closing(GoPeer(peer_program, databases[0].url)) as go,
        closing(OurSide(databases[1].url)) as our,
    ):
        for task_id in ("held", "lost"):
            go.enqueue(task=task("t", task_id=task_id))
            our.do(Step("enqueue", {"task_type": "t", "payload": None, "options": {"task_id": task_id}}))
        go.start_server(server="s", config={"concurrency": 2, "task_check_interval": 0.01})
        assert {"held", "lost"} == {go.next_attempt(server="s", timeout=PATIENCE)["id"] for _ in range(2)}
        for slot in SLOTS[:2]:
            assert isinstance(our.do(Step("take", {"slot": slot})).value, tuple)
        for one in databases:
            one.client.zadd(LEASES, {"held": int(time.time()) + SOON}, xx=True)
            one.client.zrem(LEASES, "lost")
        wait_until(lambda: databases[0].client.zscore(LEASES, "held") > time.time() + LEASE - SOON)
        for slot in SLOTS[:2]:
            engine = our._workers[slot]
            heartbeater = engine.services["heartbeater"]
            assert isinstance(heartbeater, Heartbeater)
            assert [] == heartbeater._renewal.renew(engine.engine._roster.snapshot()).lost
        theirs, ours = map(of_queues, databases)
        assert [{"held"}, {"held", "lost"}] == [one[LEASES].keys() for one in (theirs, ours)]
        assert abs(ours[LEASES]["lost"] - time.time() - LEASE) < SOON
        del ours[LEASES]["lost"]
        found = differences(theirs, ours)
        step = Step("renew", {})
        assert [] == [one for one in found if not any(entry.covers(step, one, found) for entry in QUIET)]
    for one in databases:
        one.clear()
