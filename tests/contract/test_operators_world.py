"""The world of operators: searches answer over it, and no call keeps Redis busy for long."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import sync
from pyasynq.operations.query import parse_query
from pyasynq.operations.selection import Budget
from pyasynq.operations.sync.select import Selector
from tests.operators_world import HOSTILE_NAMES, STATES, fill
from tests.slow_calls import within_limit

if TYPE_CHECKING:
    from pyasynq.operations.query import Query
    from pyasynq.operations.selection import Selection

EVERYTHING = Budget(10**9, 3_600)


@pytest.mark.long
@pytest.mark.single_server("it is filled over one connection")
@pytest.mark.usefixtures("damage_allowed")
def test_the_world_has_what_it_says(redis_client: Any, redis_url: str) -> None:
    """Queues and tasks of all states, and damaged ones, which every walk gets past."""
    world = fill(redis_client, queues=30, tasks=3_000, deep=0.3)
    with sync.Inspector(redis_url) as inspector:
        assert sorted(world.queues) == inspector.queues()
        assert set(HOSTILE_NAMES[:15]) <= set(world.queues)
        selector = Selector(inspector)
        *_, last = selector.pages(parse_query(""), limit=10**6, budget=EVERYTHING)
    assert (world.tasks, "") == (last.looked_at, last.cursor)
    assert {state.value for state, _ in STATES} | {"active"} == set(last.facets.states)
    assert 4 == last.looked_at - last.matches, "a missing hash, two broken messages, and an unknown state"


def last_page(inspector: sync.Inspector, query: Query) -> Selection:
    """Return the last page of a search."""
    *_, last = Selector(inspector).pages(query)
    return last


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.single_server("it is filled over one connection")
@pytest.mark.usefixtures("damage_allowed")
def test_no_call_over_a_million_tasks_keeps_redis_busy_for_long(redis_client: Any, redis_url: str) -> None:
    """SLOWLOG holds no call of a search over 1,000 queues."""
    fill(redis_client, queues=1_000, tasks=1_000_000, deep=0.5)
    with sync.Inspector(redis_url) as inspector:
        for text, most in (
            ("", 50),
            ("archived:<1h error:timeout", 5_000),
            ("type:report:*", 5_000),
            # Every task is sent, one of 5 MB among them.
            ("archived:<2h -type:image:resize queue:queue-00984", 5_000),
            ("payload.user_id:1", 100_500),
            ("waiting:>1m", 100_500),
            ("nope", 100_500),
        ):
            query = parse_query(text)
            last = within_limit(redis_client, functools.partial(last_page, inspector, query))
            assert last.looked_at <= most, text
