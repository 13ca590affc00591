"""Two databases filled alike, one by Asynq and one by pyasynq, with tasks in every state."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from pyasynq import sync
from tests.interop.database import Database
from tests.interop.go_peer import GoPeer
from tests.interop.go_side import GoSide
from tests.interop.our_side import OurSide
from tests.interop.steps import Step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.steps import Side

STATES = {
    "active": ["running", "orphan"],
    "pending": ["first", "binary", "bare"],
    "scheduled": ["later", "member-later"],
    "retry": ["failed"],
    "archived": ["given-up"],
    "completed": ["answered"],
    "aggregating": ["one", "two"],
}
"""The tasks of the queue `default`, in the order of lists."""

TASKS = [("default", task_id) for ids in STATES.values() for task_id in ids] + [
    ("default", "three"),
    ("größe", "held-up"),
]


def _enqueue(task_id: str, payload: bytes | None = b'{"user": 7}', **options: Any) -> Step:
    given = {"task_id": task_id, **options}
    return Step("enqueue", {"task_type": "email:größe", "payload": payload, "options": given})


def _take(slot: str) -> Step:
    return Step("take", {"slot": slot})


def _finish(kind: str, text: str = "", result: bytes | None = None) -> Step:
    return Step("finish", {"slot": "one", "kind": kind, "text": text, "result": result})


STEPS = (
    _enqueue("answered", retention=3_600),
    _take("one"),
    _finish("succeed", result=b"done <&>"),
    _enqueue("given-up", max_retry=3),
    _take("one"),
    _finish("skip", "no such user"),
    _enqueue("failed", timeout=90, unique=600),
    _take("one"),
    _finish("fail", "smtp: 421"),
    _enqueue("gone"),
    _take("one"),
    _finish("succeed"),
    _enqueue("running", timeout=600),
    _take("one"),
    _enqueue("orphan", max_retry=0),
    _take("two"),
    _enqueue("first", headers={"trace": "a b"}),
    _enqueue("binary", b"\x00\xff\n"),
    _enqueue("bare", None),
    _enqueue("later", process_in=3_600),
    _enqueue("member-later", process_in=7_200, group="grüppe"),
    _enqueue("one", group="grüppe"),
    _enqueue("two", group="grüppe"),
    _enqueue("three", group="other"),
    _enqueue("held-up", queue="größe"),
    Step("pause_queue", {"queue": "größe"}),
)


class Filled(NamedTuple):
    """A database, who reads it with Asynq, and who reads it with pyasynq."""

    database: Database
    go: GoPeer
    our: sync.Inspector


class Pair(NamedTuple):
    """The database that Asynq has filled, and ours."""

    go: Filled
    our: Filled


@contextmanager
def filled_pair(peer_program: Path, url: str) -> Iterator[Pair]:
    """Fill two databases of a server; the two running tasks stay held until the end."""
    with ExitStack() as stack:
        databases = [stack.enter_context(closing(Database(url, number))) for number in (0, 1)]
        for one in databases:
            one.clear()
        sides: tuple[Side, Side] = (
            stack.enter_context(closing(GoSide(peer_program, databases[0].url))),
            stack.enter_context(closing(OurSide(databases[1].url))),
        )
        for step in STEPS:
            for side in sides:
                answer = side.do(step)
                assert not answer.refusal, (step, answer)
        lapsed = int(time.time()) - 5
        for one in databases:
            one.client.zadd("asynq:{default}:lease", {"orphan": lapsed}, xx=True)
        go, our = (
            Filled(
                one,
                stack.enter_context(GoPeer(peer_program, one.url)),
                stack.enter_context(sync.Inspector(one.url)),
            )
            for one in databases
        )
        yield Pair(go, our)
