"""The Lua scripts: read from `lua/` once, put together with the fragments they use, and named here.

A script's file says on its first line whether it may run while Redis is at `maxmemory`,
`#!lua flags=allow-oom`, or that it only reads, `#!lua flags=no-writes`: such a script also runs on a replica.
Redis 7 and Valkey read that line. Redis 6.2 does not know it, so the loader leaves it out there, and scripts
that may run at `maxmemory` begin their writes with a command that frees memory.
"""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from pyasynq._redis.script import Script, ScriptForm

if TYPE_CHECKING:
    from importlib.abc import ResourceLoader

_FOLDER: Final = os.path.join(os.path.dirname(__file__), "lua")  # noqa: PTH118, PTH120 - loaders take text
_FLAGS: Final = (b"#!lua flags=allow-oom\n", b"#!lua flags=no-writes\n")
"""First lines of scripts that may run at `maxmemory`; a script that only reads may do so too."""
_USES: Final = re.compile(rb"^-- Uses: (.+)$", re.MULTILINE)


class _Source(NamedTuple):
    """A file of `lua/`: its flags line, or nothing if it has none, and the rest."""

    flags: bytes
    body: bytes


@functools.cache
def _read(name: str) -> _Source:
    # importlib.resources and pkgutil take longer than the loader, which also reads from a zip file.
    text = cast("ResourceLoader", __spec__.loader).get_data(f"{_FOLDER}/{name}.lua")
    flags = next((line for line in _FLAGS if text.startswith(line)), b"")
    return _Source(flags, text.removeprefix(flags))


def _collect_fragments(body: bytes, found: dict[str, bytes]) -> None:
    uses = _USES.search(body)
    for name in uses[1].decode().split(", ") if uses else ():
        if name not in found:
            fragment = _read(f"shared/{name}").body
            # Lua knows a local function only below its definition.
            _collect_fragments(fragment, found)
            found[name] = fragment


def _forms(flags: bytes, *pieces: bytes) -> tuple[ScriptForm, ScriptForm]:
    plain = ScriptForm(*pieces)
    return (ScriptForm(flags, *pieces) if flags else plain), plain


@functools.cache
def load_script(name: str) -> Script:
    """Return the script `lua/<name>.lua`, preceded by the fragments of its `-- Uses:` line, recursively."""
    flags, body = _read(name)
    found: dict[str, bytes] = {}
    _collect_fragments(body, found)
    forms = _forms(flags, *found.values(), body)
    return Script(name, bool(flags), *forms, only_reads=b"no-writes" in flags)


_STEP: Final = b"""
end
local lifetime = table.remove(ARGV)
local number = table.remove(ARGV)
return take_step(table.remove(KEYS, 1), number, lifetime, act)
"""


@functools.cache
def as_step(script: Script) -> Script:
    """Make a script an idempotent step of an operation: run again with a number, it returns the first reply.

    The step takes one more key, before the script's keys: the ledger that records replies of the operation in
    the queue. (In a cluster the driver appends one more key.) It takes two more arguments, after the script's
    arguments: the number of the step, and the seconds for which the ledger is kept.
    """
    flags, body = _read(script.name)
    found: dict[str, bytes] = {}
    _collect_fragments(body, found)
    take_step = _read("shared/take_step").body
    forms = _forms(flags, *found.values(), take_step, b"local function act()\n", body, _STEP)
    return Script(script.name, script.drains, *forms)


