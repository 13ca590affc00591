from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._redis.exchange import advance
from pyasynq.errors import RedisReplyError
from tests.unit.driver.scripted import command

if TYPE_CHECKING:
    from pyasynq._redis.plan import Plan


def counting(rounds: int) -> Plan[list[int]]:
    """A plan of this many calls that returns its replies."""
    total = []
    for number in range(rounds):
        reply = yield command("N", str(number))
        total.append(reply)
    return total


def forgiving() -> Plan[str]:
    """A plan that survives an error of its call."""
    try:
        yield command("A")
    except RedisReplyError as error:
        yield command("B")
        return str(error)
    return "no error"


def failing() -> Plan[None]:
    """A plan that ends with an error of its own."""
    yield command("C")
    raise LookupError("gone")


def test_each_round_carries_one_call_of_each_plan_that_goes_on() -> None:
    """Plans of different lengths leave the batch as they end; one without calls never joins it."""
    rounds = advance([counting(2), counting(0), counting(1)])
    assert [command("N", "0"), command("N", "0")] == next(rounds)
    assert [command("N", "1")] == rounds.send([10, 20])
    with pytest.raises(StopIteration) as end:
        rounds.send([11])
    assert [[10, 11], [], [20]] == end.value.value


def test_an_error_is_thrown_into_its_own_plan_only() -> None:
    """One plan recovers, one ends with an error of its own, one is not concerned."""
    rounds = advance([forgiving(), counting(1), failing()])
    next(rounds)
    assert [command("B")] == rounds.send([RedisReplyError("no"), 1, None])
    with pytest.raises(StopIteration) as end:
        rounds.send([None])
    recovered, counted, failed = end.value.value
    assert ("no", [1]) == (recovered, counted)
    assert isinstance(failed, LookupError)


def test_no_plans_need_no_round() -> None:
    """An empty batch asks nothing."""
    assert [] == list(advance([]))
