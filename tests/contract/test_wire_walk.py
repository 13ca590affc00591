"""The walk of the published vectors: the same steps leave the same keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fix_broker import BlockingPerformer
from tests.redis_6 import is_redis_6
from tools.wire_walk import walk

if TYPE_CHECKING:
    from tests.invariants import RedisClient

VECTORS = json.loads(Path(__file__).parents[2].joinpath("docs", "wire-vectors.json").read_text("utf-8"))


def test_the_published_walk_is_what_our_code_leaves(redis_client: RedisClient) -> None:
    """Step by step: which keys have changed and how, and which are gone."""
    if is_redis_6(redis_client):
        pytest.skip("only on servers that tell when a key ends")
    walked = walk(BlockingPerformer(redis_client), redis_client)
    assert [step["step"] for step in VECTORS["walk"]] == [step["step"] for step in walked]
    for expected, step in zip(VECTORS["walk"], json.loads(json.dumps(walked)), strict=True):
        assert without_time_left(expected) == without_time_left(step)


def test_the_walk_passes_every_state_and_every_key_of_ours() -> None:
    """It would be of little use to a joiner otherwise."""
    keys = {key for step in VECTORS["walk"] for key in step["changed"]}
    states = {
        entry["value"]["state"]
        for step in VECTORS["walk"]
        for entry in step["changed"].values()
        if entry["type"] == "hash" and "state" in entry["value"]
    }
    assert {"pending", "active", "scheduled", "retry", "archived", "completed", "aggregating"} == states
    own = {"cancel", "limits", "bucket", "ticks", "events"}
    assert own == {key.partition(":x:")[2] for key in keys if ":x:" in key}


def without_time_left(step: dict[str, Any]) -> dict[str, Any]:
    """Return a step without what hangs on how long the steps took; that there is an end stays."""
    changed = {
        key: {name: bool(value) if name == "seconds left" else value for name, value in entry.items()}
        for key, entry in step["changed"].items()
    }
    return {**step, "changed": changed}
