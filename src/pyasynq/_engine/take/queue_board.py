"""The queues of a server: which of them to ask, and which to have watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.dequeue import LimitedBy, Rules
from pyasynq._engine.take.queue_view import QueueView
from pyasynq.limits import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pyasynq._broker.dequeue import Dequeued


class QueueBoard:
    """The queues of a server.

    Args:
        queues: their names.
        settings: gives what is set for one of them.
    """

    def __init__(
        self, queues: Iterable[str], settings: Callable[[str], Queue] = lambda _name: Queue()
    ) -> None:
        self.views = [QueueView(name, settings(name)) for name in queues]
        self._wanted = self.views
        self._servers = 1
        self.all_plain = not self.limited_queues()
        """Whether no queue has limits or an order, as far as this server knows."""
        self._by_name = {view.name: view for view in self.views}
        self._by_key = {
            key: view
            for view in self.views
            for key in (
                view.pending_key,
                view.paused_key,
                view.lease_key,
                view.limits_key,
                view.active_key,
                view.retry_key,
            )
        }

    def view(self, queue: str) -> QueueView:
        """Return the view of a queue."""
        return self._by_name[queue]

    def only(self, queues: Collection[str]) -> None:
        """Ask and watch these queues alone; what Redis reports of the others is still noted."""
        self._wanted = [view for view in self.views if view.name in queues]

    def note_servers(self, servers: int) -> None:
        """Note how many servers there are, of whatever queues."""
        self._servers = servers

    def is_ordered(self, queue: str) -> bool:
        """Return whether a queue is ordered, as far as this server knows."""
        return self._by_name[queue].rules is Rules.ORDERED

    def limited_queues(self) -> frozenset[str]:
        """Return the queues that have limits or an order, as far as this server knows."""
        return frozenset(view.name for view in self.views if view.limited)

    def worth_asking(self, now: float) -> list[QueueView]:
        """Return the queues that may have tasks, or have rested long enough."""
        views = [view for view in self._wanted if not view.resting or view.look_at <= now]
        for view in views:
            if view.resting:
                # A watch can go deaf unnoticed (a slot that moves while it is empty), so it is renewed.
                view.armed = view.leases_armed = False
        return views

    def due(self, now: float) -> list[QueueView]:
        """Return the queues that are to be watched again and asked: those that others may have changed."""
        return [
            view
            for view in self._wanted
            if (view.empty or view.waits_for_others) and not view.unsure and view.look_at <= now
        ]

    def to_watch(self) -> list[QueueView]:
        """Return the queues that are empty and not watched."""
        return [view for view in self._wanted if view.empty and not (view.armed or view.deferred)]

    def changed(self, key: str, now: float = 0.0) -> bool:
        """Note that Redis reported a change of a key; return whether a queue is to be asked because of it."""
        view = self._by_key.get(key)
        if view is None:
            return False
        if view.ignores(key):
            view.disarm(key)
            return False
        if view.held is LimitedBy.NOTHING:
            view.fill(now, self._servers)
        else:
            view.stir()
        return True

    def answered(
        self, view: QueueView, answer: Dequeued, *, changes: int, now: float, look_at: float
    ) -> None:
        """Note a queue's answer to a question that was asked when it had seen so many changes."""
        view.unsure = view.deferred = False
        was_limited = view.limited
        view.adopt(answer)
        if view.limited is not was_limited:
            self.all_plain = not self.limited_queues()
        if answer.limited_by is not LimitedBy.NOTHING:
            view.hold(answer, now, look_at)
            if view.changes != changes:
                view.stir()
        else:
            # After a report the queue is not watched, so whatever the answer says, it is looked at again.
            view.rest(answer, look_at)

    def slot_freed(self, queue: str) -> None:
        """Note that an attempt of this server has ended; what it held is free once that is written."""
        view = self._by_name[queue]
        if view.waits_for_others:
            view.release()

    def watched(self, view: QueueView, *, changes: int) -> None:
        """Note that Redis will report the next change; the queue is asked once more."""
        if view.changes != changes:
            return
        if view.held is LimitedBy.NOTHING:
            view.armed = True
            view.empty = view.deferred = False
        else:
            view.leases_armed = True
            view.release()

    def watched_empty(self, view: QueueView, *, changes: int, look_at: float) -> None:
        """Note that Redis will report the next change, and has said that there is nothing to take by now."""
        if view.held is not LimitedBy.NOTHING:
            self.watched(view, changes=changes)
        elif view.changes == changes:
            view.rest_watched(look_at)

    def unwatchable(self, view: QueueView, *, look_at: float) -> None:
        """Note that Redis cannot report changes: an empty queue is asked again later."""
        view.look_at = min(view.look_at, look_at)

    def failed(self, view: QueueView, *, look_at: float) -> None:
        """Leave a queue alone for a while after an error, whatever it may have."""
        view.unsure = True
        view.look_at = look_at

    def ask_all_again(self) -> None:
        """Forget which queues are empty."""
        for view in self.views:
            view.empty = view.deferred = False

    @property
    def all_empty(self) -> bool:
        """Whether every queue has said that it is empty."""
        return all(view.empty and not view.unsure for view in self.views)

    def next_look(self) -> float:
        """Return the monotonic time at which a queue is to be asked; it is past when one may have tasks."""
        return min(view.look_at if view.resting else 0.0 for view in self._wanted)
