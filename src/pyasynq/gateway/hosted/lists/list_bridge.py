"""Bridge between the queue of one task type and the lists of its workers, which only speak Redis.

The bridge keeps all state in Redis, so any number of instances may run the bridge of a type, and end at any
time. A list entry represents an attempt. Its lease token is stored in Redis, too. So any instance can renew
the lease, settle the worker's reply, and count a crash when the entry is gone.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.errors import (
    AttemptSettledError,
    LeaseExpiredError,
    PyasynqError,
    ServerStateError,
    TaskCanceledError,
    TaskTimeoutError,
)
from pyasynq.gateway.leases.acts import act_by_token
from pyasynq.gateway.leases.bodies import FailAttempt
from pyasynq.gateway.leases.leased_tasks import seal_attempt
from pyasynq.gateway.leases.tokens import InvalidTokenError
from pyasynq.operations import WorkerList
from pyasynq.web.api.problem import ProblemError

from .entries import CrashItem, decode_reply, encode_list_entry, find_reply_token, make_entry_token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.consumer import Attempt, Consumer
    from pyasynq.gateway.leases.acts import DelayOfFailure
    from pyasynq.gateway.leases.served_queues import ServedQueues
    from pyasynq.gateway.leases.tokens import Keyring, LeaseToken
    from pyasynq.operations import Operator

    from .entries import ReplyAct

_log = logging.getLogger("pyasynq.gateway")

LIST_KEY_ID: Final = "list"
"""Id to which the lease tokens of entries are bound, instead of the id of an API key."""
_LEASE_SECONDS: Final = 60.0
"""Seconds of a lease. It outlasts the fail-over of a Redis Cluster, during which no lease can be stored."""
_RENEW_SECONDS: Final = 10.0
_WAIT_SECONDS: Final = 20.0
"""Maximum seconds that one lease call waits for tasks (long poll)."""
_SWEEP_SECONDS: Final = 1.0
_OUTAGE_SECONDS: Final = 3.0
"""Seconds without a sweep after which missing heartbeats may be due to an outage of Redis."""
_BEAT_SECONDS: Final = 10.0
"""Seconds after an outage of Redis in which living workers send a heartbeat: twice their interval."""
_READ_SECONDS: Final = 0.05
"""Seconds between two reads of the replies, while workers have entries."""
_PAUSE_SECONDS: Final = 1.0
"""Seconds until the next try after a failed one."""
_BATCH: Final = 100
_ENDED: Final = (TaskCanceledError, TaskTimeoutError, LeaseExpiredError, AttemptSettledError)


class _Shard:
    """State of one shard of a worker list, as the last sweep has read it from Redis."""

    def __init__(self, worker_list: WorkerList, now: float) -> None:
        self.list = worker_list
        self.swept_at = now
        """Time of the loop at which the last sweep ended; at first the time of creation."""
        self.forgotten_at: dict[str, float] = {}
        """Deadlines by worker name: sweeps after this time of the loop remove a worker without heartbeats."""
        self.living = 0
        """Number of living workers."""
        self.free = 0
        """Number of entries that the living workers can still take."""
        self.leases: dict[str, str] = {}
        """Lease tokens by the tokens of entries."""
        self.has_replies = False
        self.has_failed = False


class ListBridge:
    """Passes the tasks of one type to the workers of its lists. Belongs to one event loop.

    Args:
        name: name of the task type, and of its queue.
        operator: reads and writes the lists in Redis.
        served: queues that the instance's consumer serves.
        keyring: signs lease tokens; the same in all instances.
        retry_delay: returns the seconds until a failed task is retried; None is the back-off of Asynq.
    """

    def __init__(
        self,
        name: str,
        operator: Operator,
        served: ServedQueues,
        keyring: Keyring,
        retry_delay: DelayOfFailure,
    ) -> None:
        self.name = name
        self._operator = operator
        self._served = served
        self._keyring = keyring
        self._retry_delay = retry_delay
        self._shards: list[_Shard] = []
        self._renewed_at: dict[str, float] = {}
        """Time of the loop at which each entry's lease was renewed here last, by the entry's token."""
        self._watches: dict[str, asyncio.Task[None]] = {}
        """Asyncio tasks that wait for an attempt's cancellation or timeout, by the tokens of entries."""
        self._has_room = asyncio.Event()
        """Event that is set while workers are free."""
        self._feeding: asyncio.Task[None] | None = None
        self._tending: list[asyncio.Task[None]] = []
        """Asyncio tasks that renew leases and settle replies, one for each shard.

        A Redis node that cannot be reached stops its own shards only.
        """

    @property
    def listening(self) -> int:
        """Number of living workers of this type."""
        return sum(shard.living for shard in self._shards)

    @property
    def has_leases(self) -> bool:
        """Whether any list entry still represents a running attempt."""
        return any(shard.leases for shard in self._shards)

    def set_shards(self, number: int) -> None:
        """Use at least this many shards. Former shards stay, because workers may still listen to them."""
        for shard in range(len(self._shards), number):
            now = asyncio.get_running_loop().time()
            self._shards.append(_Shard(WorkerList(self._operator, self.name, shard), now))

    def start(self) -> None:
        """Begin to move tasks from the queue to the lists, and to settle the replies. Idempotent."""
        name = f"pyasynq list {self.name}"
        self._tending += [
            asyncio.create_task(self._tend(shard), name=name) for shard in self._shards[len(self._tending) :]
        ]
        if self._feeding is None:
            self._feeding = asyncio.create_task(self._feed(), name=name)

    def stop(self) -> None:
        """Move no more tasks to the lists; replies are still settled until `close`."""
        if self._feeding is not None:
            self._feeding.cancel()

    async def close(self) -> None:
        """Stop the bridge in this instance. Entries stay in the lists; other instances settle the replies."""
        tasks = [*self._tending, *self._watches.values()]
        if self._feeding is not None:
            tasks.append(self._feeding)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # Tasks: from the queue to the lists.

    async def _feed(self) -> None:
        """Lease a task for each free worker, and append it to a list."""
        while True:
            await self._has_room.wait()
            room = sum(max(0, shard.free) for shard in self._shards)
            if not room:
                self._has_room.clear()
                continue
            try:
                async with self._served.using(self.name) as consumer:
                    attempts = await consumer.lease(
                        self.name, limit=min(room, _BATCH), wait=_WAIT_SECONDS, duration=_LEASE_SECONDS
                    )
                await self._push_all(attempts)
            except ServerStateError:
                return
            except PyasynqError as error:
                _log.debug("no task of %s was passed on: %s", visible(self.name), visible(error))
                await asyncio.sleep(_PAUSE_SECONDS)
            except Exception:  # noqa: BLE001 - the next task may be sound
                _log.exception("tasks of %s were not passed on", visible(self.name))
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _push_all(self, attempts: Sequence[Attempt]) -> None:
        left = list(attempts)
        try:
            while left:
                # An attempt whose push failed may be in the list all the same; a sweep or the end of its
                # lease decides.
                attempt = left.pop(0)
                if not await self._push(attempt):
                    left.insert(0, attempt)
                    return
        finally:
            await _put_back(left)

    async def _push(self, attempt: Attempt) -> bool:
        """Append an attempt to the list with the most free workers; return False if no worker is free."""
        token = make_entry_token()
        entry = encode_list_entry(attempt, token)
        lease = seal_attempt(attempt, self._keyring, LIST_KEY_ID)
        for shard in sorted(self._shards, key=lambda one: -one.free):
            if shard.free < 1:
                break
            # Set before the push: a concurrent sweep would otherwise take the lease for one that is due for
            # renewal.
            self._renewed_at[token] = asyncio.get_running_loop().time()
            try:
                is_pushed = await shard.list.push(token, entry, lease)
            except PyasynqError:
                # The next sweep finds out whether the entry is there, and whether its node answers again.
                self._renewed_at.pop(token, None)
                shard.free = 0
                raise
            if is_pushed:
                shard.free -= 1
                shard.leases[token] = lease
                self._watch(shard, token, attempt)
                return True
            self._renewed_at.pop(token, None)
            shard.free = 0
        return False

    def _watch(self, shard: _Shard, token: str, attempt: Attempt) -> None:
        """Start to watch an attempt, to remove its entry from the list at a cancellation or timeout."""
        if token not in self._watches:
            watch = asyncio.create_task(self._wait_ended(shard, token, attempt), name="pyasynq list entry")
            self._watches[token] = watch
            watch.add_done_callback(lambda _: self._watches.pop(token, None))

    async def _wait_ended(self, shard: _Shard, token: str, attempt: Attempt) -> None:
        # Another instance may have renewed a lease that is lost here; the sweeps find out.
        if isinstance(await attempt.wait_cancelled(), TaskCanceledError | TaskTimeoutError):
            try:
                await self._end(shard, token)
            except PyasynqError as error:
                _log.debug("an entry was not withdrawn: %s", visible(error))

    # Replies of the workers, and sweeps of the lists.

    async def _tend(self, shard: _Shard) -> None:
        loop = asyncio.get_running_loop()
        sweep_at = loop.time()
        while True:
            try:
                if loop.time() >= sweep_at:
                    sweep_at = loop.time() + _until_next(_SWEEP_SECONDS)
                    await self._sweep(shard)
                is_busy = bool(shard.leases or shard.has_replies)
                if is_busy:
                    await self._read(shard)
            except ServerStateError:
                return
            except PyasynqError as error:
                if not shard.has_failed:
                    _log.warning("a list of %s: %s; retrying", visible(self.name), visible(error))
                shard.has_failed, shard.free = True, 0
                await asyncio.sleep(_PAUSE_SECONDS)
            except Exception:  # noqa: BLE001 - without looks nothing would be settled
                _log.exception("a list of %s was not read; retrying", visible(self.name))
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                shard.has_failed = False
                await asyncio.sleep(
                    _until_next(_READ_SECONDS) if is_busy else max(0.0, sweep_at - loop.time())
                )

    async def _sweep(self, shard: _Shard) -> None:
        """Read the state of a shard, renew its leases, and count a crash for each entry that is gone."""
        loop = asyncio.get_running_loop()
        if loop.time() - shard.swept_at > _OUTAGE_SECONDS:
            shard.forgotten_at.clear()
        dead = [name for name, at in shard.forgotten_at.items() if at <= loop.time()]
        found = await shard.list.sweep(dead)
        now = loop.time()
        at = now + _BEAT_SECONDS if now - shard.swept_at > _OUTAGE_SECONDS else now
        shard.forgotten_at = {name: max(at, shard.forgotten_at.get(name, at)) for name in found.silent}
        shard.swept_at = now
        shard.living, shard.free, shard.has_replies = found.living, found.free, found.replies > 0
        if found.free > 0:
            self._has_room.set()
        known = {one.entry_token: one.lease_token for one in found.leases}
        for token in shard.leases.keys() - known.keys():
            self._renewed_at.pop(token, None)
        shard.leases = known
        for one in found.leases:
            if not one.is_listed:
                await self._settle(shard, one.entry_token, one.lease_token, CrashItem(token=one.entry_token))
            elif self._renewed_at.get(one.entry_token, 0.0) + _RENEW_SECONDS <= now:
                self._renewed_at[one.entry_token] = now
                await self._renew(shard, one.entry_token, one.lease_token)

    async def _renew(self, shard: _Shard, token: str, lease: str) -> None:
        """Renew the lease of an entry; remove the entry if its attempt has ended."""
        try:
            opened = self._open(lease)
            async with self._served.using(self.name) as consumer:
                attempt = await consumer.find(self.name, opened.task_id, opened.receipt)
                await attempt.extend(_LEASE_SECONDS)
        except (InvalidTokenError, *_ENDED) as error:
            _log.debug("an entry of %s is withdrawn: %s", visible(self.name), visible(error))
            await self._end(shard, token)
            return
        lease = seal_attempt(attempt, self._keyring, LIST_KEY_ID)
        if await shard.list.renew(token, lease):
            shard.leases[token] = lease
            self._watch(shard, token, attempt)

    async def _read(self, shard: _Shard) -> None:
        """Settle the replies of a shard."""
        replies, removed = await shard.list.read()
        if removed:
            _log.warning(
                "%s: %s too long, and removed; each counts as a crash of its worker",
                visible(self.name),
                counted(removed, "reply was", "replies were"),
            )
        # The first reply to an entry counts; the others are dropped when they are read again.
        first = {find_reply_token(reply) or reply: reply for reply in reversed(replies)}
        await asyncio.gather(*(self._settle_reply(shard, reply) for reply in first.values()))
        if replies:
            await self._sweep(shard)

    async def _settle_reply(self, shard: _Shard, reply: bytes) -> None:
        token = find_reply_token(reply)
        lease = await shard.list.find_lease(token) if token else None
        if lease is None:
            what = "to no entry, or to one that has ended" if token else "that cannot be read"
            _log.info("%s: a reply %s is dropped", visible(self.name), what)
            await self._end(shard, token, reply)
            return
        act: ReplyAct
        try:
            act = decode_reply(reply)
        except ProblemError as problem:
            wrong = f"{problem.field}: {problem}" if problem.field else str(problem)
            _log.warning("%s: a reply counts as a crash: %s", visible(self.name), visible(wrong))
            act = CrashItem(token=token)
        await self._settle(shard, token, lease, act, reply)

    async def _settle(self, shard: _Shard, token: str, lease: str, act: ReplyAct, reply: bytes = b"") -> None:
        """Settle the attempt of an entry, and remove the entry."""
        try:
            opened = self._open(lease)
            async with self._served.using(self.name) as consumer:
                await _settle_attempt(consumer, opened, act, self._retry_delay)
        except (InvalidTokenError, *_ENDED) as error:
            _log.info("%s: a reply is refused: %s", visible(self.name), visible(error))
        await self._end(shard, token, reply)

    def _open(self, lease: str) -> LeaseToken:
        """Decode and verify a lease token that was read from Redis, where workers can write.

        Raises:
            InvalidTokenError: this service has not signed the token, or signed it for another type.
        """
        opened = self._keyring.open(lease, LIST_KEY_ID)
        if opened.queue != self.name:
            raise InvalidTokenError
        return opened

    async def _end(self, shard: _Shard, token: str, reply: bytes = b"") -> None:
        await shard.list.withdraw(token, reply)
        shard.leases.pop(token, None)
        self._renewed_at.pop(token, None)


def _until_next(interval: float) -> float:
    """Return the seconds until the next multiple of an interval.

    All shards wake at that time, so that their calls leave in one pipeline.
    """
    return interval - asyncio.get_running_loop().time() % interval


async def _settle_attempt(
    consumer: Consumer, token: LeaseToken, act: ReplyAct, retry_delay: DelayOfFailure
) -> None:
    if isinstance(act, CrashItem):
        attempt = await consumer.find(token.queue, token.task_id, token.receipt)
        await attempt.crashed("its worker died, or has not replied")
        return
    try:
        await act_by_token(consumer, token, act, retry_delay)
    except ProblemError as problem:
        # Another attempt would give the same problem.
        await act_by_token(consumer, token, FailAttempt(error=str(problem), retry=False), retry_delay)


async def _put_back(attempts: Sequence[Attempt]) -> None:
    """Put attempts back to the front of their queue, together so that they keep their order."""
    results = await asyncio.gather(*(one.requeue() for one in attempts), return_exceptions=True)
    for error in results:
        if isinstance(error, Exception):
            _log.debug("a task was not put back: %s", visible(error))
