"""First pass of an examination: scans a queue for tasks and keys that may be damaged.

The scan is cheap but not atomic, and the queue changes during it. Its results are suspicions, which are
checked later, each by a script that reads everything about a task atomically.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyasynq._broker.arguments import MAX_TASKS
from pyasynq._broker.doctoring.groups import list_known_groups
from pyasynq._broker.doctoring.tasks import read_tasks, walk
from pyasynq._broker.doctoring.types import FIXED_NAMES, find_wrong_types, is_in_the_way
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import RedisReplyError

from ._diagnosis import looks_sound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyasynq._broker.doctoring.tasks import StoredTask, Walked

    from ._pace import Pace

_ROUNDS: Final = 3


class QueueSurvey:
    """Suspicions about one queue.

    Attributes:
        keys: keys of the queue.
        suspects: ids of tasks that may be damaged, each with the key of the group it was seen in, if any.
        groups: keys of groups and aggregation sets.
        no_sets: names listed as aggregation sets that cannot be keys of aggregation sets.
        locks: keys of uniqueness locks.
        counters: keys of the counters of single days.
        own_keys: keys that only pyasynq writes, except locks.
        misfits: names of keys whose type is wrong, without the prefix of the queue.
        refusal: the error of a refused read; empty for none.
        has_tasks: whether hashes of tasks were seen.
    """

    def __init__(self, queue: str, pace: Pace) -> None:
        self.keys = queue_keys(queue)
        self.suspects: dict[bytes, bytes] = {}
        self.groups: set[bytes] = set()
        self.no_sets: set[bytes] = set()
        self.locks: list[bytes] = []
        self.counters: list[bytes] = []
        self.own_keys: list[bytes] = []
        self.misfits: set[bytes] = set()
        self.refusal = ""
        self._has_types = False
        self.has_tasks = False
        self._pace = pace
        self._unplaced: set[bytes] = set()
        """Tasks whose hash names a list or a group in which they have not been found."""

    async def note(self, names: Sequence[bytes]) -> None:
        """Sort keys of this queue by kind, and add tasks that look damaged to the suspects.

        `names` are the keys without the prefix of the queue.
        """
        prefix = self.keys.prefix.encode()
        tasks = []
        # The plans for tasks also read the fixed keys, which may be on a later page.
        fixed = () if self._has_types else FIXED_NAMES
        self._has_types = True
        misfits = await self._pace.run(find_wrong_types(self.keys.queue, [*fixed, *names]))
        self.misfits.update(misfits)
        for name in names:
            if name in misfits:
                continue
            if name.startswith(b"t:"):
                tasks.append(name[2:])
            elif name.startswith(b"g:"):
                self.groups.add(prefix + name)
            elif name.startswith((b"unique:", b"x:unique:")):
                self.locks.append(prefix + name)
            elif name.startswith((b"processed:", b"failed:")):
                self.counters.append(prefix + name)
            elif name.startswith(b"x:") and not name.startswith(b"x:once:"):
                self.own_keys.append(prefix + name)
        self.has_tasks = self.has_tasks or bool(tasks)
        if not self.is_blocked:
            with self._guard():
                self._note_tasks(await self._pace.run(read_tasks(self.keys.queue, tasks)))

    @property
    def is_blocked(self) -> bool:
        """Whether a key of a wrong type prevents the checks of this queue."""
        return bool(self.refusal) or any(map(is_in_the_way, self.misfits))

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Record a refusal by Redis, so that other queues are still examined."""
        try:
            yield
        except RedisReplyError as error:
            self.refusal = str(error)

    def _note_tasks(self, tasks: Iterable[StoredTask]) -> None:
        for facts in tasks:
            if not looks_sound(facts, self.keys.queue):
                self.suspects.setdefault(facts.id, b"")
            elif not facts.score:
                self._unplaced.add(facts.id)

    async def walk(self) -> None:
        """Scan all collections, and check again the tasks that were not found in their collection."""
        with self._guard():
            await self._walk_twice()

    async def _walk_twice(self) -> None:
        await self._walk_everything()
        for _ in range(_ROUNDS):
            if not self._unplaced:
                break
            again = await self._pace.run(read_tasks(self.keys.queue, list(self._unplaced)))
            self._unplaced.clear()
            self._note_tasks(facts for facts in again if facts.message or facts.state)
            if self._unplaced:
                await self._walk_unordered()
        for task_id in self._unplaced:
            self.suspects.setdefault(task_id, b"")
        self._unplaced.clear()

    async def _walk_everything(self) -> None:
        keys = self.keys
        for state in ("scheduled", "retry", "archived", "completed"):
            await self._walk(getattr(keys, state), state)
        await self._walk(keys.lease, "active")
        await self._walk_unordered()

    async def _walk_unordered(self) -> None:
        """Scan the lists and the groups, whose order may change during the scan."""
        await self._walk(self.keys.pending, "pending")
        await self._walk(self.keys.active, "active")
        listed, sets = await self._pace.run(list_known_groups(self.keys.queue))
        prefix = self.keys.group_prefix.encode()
        self.no_sets = {
            key for key in sets if not re.fullmatch(re.escape(prefix) + b".+:[^:]+", key, re.DOTALL)
        }
        self.groups |= {*listed, *sets} - self.no_sets
        for key in sorted(self.groups):
            name = key[len(prefix) :]
            await self._walk(key, "aggregating", name.rpartition(b":")[0] if key in sets else name)

    async def _walk(self, collection: str | bytes, state: str, group: bytes = b"") -> None:
        key = collection if isinstance(collection, bytes) else collection.encode()
        seen_in = key if state == "aggregating" else b""
        start, before, met = 0, frozenset[bytes](), set[bytes]()
        while True:
            page: Walked = await self._pace.run(walk(self.keys.queue, key, state, start, group=group))
            for task_id in (*page.suspects, *_list_repeated(page.ids, before, met)):
                self.suspects[task_id] = seen_in or self.suspects.get(task_id, b"")
            self._unplaced.difference_update(page.ids)
            before = frozenset(page.ids)
            met |= before
            start += page.looked_at
            if page.looked_at < MAX_TASKS:
                return


def _list_repeated(ids: Sequence[bytes], before: frozenset[bytes], met: set[bytes]) -> list[bytes]:
    """Return the ids of a page that were already found in this list.

    A list that grows at its head during the walk shows the end of one page again at the start of the next.
    """
    shifted = 0
    while shifted < len(ids) and ids[shifted] in before:
        shifted += 1
    seen: set[bytes] = set()
    repeated = []
    for task_id in ids[shifted:]:
        if task_id in seen or task_id in met:
            repeated.append(task_id)
        seen.add(task_id)
    return repeated
