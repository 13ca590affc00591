"""Results that are cut down to what a user may see: what is shown whole is not copied."""

from __future__ import annotations

from dataclasses import replace

from pyasynq import info
from pyasynq.info import WorkerInfo
from pyasynq.operations import Redactor, User
from pyasynq.operations.permissions import Access
from pyasynq.operations.redaction import Withheld
from pyasynq.operations.shown import HIDDEN, INFO_FILTERS, Shown

_WORKER = WorkerInfo("id", "email", "emails", b'{"user": 42}', None, None)


def _shown_to(user: User) -> Shown:
    return Shown(Access(user), Redactor())


def test_a_running_task_without_secrets_is_shown_as_it_is() -> None:
    """Thousands of them are on the page of servers, and a copy of each would take half of its time."""
    assert _shown_to(User.with_role("mira", "admin"))(_WORKER) is _WORKER


def test_the_secrets_of_a_running_task_are_replaced() -> None:
    """The rest of the payload stays."""
    worker = replace(_WORKER, payload=b'{"user": 42, "password": "hunter2"}')
    shown = _shown_to(User.with_role("mira", "admin"))(worker)
    assert b"hunter2" not in shown.payload
    assert b'"user": 42' in shown.payload


def test_the_payload_of_a_running_task_is_withheld_from_a_viewer() -> None:
    """And the task is hidden from users who do not see its queue."""
    shown = _shown_to(User.with_role("vera", "viewer"))(_WORKER)
    assert isinstance(shown.payload, Withheld)
    assert HIDDEN is _shown_to(User.with_role("olaf", "admin", queues="other-*"))(_WORKER)


def test_every_filter_named_by_its_class_belongs_to_a_class_that_exists() -> None:
    """A class that was renamed without its filter would be shown with its secrets."""
    assert set(INFO_FILTERS) <= set(info.__all__)
    assert {True} == {getattr(info, name).__module__.startswith("pyasynq.info.") for name in INFO_FILTERS}
