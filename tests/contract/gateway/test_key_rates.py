"""Rates of API keys at the task service: what is refused, what answers tell, and what a call costs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pyasynq.errors import TaskNotFoundError
from tests.contract.gateway.test_leases import check_problem
from tests.contract.gateway.test_service_metrics import visiting
from tests.fix_service import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    import httpx

    from tests.fix_proxy import Proxy
    from tests.invariants import RedisClient

pytestmark = pytest.mark.usefixtures("redis_client")
POLICY = '"key";q=60;w=3600'
TYPES = "/v1/task-types"


def fields_of(answer: httpx.Response) -> tuple[str | None, str | None]:
    """Return the fields about the rate."""
    return answer.headers.get("ratelimit-policy"), answer.headers.get("ratelimit")


def check_fields(answer: httpx.Response, left: int, fill: int) -> None:
    """Compare the fields with what they must be, for a machine that may be half a minute slow."""
    policy, state = fields_of(answer)
    found = re.fullmatch(r'"key";r=(\d+);t=(\d+)', state or "")
    assert (POLICY, True) == (policy, found is not None)
    assert found is not None
    assert left == int(found[1])
    assert fill - 30 <= int(found[2]) <= fill


@run_async
async def test_a_request_above_the_rate_is_refused_and_does_nothing(redis_url: str) -> None:
    """Each answer says how many are left; other keys are not concerned."""
    async with serving(redis_url, needs_keys=True) as visitor:
        key = await visitor.make_key("tasks:write", rate="60/h+2")
        for number, left in ((1, 1), (2, 0)):
            body = {"type": "resize", "options": {"task_id": f"t{number}"}}
            answer = await visitor.ask("POST", "/v1/tasks", body, key=key)
            assert 201 == answer.status_code
            check_fields(answer, left, 60 * number)
        refused = await visitor.ask(
            "POST", "/v1/tasks", {"type": "resize", "options": {"task_id": "t3"}}, key=key
        )
        problem = check_problem(refused, 429, "rate_limited")
        assert "60/h+2" in problem["detail"]
        check_fields(refused, 0, 120)
        assert 30 <= int(refused.headers["retry-after"]) <= 60
        assert [1, 1, 1] == [
            len(refused.headers.get_list(name)) for name in ("retry-after", "ratelimit", "ratelimit-policy")
        ]
        with pytest.raises(TaskNotFoundError):
            await visitor.operator.task("resize", "t3")
        other = await visitor.make_key("tasks:write", name="other", rate="60/h+2")
        assert 200 == (await visitor.ask("GET", TYPES, key=other)).status_code


@run_async
async def test_all_instances_share_the_rate_of_a_key(redis_url: str) -> None:
    """It also holds after a rotation, with both secrets."""
    async with (
        serving(redis_url, needs_keys=True) as one,
        serving(redis_url, needs_keys=True) as other,
    ):
        key = await one.make_key("tasks:read", rate="60/h+3")
        new = (await one.operator.rotate_api_key(one.keys["test"].key.id)).text
        statuses = [
            (await visitor.ask("GET", TYPES, key=text)).status_code
            for visitor, text in ((one, key), (other, new), (one, new), (other, key))
        ]
    assert [200, 200, 200, 429] == statuses


@run_async
async def test_leases_and_wrong_requests_count_and_tell_the_rate(redis_url: str) -> None:
    """Whatever the answer is: a success, an empty one, a missing scope, or a wrong field."""
    async with serving(redis_url, needs_keys=True) as visitor:
        key = await visitor.make_key("work", rate="60/h+5")
        answers = [
            await visitor.ask("POST", path, body, key=key)
            for path, body in (
                ("/v1/leases", {"queues": ["resize"]}),
                ("/v1/leases", {"queue": []}),
                ("/v1/attempts/x:extend", {}),
                ("/v1/tasks", {"type": "resize"}),
                ("/v1/attempts:batch", {"attempts": []}),
                ("/v1/leases", {"queues": ["resize"]}),
            )
        ]
    assert [204, 422, 404, 403, 422, 429] == [answer.status_code for answer in answers]
    for number, (answer, left) in enumerate(zip(answers, (4, 3, 2, 1, 0, 0), strict=True), 1):
        check_fields(answer, left, 60 * min(number, 5))


@run_async
async def test_scrapes_and_streams_count_and_tell_the_rate(redis_url: str) -> None:
    """Each field stands once, also in a refusal."""
    async with visiting(redis_url, needs_keys=True) as visitor:
        key = await visitor.make_key("tasks:write", "metrics:read", rate="60/h+2")
        lines = {"content-type": "application/x-ndjson"}
        body = b'{"type":"resize"}\n'
        stream = await visitor.ask("POST", "/v1/tasks:batch", body, key=key, headers=lines)
        scraped, refused = [await visitor.ask("GET", "/metrics", key=key) for _ in range(2)]
    assert [200, 200] == [stream.status_code, scraped.status_code]
    check_problem(refused, 429, "rate_limited")
    for answer, left, fill in ((stream, 1, 60), (scraped, 0, 120), (refused, 0, 120)):
        check_fields(answer, left, fill)
        assert 1 == len(answer.headers.get_list("ratelimit"))


@run_async
async def test_a_key_without_a_rate_costs_no_call(redis_url: str, redis_client: RedisClient) -> None:
    """And its answers tell none; one with a rate costs one call."""

    def count_scripts() -> int:
        stats = redis_client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))

    async with serving(redis_url, needs_keys=True) as visitor:
        free = await visitor.make_key("tasks:read", name="free")
        limited = await visitor.make_key("tasks:read", name="limited", rate="50/s")
        for key in (free, limited):
            await visitor.ask("GET", TYPES, key=key)
        costs = []
        for key in (free, limited):
            before = count_scripts()
            answer = await visitor.ask("GET", TYPES, key=key)
            costs.append((count_scripts() - before, fields_of(answer) == (None, None)))
    assert [(0, True), (1, False)] == costs


@run_async
async def test_while_redis_is_away_the_request_fails_as_others_do(proxy: Proxy) -> None:
    """It is not let in unseen; nor is it refused for its rate."""
    async with serving(proxy.url, timeout=0.5, needs_keys=True) as visitor:
        key = await visitor.make_key("tasks:read", rate="50/s")
        assert 200 == (await visitor.ask("GET", TYPES, key=key)).status_code
        proxy.refuse()
        proxy.cut_all()
        away = await visitor.ask("GET", TYPES, key=key)
        assert (503, True) == (away.status_code, "retry-after" in away.headers)
        assert (None, None) == fields_of(away)
        proxy.refuse(refusing=False)
        assert 200 == (await visitor.ask("GET", TYPES, key=key)).status_code
