from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyasynq._broker.enqueueing.compose import compose
from pyasynq._broker.enqueueing.enqueue import split_runs
from pyasynq._clock import Instant
from pyasynq._wire.messages import decode_task_message
from pyasynq.task import Task, TaskState

TEXT = st.text(min_size=1).filter(lambda text: bool(text.strip()) and text.isprintable())
INSTANTS = st.builds(Instant, st.integers(0, 4_000_000_000), st.integers(0, 999_999))
SECONDS = st.one_of(st.integers(0, 10**7), st.floats(0, 10**7))
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "queue": TEXT,
        "max_retry": st.integers(0, 2**31 - 1),
        "timeout": SECONDS.filter(bool),  # 0 needs a deadline
        "unique": st.floats(1, 10**7),
        "process_in": SECONDS,
        "retention": SECONDS,
        "task_id": TEXT,
        "headers": st.dictionaries(TEXT, TEXT),
    },
)


@given(TEXT, st.none() | st.binary(), OPTIONS, OPTIONS, INSTANTS)
def test_what_is_composed_can_be_read_and_is_never_early(
    task_type: str, payload: bytes | None, options: Any, call_options: Any, now: Instant
) -> None:
    """The bytes say what the message says; a scheduled task is due at or after its time, within a second."""
    result = compose(Task(task_type, payload, **options), call_options, now=now)
    message = decode_task_message(result.encoded)
    assert (result.id, task_type, payload or b"") == (message.id, message.type, message.payload)
    settings = options | call_options
    assert settings.get("queue", "default") == result.settings.queue == message.queue
    process_at = now.plus(settings.get("process_in", 0))
    assert (TaskState.SCHEDULED if process_at > now else TaskState.PENDING) == result.state
    if result.state is TaskState.SCHEDULED:
        assert 0 <= result.score - process_at.timestamp < 1
    assert ("unique" in settings) == (result.lock_ttl > 0) == bool(message.unique_key)
    if result.lock_ttl:
        wanted = settings["unique"] + process_at.timestamp - now.timestamp
        assert -1e-5 <= result.lock_ttl - wanted < 2 + 1e-5


KINDS = st.fixed_dictionaries(
    {"queue": st.sampled_from("abc")}, optional={"unique": st.just(60), "process_in": st.just(9)}
)


@given(st.lists(KINDS, max_size=40))
def test_runs_hold_every_task_once_and_keep_the_order_of_each_queue(kinds: list[Any]) -> None:
    """Each run has one queue and one kind of task."""
    items = [compose(Task("t", **options), {}, now=Instant(1)) for options in kinds]
    runs = split_runs(items)
    placed = [
        (position, item) for run in runs for position, item in zip(run.positions, run.tasks, strict=True)
    ]
    assert sorted(placed, key=lambda pair: pair[0]) == list(enumerate(items))
    for queue in "abc":
        positions = [position for run in runs if run.queue == queue for position in run.positions]
        assert positions == sorted(positions)
    for run in runs:
        assert 1 == len({(item.settings.queue, item.state, item.lock_ttl > 0) for item in run.tasks})
