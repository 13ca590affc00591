"""What the processor knows of each queue: whether it is worth asking, and when to ask again anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Iterable


class QueueView:
    """One queue as this server sees it.

    A queue is asked until it says that it is empty. Then it is watched, asked once more (something may
    have come before the watch was in place), and left alone until Redis reports a change or `look_at`.
    """

    __slots__ = ("armed", "changes", "empty", "look_at", "name", "paused_key", "pending_key", "unsure")

    def __init__(self, name: str) -> None:
        keys = queue_keys(name)
        self.name = name
        self.pending_key = keys.pending
        self.paused_key = keys.paused
        self.changes = 0
        """Counts what Redis reported; an answer that is older than a report says nothing."""
        self.empty = False
        self.unsure = False
        """The last question failed, so that nobody knows whether the queue is empty."""
        self.armed = False
        """Redis reports the next change."""
        self.look_at = 0.0
        """Monotonic time at which a queue that rests is asked anyway."""

    @property
    def resting(self) -> bool:
        """Whether the queue is left alone for now."""
        return self.empty or self.unsure


class QueueBoard:
    """The queues of a server."""

    def __init__(self, queues: Iterable[str]) -> None:
        self.views = [QueueView(name) for name in queues]
        self._by_key = {key: view for view in self.views for key in (view.pending_key, view.paused_key)}

    def worth_asking(self, now: float) -> list[QueueView]:
        """Return the queues that may have tasks, or have rested long enough."""
        views = [view for view in self.views if not view.resting or view.look_at <= now]
        for view in views:
            if view.resting:
                # A watch can go deaf unnoticed (a slot that moves while it is empty), so it is renewed.
                view.armed = False
        return views

    def due(self, now: float) -> list[QueueView]:
        """Return the queues that were empty and have rested long enough."""
        return [view for view in self.views if view.empty and not view.unsure and view.look_at <= now]

    def to_watch(self) -> list[QueueView]:
        """Return the queues that are empty and not watched."""
        return [view for view in self.views if view.empty and not view.armed]

    def changed(self, key: str) -> bool:
        """Note that Redis reported a change of a key; return whether it belongs to a queue here."""
        view = self._by_key.get(key)
        if view is None:
            return False
        view.changes += 1
        view.armed = view.empty = view.unsure = False
        return True

    def answered(self, view: QueueView, *, empty: bool, changes: int, look_at: float) -> None:
        """Note a queue's answer to a question that was asked when it had seen so many changes."""
        view.unsure = False
        if view.changes == changes:
            view.empty = empty
            view.look_at = look_at

    def watched(self, view: QueueView, *, changes: int) -> None:
        """Note that Redis will report the next change; the queue is asked once more."""
        if view.changes == changes:
            view.armed = True
            view.empty = False

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
            view.empty = False

    @property
    def all_empty(self) -> bool:
        """Whether every queue has said that it is empty."""
        return all(view.empty and not view.unsure for view in self.views)

    def next_look(self) -> float:
        """Return the monotonic time at which a queue is to be asked; it is past when one may have tasks."""
        return min(view.look_at if view.resting else 0.0 for view in self.views)
