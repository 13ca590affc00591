"""A deletion from the dashboard whose process is killed: another process goes on, and a click undoes all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.page_deletion import run

if TYPE_CHECKING:
    from tests.invariants import RedisClient


@pytest.mark.long
def test_a_deletion_survives_its_process_and_is_undone_by_a_click(
    redis_url: str, redis_client: RedisClient
) -> None:
    """The rate makes it last: the page shows progress, and there is a middle in which to kill."""
    journey = run(redis_client, redis_url, 2_000, rate="250", shorten_lease=True)
    assert 0 < journey.deleted_at_kill < journey.tasks
    assert journey.seen_after_kill[-1] == journey.tasks
