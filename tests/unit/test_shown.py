"""Results that are cut down to what a user may see: what is shown whole is not copied."""

from __future__ import annotations

from dataclasses import replace

from pyasynq import info
from pyasynq.info import ServerInfo, WorkerInfo
from pyasynq.operations import Redactor, User
from pyasynq.operations.permissions import Access
from pyasynq.operations.redaction import Withheld
from pyasynq.operations.shown import HIDDEN, INFO_FILTERS, Shown
from pyasynq.task_types import ServedTypes

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


def test_a_payload_that_was_not_read_is_not_searched_for_secrets() -> None:
    """A list of servers has thousands of running tasks, and the search was most of its time."""

    class Unused(Redactor):
        def data(self, data: bytes, task_type: str = "") -> bytes:
            raise AssertionError(data, task_type)

    spared = replace(_WORKER, payload=b"")
    for role in ("admin", "viewer"):
        assert spared is Shown(Access(User.with_role("mira", role)), Unused())(spared)


def test_running_tasks_of_hidden_queues_are_left_out_of_a_server() -> None:
    """Also if the server does not name the queue; the task types of hidden queues are left out as well."""
    others = replace(_WORKER, queue="bills")
    server = ServerInfo(
        id="s",
        host="h",
        pid=1,
        status="active",
        concurrency=2,
        queues={"emails": 1, "bills": 2},
        strict_priority=False,
        started=None,
        active_workers=(_WORKER, others, _WORKER),
        types=ServedTypes(frozenset({"email", "bill"}), ()),
    )

    shown = _shown_to(User.with_role("olaf", "admin", queues="emails"))(server)

    assert ({"emails": 1}, (_WORKER, _WORKER), None) == (shown.queues, shown.active_workers, shown.types)


def test_every_filter_named_by_its_class_belongs_to_a_class_that_exists() -> None:
    """A class that was renamed without its filter would be shown with its secrets."""
    assert set(INFO_FILTERS) <= set(info.__all__)
    assert {True} == {getattr(info, name).__module__.startswith("pyasynq.info.") for name in INFO_FILTERS}
