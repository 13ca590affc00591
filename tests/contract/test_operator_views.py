"""Saved views: who keeps which, who sees them, and their bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.operating import views as plans
from pyasynq._wire.keys import VIEWS_KEY
from pyasynq.errors import InvalidOptionError, PermissionDeniedError, QueueNotFoundError
from pyasynq.operations import SavedView, User
from pyasynq.operations import sync as blocking
from pyasynq.operations import views as values
from pyasynq.operations.query import QueryError
from tests.contract.test_operator_walk import _Clock
from tests.factories import NOW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

MIRA = User.with_role("mira", "operator")
LEO = User.with_role("leo", "viewer", queues="team-*")


@pytest.fixture
def mira(redis_url: str, redis_client: RedisClient) -> Iterator[blocking.Operator]:
    """An operator's."""
    with blocking.Operator(redis_url, MIRA, clock=_Clock()) as one:
        yield one


def names(operator: blocking.Operator) -> list[str]:
    """Return the names of the views that a user sees."""
    return [view.name for view in operator.views()]


def test_a_view_is_kept_as_it_was_saved(mira: blocking.Operator) -> None:
    """Saved again under its name, it is replaced."""
    mira.save_view("old", "tasks")
    saved = mira.save_view("old", "search", "type:email:* failed:<1h", ["id", "error"])
    expected = SavedView(
        view=saved.view,
        name="old",
        owner="mira",
        is_shared=False,
        saved_at=NOW.to_datetime(),
        page="search",
        query="type:email:* failed:<1h",
        columns=("id", "error"),
    )
    assert [expected] == mira.views() == mira.views("search")
    assert [] == mira.views("tasks")


def test_a_view_is_its_owners_until_it_is_shared(mira: blocking.Operator) -> None:
    """Own views come first; another user has others under the same name, and cannot delete these."""
    leo = mira.for_user(LEO)
    view = mira.save_view("failing", "search").view
    leo.save_view("zero", "search")
    assert (["failing"], ["zero"]) == (names(mira), names(leo))
    assert not leo.delete_view(view)
    assert view == mira.share_view("failing", "search").view
    assert ["zero", "failing"] == names(leo)
    with pytest.raises(PermissionDeniedError):
        leo.share_view("zero", "search")
    assert not leo.delete_view(view)
    assert mira.delete_view(view)
    assert (["zero"], []) == (names(leo), names(mira))


def test_an_admin_deletes_shared_views_and_no_private_ones(mira: blocking.Operator) -> None:
    """A private one is not seen either."""
    root = mira.for_user(User.with_role("root", "admin"))
    shared, private = mira.share_view("ours", "tasks"), mira.save_view("mine", "tasks")
    assert ["ours"] == names(root)
    assert (True, False, False) == tuple(
        root.delete_shared_view(view) for view in (shared.view, private.view, shared.view)
    )
    assert ["mine"] == names(mira)


@pytest.mark.parametrize(
    ("query", "queue", "is_seen"),
    [
        ("type:x", "", True),
        ("queue:team-mail", "team-mail", True),
        ("queue:payments", "", False),
        ("-queue:team-mail,payments", "", False),
        ("queue:pay*", "", False),
        ("type:x OR (state:retry queue:payments)", "", False),
        ("", "payments", False),
    ],
)
def test_a_shared_view_tells_no_queue_that_is_not_shown(
    mira: blocking.Operator, query: str, queue: str, is_seen: bool
) -> None:
    """Neither by its query nor by its page."""
    mira.share_view("ours", "tasks", query, queue=queue)
    assert (["ours"] if is_seen else []) == names(mira.for_user(LEO))


def test_what_cannot_be_is_refused(mira: blocking.Operator, redis_client: RedisClient) -> None:
    """Nothing is saved."""
    for name, page, query, columns in (
        ("", "p", "", ()),
        ("n", "", "", ()),
        ("n" * 101, "p", "", ()),
        ("n", "p" * 101, "", ()),
        ("n", "p", "", ["c"] * 51),
        ("n", "p", "", ["c" * 101]),
        ("n", "p", "", "columns"),
    ):
        with pytest.raises(InvalidOptionError):
            mira.save_view(name, page, query, columns)
    with pytest.raises(QueryError):
        mira.save_view("n", "p", "nope:1")
    with pytest.raises(QueueNotFoundError):
        mira.for_user(LEO).save_view("n", "p", queue="payments")
    assert not redis_client.exists(VIEWS_KEY)


def test_there_is_an_end_to_views(
    mira: blocking.Operator, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One user has a limit, and all together; an own view can be replaced also then."""
    monkeypatch.setattr("pyasynq.operations.views.MAX_OWN_VIEWS", 2)
    mira.save_view("a", "p")
    mira.save_view("b", "p")
    with pytest.raises(InvalidOptionError, match="a user has at most 2 views"):
        mira.save_view("c", "p")
    mira.save_view("b", "other")
    monkeypatch.setattr(plans, "MAX_VIEWS", 2)
    with pytest.raises(InvalidOptionError, match="as many as can be"):
        mira.for_user(LEO).save_view("c", "p")
    assert 2 == redis_client.hlen(VIEWS_KEY)


def test_what_is_not_a_view_is_left_out(
    mira: blocking.Operator, redis_client: RedisClient, perform: Perform
) -> None:
    """Other programs may have written it; a shared view whose query cannot be read is its owner's alone."""
    own = mira.share_view("mine", "tasks")
    odd = values.encode_view(own).replace(b'"query":""', b'"query":"nope:1"')
    for name, data in {"x": b"nonsense", "y": b"[1]", "z": b'{"name":1}'}.items():
        redis_client.hset(VIEWS_KEY, name, data)
    assert [own] == mira.views()
    redis_client.hset(VIEWS_KEY, own.view, odd)
    assert (["mine"], []) == (names(mira), names(mira.for_user(LEO)))
    redis_client.hdel(VIEWS_KEY, "x", "y", "z")


def test_views_are_read_in_parts(
    mira: blocking.Operator, redis_client: RedisClient, perform: Perform
) -> None:
    """All of them, also more than a part has."""
    view = values.encode_view(mira.save_view("mine", "tasks"))
    for number in range(250):
        redis_client.hset(VIEWS_KEY, f"view-{number}", view)
    assert 251 == len(perform(plans.read_views()))


def test_saving_is_in_the_audit(mira: blocking.Operator) -> None:
    """The entry has the name, the page and the query of the view, without the secret in it."""
    mira.save_view("mine", "tasks", "token=hunter2")
    [entry] = mira.audit().entries
    assert ("save_view", "mine", "tasks", "token=[redacted]") == (
        entry.verb,
        *(entry.details[name] for name in ("name", "page", "query")),
    )
