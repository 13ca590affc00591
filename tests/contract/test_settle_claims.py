from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._redis.plan import ScriptCall
from pyasynq.errors import RedisReplyError
from tests.contract.settling import every_settle
from tests.factories import LEASE_SCORE, Tasks, claim
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from tests.contract.settling import Settle
    from tests.invariants import RedisClient


def dump(redis_client: RedisClient) -> dict[bytes, bytes]:
    """Return everything that is in Redis."""
    return {key: redis_client.dump(key) for key in redis_client.keys("*")}


@every_settle
def test_a_settled_task_is_not_active_and_has_no_lease(
    perform: Perform, tasks: Tasks, settle: Settle
) -> None:
    """Fails if the script no longer calls LREM or ZREM; tasks next to it keep their entries."""
    tasks.active("a", "b", "c")
    assert frozenset() == perform(settle([claim("b")])).refused
    assert ["a", "c"] == tasks.ids("active")
    assert {"a", "c"} == set(tasks.scores("lease"))


@every_settle
def test_h05_a_claim_that_does_not_hold_is_refused(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, settle: Settle
) -> None:
    """Fails if the script no longer calls HGET or ZMSCORE.

    Another token, none, or a later lease is not ours.
    """
    tasks.active("other", token="server/2")
    tasks.active("go", token="")
    tasks.active("later", lease=LEASE_SCORE + 1)
    before = dump(redis_client)
    claims = [claim("other"), claim("go"), claim("later"), claim("unknown")]
    assert {"other", "go", "later", "unknown"} == perform(settle(claims)).refused
    assert before == dump(redis_client)


@every_settle
def test_h05_a_token_that_go_left_standing_does_not_make_a_task_ours(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, settle: Settle
) -> None:
    """Go's recoverer put the task back and left our field: it is not active, and LREM says so."""
    tasks.pending("a")
    redis_client.hset(tasks.keys.task("a"), "x:attempt", claim("a").token)
    before = dump(redis_client)
    assert {"a"} == perform(settle([claim("a")])).refused
    assert before == dump(redis_client)
    redis_client.hdel(tasks.keys.task("a"), "x:attempt")


@every_settle
@pytest.mark.parametrize("asked_for", [LEASE_SCORE, LEASE_SCORE + 5])
def test_h05_a_lease_up_to_what_was_asked_for_is_ours(
    perform: Perform, tasks: Tasks, settle: Settle, asked_for: int
) -> None:
    """Also while a renewal of ours is on its way that Redis has not seen yet."""
    tasks.active("a")
    assert frozenset() == perform(settle([claim("a", lease_score=asked_for)])).refused
    assert [] == tasks.ids("active")


@every_settle
@pytest.mark.parametrize("ids", ["abc", "cba", "bca"])
def test_h05_each_claim_of_a_call_is_held_against_its_own_lease(
    perform: Perform, tasks: Tasks, settle: Settle, ids: str
) -> None:
    """One call may name different ends of leases; a claim that is too early for its own task is refused."""
    tasks.active("a", lease=LEASE_SCORE + 10)
    tasks.active("b", lease=LEASE_SCORE + 5)
    tasks.active("c", lease=LEASE_SCORE)
    asked_for = {"a": LEASE_SCORE + 10, "b": LEASE_SCORE, "c": LEASE_SCORE}
    claims = [claim(one, lease_score=asked_for[one]) for one in ids]
    assert {"b"} == perform(settle(claims)).refused
    assert ["b"] == tasks.ids("active")


@every_settle
def test_a_task_is_settled_from_among_many_that_are_older(
    perform: Perform, tasks: Tasks, settle: Settle
) -> None:
    """They run for long; the call looks for it from the other end, and takes no other."""
    older = [str(number) for number in range(150)]
    tasks.active(*older, "a", "younger")
    assert frozenset() == perform(settle([claim("a")])).refused
    assert [*older, "younger"] == tasks.ids("active")


OLDER = [f"older-{number}" for number in range(150)]
MANY = [f"mine-{number}" for number in range(25)]


@every_settle
@pytest.mark.parametrize("step", [1, -1])
def test_many_tasks_are_settled_from_among_many_that_are_older(
    perform: Perform, tasks: Tasks, settle: Settle, step: int
) -> None:
    """All that is newer is looked at once for all of them, and stays as it was, also where a claim fails."""
    tasks.active(*OLDER, *MANY[:10])
    tasks.active("other", token="server/2")
    tasks.active(*MANY[10:], "younger", "youngest")
    claims = [claim(one) for one in ["unknown", *MANY, "other"]]
    # The first one is where the look begins; whether it holds makes no difference.
    claims = [claims[1], *claims[::step]]
    assert {"unknown", "other", MANY[0]} == perform(settle(claims)).refused
    assert [*OLDER, "other", "younger", "youngest"] == tasks.ids("active")
    assert {*OLDER, "other", "younger", "youngest"} == set(tasks.scores("lease"))


