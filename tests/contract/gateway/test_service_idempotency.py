"""Repeated requests to enqueue whose first answer was lost between Redis and the service. (T-idem)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.factories import Tasks
from tests.fix_proxy import Cut
from tests.fix_service import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.fix_proxy import Proxy
    from tests.invariants import RedisClient

FORMS: dict[str, Any] = {
    "idempotency key": lambda n: ({"type": "resize", "params": n}, {"Idempotency-Key": str(n)}),
    "short form": lambda n: ({"task_id": n, "task_name": "resize", "params": n}, {}),
}


@pytest.mark.parametrize("times", [20, pytest.param(1_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("form", FORMS)
@run_async
async def test_a_lost_reply_never_makes_two_tasks(
    proxy: Proxy, redis_client: RedisClient, form: str, times: int
) -> None:
    """Redis has written, and the connection breaks before or within its reply; the program asks again."""
    async with serving(proxy.url) as visitor:
        await visitor.ask("POST", "/v1/tasks", {"type": "deliver"})
        ids = []
        for number in range(times):
            body, headers = FORMS[form](number)
            proxy.cut((Cut.BEFORE_REPLY, Cut.IN_REPLY)[number % 2], containing=b"EVALSHA")
            first = await visitor.ask("POST", "/v1/tasks", body, headers=headers)
            assert first.status_code in {200, 201, 503}, first.text
            again = await visitor.ask("POST", "/v1/tasks", body, headers=headers)
            assert (200, True) == (again.status_code, again.json()["existing"])
            assert first.status_code == 503 or first.json()["id"] == again.json()["id"]
            ids.append(again.json()["id"])
        assert times <= proxy.cuts

    assert sorted(ids) == sorted(Tasks(redis_client, "resize").ids("pending"))
    assert times == len(set(ids))
