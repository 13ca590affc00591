"""Where pyasynq leaves something else in Redis than Asynq 0.26 does, on purpose: exactly these fields.

A difference that is not listed fails the comparison, and so does an entry that no vector needs.
"""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """One field that differs.

    Attributes:
        vector: name of the vector.
        key: the key in Redis.
        field: field of a hash, member of a sorted set, or "ttl".
        number: of the weak point of Asynq that is mended by it.
        reason: what is better.
    """

    vector: str
    key: str
    field: str
    number: str
    reason: str


INTENDED = (
    *(
        Difference(
            vector,
            key,
            "x:unique_ttl",
            "H9",
            "a worker that runs or recovers the task knows for how long to renew its lock",
        )
        for vector, key in (
            ("enqueue_all_options", "asynq:{critical}:t:id-all"),
            ("enqueue_unique_nil_payload", "asynq:{default}:t:id-uniq-nil"),
            ("enqueue_unique_empty_payload", "asynq:{default}:t:id-uniq-empty"),
            ("schedule_unique", "asynq:{default}:t:id-sched-u"),
            ("group_unique", "asynq:{default}:t:id-grp-u"),
        )
    ),
    Difference(
        "schedule_unique",
        "asynq:{default}:scheduled",
        "id-sched-u",
        "H13",
        "a due time is rounded up to whole seconds, so no task runs early",
    ),
    Difference(
        "schedule_unique",
        "asynq:{default}:unique:email:deliver:385de87a2a7f4a88192a4d1cd4735e1e",
        "ttl",
        "W24",
        "the time of a lock is rounded up, so it is not released early",
    ),
    Difference(
        "archive_pending_by_inspector",
        "asynq:{default}:t:b",
        "pending_since",
        "W13",
        "a task that is not pending does not wait",
    ),
    Difference(
        "run_archived_by_inspector",
        "asynq:{default}:t:b",
        "pending_since",
        "W13",
        "a task that is run by hand waits from then on",
    ),
    Difference(
        "active",
        "asynq:{default}:t:id-active",
        "x:attempt",
        "H5",
        "the token of the attempt, by which a worker whose lease lapsed is kept from settling",
    ),
    Difference(
        "scheduler",
        "asynq:{low}:x:ticks",
        "type",
        "H18",
        "the last tick of each entry, by which several schedulers fire each tick once",
    ),
    Difference(
        "scheduler_shutdown",
        "asynq:{low}:x:ticks",
        "type",
        "H18",
        "the last tick outlives the scheduler, so that the next one knows what was fired and what was missed",
    ),
    Difference(
        "scheduler",
        "asynq:scheduler_history:ce4fc5bf-a001-4337-a84a-65df840720fc",
        "ttl",
        "W26",
        "a history whose scheduler crashed or was changed does not stay for ever",
    ),
    Difference(
        "group",
        "asynq:{default}:g:g1",
        "id-grp",
        "H13",
        "the time of joining is rounded up to whole seconds, so no grace period is cut short",
    ),
    Difference(
        "group_unique",
        "asynq:{default}:g:g1",
        "id-grp-u",
        "H13",
        "the time of joining is rounded up to whole seconds, so no grace period is cut short",
    ),
    Difference(
        "group_unique",
        "asynq:{default}:t:id-grp-u",
        "unique_key",
        "W9",
        "a later delete finds the lock that is to be released",
    ),
    Difference(
        "aggregated",
        "asynq:{default}:t:aggregated",
        "x:attempt",
        "H5",
        "the token of the attempt, by which a worker whose lease lapsed is kept from settling",
    ),
)