@every_settle
def test_h05_a_claim_that_does_not_hold_is_refused_where_many_are_settled(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, settle: Settle
) -> None:
    """Also when it is the one by which the others are found; nothing that is active changes its place."""
    tasks.active(*OLDER)
    tasks.active(MANY[0], token="server/2")
    tasks.active(MANY[1], lease=LEASE_SCORE + 1)
    tasks.active(*MANY[2:], "younger")
    redis_client.lpush(tasks.keys.active, MANY[7])
    assert {MANY[0], MANY[1]} == perform(settle([claim(one) for one in MANY])).refused
    assert [*OLDER, MANY[0], MANY[1], "younger", MANY[7]] == tasks.ids("active")
    redis_client.lrem(tasks.keys.active, 1, MANY[7])


@every_settle
def test_a_key_of_a_wrong_type_takes_no_task_out_of_active(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, settle: Settle
) -> None:
    """The script ends with an error there: it may not have begun to take away what it is to put back."""
    tasks.active(*OLDER, *MANY)
    redis_client.set(tasks.keys.task("damaged"), "text")
    with pytest.raises(RedisReplyError):
        perform(settle([claim(one) for one in [*MANY, "damaged"]]))
    assert [*OLDER, *MANY] == tasks.ids("active")
    redis_client.delete(tasks.keys.task("damaged"))


@every_settle
def test_h02_w06_a_missing_lease_does_not_lose_the_task(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, settle: Settle
) -> None:
    """Asynq takes such a task out of active, then stops: its hash is orphaned. Ours is settled."""
    tasks.active("a", lease=None)
    assert frozenset() == perform(settle([claim("a")])).refused
    assert 0 == redis_client.llen(tasks.keys.active)


@every_settle
def test_the_refused_do_not_hinder_the_others(perform: Perform, tasks: Tasks, settle: Settle) -> None:
    """One call settles many; each is judged by itself."""
    tasks.active("a", "b")
    tasks.active("other", token="server/2")
    claims = [claim("a"), claim("other"), claim("b")]
    assert {"other"} == perform(settle(claims)).refused
    assert ["other"] == tasks.ids("active") == list(tasks.scores("lease"))


@every_settle
def test_h24_w14_one_occurrence_is_removed_from_the_end_where_old_tasks_stand(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, settle: Settle
) -> None:
    """A damaged list holds the id twice: the one at the tail goes, the walk does not go on to the head."""
    tasks.active("a", "b")
    redis_client.lpush(tasks.keys.active, "a")
    perform(settle([claim("a")]))
    assert ["b", "a"] == tasks.ids("active")
    redis_client.lrem(tasks.keys.active, 1, "a")


@every_settle
def test_h01_w01_a_call_that_is_sent_again_settles_once(
    redis_client: RedisClient, tasks: Tasks, settle: Settle
) -> None:
    """Tasks settled by the first run are not refused, refused ones are refused again; none counts twice."""
    tasks.active("a", "b")
    tasks.active("other", token="server/2")
    claims = [claim("a"), claim("other"), claim("b")]
    assert {"other"} == BlockingPerformer(redis_client, replay=True)(settle(claims)).refused
    assert tasks.counts().get("processed", 0) in {0, 2}
    assert ["other"] == tasks.ids("active")


@every_settle
def test_without_a_replay_a_settled_task_is_refused(perform: Perform, tasks: Tasks, settle: Settle) -> None:
    """Two attempts that both believe in a task: the second one is told."""
    tasks.active("a")
    perform(settle([claim("a")]))
    assert {"a"} == perform(settle([claim("a")])).refused


@pytest.mark.sample(2)
@every_settle
def test_w11_d47_two_thousand_and_one_tasks_go_in_several_calls(
    redis_client: RedisClient, tasks: Tasks, settle: Settle
) -> None:
    """No call carries more than 1,000 ids or 3,850 arguments of tasks, so the limits of servers are far."""
    ids = [f"{number:04}" for number in range(2001)]
    tasks.active(*ids)
    perform = BlockingPerformer(redis_client)
    assert frozenset() == perform(settle([claim(task_id) for task_id in ids])).refused
    arguments = [len(call.args) for call in perform.calls if isinstance(call, ScriptCall)]
    assert max(arguments) <= 3_900
    assert sum(arguments) / 3_850 <= len(arguments) <= 6
    assert [] == tasks.ids("active")


@every_settle
def test_nothing_to_settle_needs_no_call(redis_client: RedisClient, settle: Settle) -> None:
    """An empty decision costs nothing."""
    perform = BlockingPerformer(redis_client)
    assert frozenset() == perform(settle([])).refused
    assert [] == perform.calls
