"""The tables of docs/unique.md: each cell is what happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

from pyasynq.errors import DuplicateTaskError
from pyasynq.options import OnDuplicate, Until
from tests.contract.enqueueing import enqueue, statuses
from tests.contract.uniqueness import KEY, bring_into, named_lock, unique
from tests.fix_broker import BlockingPerformer
from tests.snapshots import snapshot

if TYPE_CHECKING:
    from tests.invariants import RedisClient

PAGE = (Path(__file__).parents[2] / "docs" / "unique.md").read_text("utf-8")
UNTIL = get_args(Until)
RULES = get_args(OnDuplicate)
ERROR = "duplicate"


def table(corner: str) -> dict[tuple[str, str], str]:
    """Return the words of a table of the page, by row and column."""
    lines = PAGE[PAGE.index(f"| {corner} |") :].split("\n\n")[0].splitlines()
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {(row[0], name): word for row in rows for name, word in zip(head[1:], row[1:], strict=True)}


LOCKS = table("The task is")
DUPLICATES = table("The holder is")
STATES = [state for state, until in LOCKS if until == "success"]
CELLS = [
    (state, until, rule)
    for state in STATES
    for until in UNTIL
    for rule in RULES
    if (until, rule) != ("expiry", "replace_payload")
]


def test_the_tables_are_complete() -> None:
    """Every state, every option."""
    assert {(state, until) for state in STATES for until in UNTIL} == LOCKS.keys()
    assert {(state, rule) for state in STATES for rule in RULES} == DUPLICATES.keys()
    assert len(re.findall(r"being aggregated", PAGE)) >= 2


@pytest.mark.parametrize(("state", "until", "rule"), CELLS, ids="-".join)
def test_each_cell_is_what_happens(redis_client: RedisClient, state: str, until: str, rule: str) -> None:
    """To a second task of the same lock, and to the lock; the first one came there by what a worker does."""
    perform = BlockingPerformer(redis_client)
    bring_into(perform, state, until=until)
    held = LOCKS[state, until] == "held"
    assert (b"a" if held else None) == redis_client.get(KEY)
    word = DUPLICATES[state, rule].replace("error", ERROR) if held else "enqueued"
    before = snapshot(redis_client)
    [result] = enqueue(perform, unique("b", b"new", until=until, on_duplicate=rule))
    assert [word] == statuses([result])
    assert (word == ERROR) == isinstance(result.error, DuplicateTaskError)
    assert (word in {"existing", "replaced"}) == (result.task_id == "a") == (result.holder is not None)
    if word not in {"enqueued", "replaced"}:
        assert before == snapshot(redis_client)


@pytest.mark.parametrize("until", UNTIL)
def test_what_go_reads_of_a_lock(redis_client: RedisClient, until: str) -> None:
    """Asynq's worker releases at success what the message names, its inspector what the hash names."""
    item = unique("a", until=until)
    enqueue(BlockingPerformer(redis_client), item)
    named = None if until == "expiry" else KEY.encode()
    assert (named or b"").decode() == named_lock(item)
    assert named == redis_client.hget("asynq:{default}:t:a", "unique_key")
    assert b"a" == redis_client.get(KEY)
