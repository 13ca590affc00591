"""Publish/subscribe hub of events."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("pyasynq")

Event = TypeVar("Event", bound=tuple[object, ...])


class _Subscription(NamedTuple):
    callback: Callable[..., object]
    routine: Callable[[], bool] | bool


class Events:
    """Publish/subscribe hub of one server or scheduler.

    Subscribe in the event loop's thread. Nearly all events are emitted in it, too; `LoopBlocked` and
    `ShutdownHung` may come from another thread.
    """

    __slots__ = ("_routine", "_subscriptions")

    def __init__(self) -> None:
        self._subscriptions: dict[type, tuple[_Subscription, ...]] = {}
        self._routine: dict[type, tuple[Callable[[], bool], ...]] = {}
        """Functions that return whether routine events of a class are wanted; called for each task."""

    def subscribe(
        self,
        event_class: type[Event],
        callback: Callable[[Event], object],
        *,
        routine: Callable[[], bool] | bool = True,
    ) -> Callable[[], None]:
        """Call `callback` with each event of exactly this class; return a function that unsubscribes.

        An exception of a callback is logged and does not affect other callbacks. `routine` sets whether the
        callback wants routine events, such as the success of a task: always, never, or whenever a function
        returns True.
        """
        subscription = _Subscription(callback, routine)
        self._set(event_class, (*self._subscriptions.get(event_class, ()), subscription))

        def unsubscribe() -> None:
            kept = self._subscriptions.get(event_class, ())
            self._set(event_class, tuple(one for one in kept if one is not subscription))

        return unsubscribe

    def _set(self, event_class: type, subscriptions: tuple[_Subscription, ...]) -> None:
        self._subscriptions[event_class] = subscriptions
        if not subscriptions:
            del self._subscriptions[event_class]
        self._routine.pop(event_class, None)
        questions = tuple(
            (lambda: True) if one.routine is True else one.routine
            for one in subscriptions
            if one.routine is not False
        )
        if questions:
            self._routine[event_class] = questions

    def wants(self, event_class: type) -> bool:
        """Return whether there is a subscriber of this class."""
        return event_class in self._subscriptions

    def wants_routine(self, event_class: type) -> bool:
        """Return whether any subscriber wants routine events of this class at the moment."""
        for ask in self._routine.get(event_class, ()):  # noqa: SIM110 - a generator costs more than all of this
            if ask():
                return True
        return False

    def emit(self, event: tuple[object, ...]) -> None:
        """Pass the event to its subscribers, in the order of their subscriptions."""
        for subscription in self._subscriptions.get(type(event), ()):
            try:
                subscription.callback(event)
            except Exception:  # noqa: BLE001 - a subscriber's failure must not affect the emitter
                _log.exception("a subscriber of %s raised", type(event).__name__)