TASK_ENQUEUE: Final = load_script("task/enqueue")
TASK_ENQUEUE_UNIQUE: Final = load_script("task/enqueue_unique")
TASK_ENQUEUE_FRONT: Final = load_script("task/enqueue_front")
TASK_SCHEDULE: Final = load_script("task/schedule")
TASK_SCHEDULE_UNIQUE: Final = load_script("task/schedule_unique")
TASK_ENQUEUE_BY_RULES: Final = load_script("task/enqueue_by_rules")
TASK_DONE: Final = load_script("task/done")
TASK_COMPLETE: Final = load_script("task/complete")
TASK_RETRY: Final = load_script("task/retry")
TASK_ARCHIVE: Final = load_script("task/archive")
TASK_REQUEUE: Final = load_script("task/requeue")
TASK_TRIM_ARCHIVED: Final = load_script("task/trim_archived")
TASK_FORWARD: Final = load_script("task/forward")
TASK_DELETE_EXPIRED: Final = load_script("task/delete_expired")
TASK_WRITE_FIELD: Final = load_script("task/write_field")
GROUP_ADD: Final = load_script("group/add")
GROUP_SCHEDULE: Final = load_script("group/schedule")
GROUP_CHECK: Final = load_script("group/check")
GROUP_READ_SET: Final = load_script("group/read_set")
GROUP_RELEASE_LOCKS: Final = load_script("group/release_locks")
GROUP_RENEW: Final = load_script("group/renew")
GROUP_FINISH: Final = load_script("group/finish")
GROUP_RECLAIM: Final = load_script("group/reclaim")
GROUP_QUARANTINE: Final = load_script("group/quarantine")
LEASE_DEQUEUE: Final = load_script("lease/dequeue")
LEASE_DEQUEUE_LIMITED: Final = load_script("lease/dequeue_limited")
LEASE_DEQUEUE_ORDERED: Final = load_script("lease/dequeue_ordered")
LEASE_FIND_DEQUEUED: Final = load_script("lease/find_dequeued")
LEASE_FIND_ATTEMPT: Final = load_script("lease/find_attempt")
LEASE_BEGIN: Final = load_script("lease/begin")
LEASE_RENEW: Final = load_script("lease/renew")
LEASE_LIST_EXPIRED: Final = load_script("lease/list_expired")
LEASE_SCAN_ACTIVE: Final = load_script("lease/scan_active")
LEASE_RENEW_LOCKS: Final = load_script("lease/renew_locks")
LEASE_RECOVER: Final = load_script("lease/recover")
LEASE_ARCHIVE_POISON: Final = load_script("lease/archive_poison")
SERVER_ANNOUNCE: Final = load_script("server/announce")
SERVER_WRITE_STATE: Final = load_script("server/write_state")
SERVER_LIST: Final = load_script("server/list")
TYPE_PUBLISH: Final = load_script("type/publish")
TYPE_CONFIGURE: Final = load_script("type/configure")
API_KEY_SPEND: Final = load_script("api_key/spend")
API_KEY_WRITE: Final = load_script("api_key/write")
TYPE_RENEW: Final = load_script("type/renew")
SCHEDULE_BEGIN: Final = load_script("schedule/begin")
SCHEDULE_FIRE: Final = load_script("schedule/fire")
SCHEDULE_PAUSE: Final = load_script("schedule/pause")
SCHEDULE_FORGET: Final = load_script("schedule/forget")
SCHEDULE_WRITE_ENTRIES: Final = load_script("schedule/write_entries")
SCHEDULE_RECORD: Final = load_script("schedule/record")
GATE_ENTER: Final = load_script("gate/enter")
GATE_CLOSE: Final = load_script("gate/close")
GATE_RENEW: Final = load_script("gate/renew")
RATE_ACQUIRE: Final = load_script("rate/acquire")
RATE_RELEASE: Final = load_script("rate/release")
EVENT_PUBLISH: Final = load_script("event/publish")
ATTEMPT_COUNT: Final = load_script("attempt/count")
SERVER_ASK: Final = load_script("server/ask")
INSPECT_QUEUE: Final = load_script("inspect/queue")
INSPECT_VITALS: Final = load_script("inspect/vitals")
INSPECT_POISON: Final = load_script("inspect/poison")
INSPECT_LIST_TASKS: Final = load_script("inspect/list_tasks")
INSPECT_WALK_SET: Final = load_script("inspect/walk_set")
INSPECT_WALK_LIST: Final = load_script("inspect/walk_list")
INSPECT_READ_TASKS: Final = load_script("inspect/read_tasks")
INSPECT_GET_TASK: Final = load_script("inspect/get_task")
INSPECT_FIND_TASKS: Final = load_script("inspect/find_tasks")
INSPECT_GROUPS: Final = load_script("inspect/groups")
INSPECT_FORGET_GROUPS: Final = load_script("inspect/forget_groups")
INSPECT_LIST_GROUPED: Final = load_script("inspect/list_grouped")
INSPECT_SIZES: Final = load_script("inspect/sizes")
INSPECT_MEMORY: Final = load_script("inspect/memory")
INSPECT_RUN: Final = load_script("inspect/run")
INSPECT_ARCHIVE: Final = load_script("inspect/archive")
INSPECT_DELETE: Final = load_script("inspect/delete")
INSPECT_RELEASE_LOCK: Final = load_script("inspect/release_lock")
INSPECT_DROP_GHOSTS: Final = load_script("inspect/drop_ghosts")
INSPECT_REWRITE: Final = load_script("inspect/rewrite")
INSPECT_RESCHEDULE: Final = load_script("inspect/reschedule")
INSPECT_SET_LIMITS: Final = load_script("inspect/set_limits")
INSPECT_REPLACE_LIMITS: Final = load_script("inspect/replace_limits")
INSPECT_PAUSE: Final = load_script("inspect/pause")
INSPECT_UNPAUSE: Final = load_script("inspect/unpause")
INSPECT_CANCEL: Final = load_script("inspect/cancel")
INSPECT_REMOVE_QUEUE: Final = load_script("inspect/remove_queue")
LIST_PUSH: Final = load_script("list/push")
LIST_READ: Final = load_script("list/read")
LIST_RENEW: Final = load_script("list/renew")
LIST_SWEEP: Final = load_script("list/sweep")
LIST_WITHDRAW: Final = load_script("list/withdraw")
OPERATE_DELETE: Final = load_script("operate/delete")
OPERATE_HOLD: Final = load_script("operate/hold")
OPERATE_TAKE: Final = load_script("operate/take")
OPERATE_RELEASE: Final = load_script("operate/release")
OPERATE_UNDO: Final = load_script("operate/undo")
OPERATION_CREATE: Final = load_script("operation/create")
OPERATION_TAKE: Final = load_script("operation/take")
OPERATION_ADVANCE: Final = load_script("operation/advance")
OPERATION_SET_STATE: Final = load_script("operation/set_state")
AUDIT_WRITE: Final = load_script("audit/write")
AUDIT_REFUSE: Final = load_script("audit/refuse")
DOCTOR_WALK: Final = load_script("doctor/walk")
DOCTOR_READ_TYPES: Final = load_script("doctor/read_types")
DOCTOR_READ_TASKS: Final = load_script("doctor/read_tasks")
DOCTOR_JUDGE: Final = load_script("doctor/judge")
DOCTOR_SETTLE: Final = load_script("doctor/settle")
DOCTOR_LOOK_AT_GROUPS: Final = load_script("doctor/look_at_groups")
DOCTOR_MEND_GROUPS: Final = load_script("doctor/mend_groups")
DOCTOR_LOOK_AT_LOCK: Final = load_script("doctor/look_at_lock")
DOCTOR_RELEASE_LOCK: Final = load_script("doctor/release_lock")
DOCTOR_EXPIRE_ENDLESS: Final = load_script("doctor/expire_endless")
DOCTOR_RAISE_COUNTER: Final = load_script("doctor/raise_counter")
DOCTOR_RESET_TICK: Final = load_script("doctor/reset_tick")

ALL_SCRIPTS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Script))
"""Every script, for preloading and for tests."""
