"""Pages and forms of API keys: who sees them, that a text is shown once, and what resent forms do."""

from __future__ import annotations

import html
import logging
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyasynq._wire.keys import API_KEYS_KEY
from pyasynq.operations import SCOPES, User
from pyasynq.operations.sync import Operator
from pyasynq.web import Everyone
from tests.run_async import run_async
from tests.visiting import ABROAD, form_token, heading_of, links_of, send_form, visiting

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")
_TEXT: Final = re.compile(r"pq_[0-9a-f]{12}_[0-9a-f]{64}_[0-9a-f]{8}")
_HIDDEN: Final = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)">')
_TYPED: Final = {"name": "billing", "scope:tasks:write": "yes", "queues": "billing:*, invoices", "end": ""}
_FORM: Final = "keys/new"


@pytest.fixture
def admin(redis_url: str, redis_client: RedisClient) -> Iterator[Operator]:
    """An administrator's operator."""
    with Operator(redis_url, User.with_role("mira", "admin")) as one:
        yield one


async def _send(
    visitor: httpx.AsyncClient, path: str, fields: dict[str, Any], page: str | None = None
) -> httpx.Response:
    """Send a form with what is hidden in it."""
    shown = await visitor.get(path if page is None else page)
    hidden = {name: html.unescape(value) for name, value in _HIDDEN.findall(shown.text)}
    return await visitor.post(path, data={**hidden, **fields}, headers={"sec-fetch-site": "same-origin"})


@run_async
async def test_a_key_is_made_and_shown_once(
    redis_url: str, admin: Operator, redis_client: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Its text is in the one answer alone: in no log, audit, cookie, address or later page."""
    caplog.set_level(logging.DEBUG)
    async with visiting(redis_url) as visitor:
        made = await _send(visitor, _FORM, {**_TYPED, "end": str(30 * 86_400), "reason": "the new shop"})
        assert (200, "no-store") == (made.status_code, made.headers["cache-control"])
        assert "set-cookie" not in made.headers
        [text] = _TEXT.findall(made.text)
        assert not any(text in link for link in links_of(made.text))
        command = (
            "pyasynq key make billing --scope tasks:write --queue 'billing:*' --queue invoices --expires 30d"
        )
        assert command in html.unescape(made.text)
        secret = text.split("_")[2]
        for path in ("keys", "audit", _FORM, "live.json?page=/keys"):
            assert secret not in (await visitor.get(path)).text
    [key] = admin.api_keys()
    assert ("billing", ("tasks:write",), ("billing:*", "invoices")) == (key.name, key.scopes, key.patterns)
    assert key.accepts(secret, key.made_at)
    assert key.expires_at == key.made_at + timedelta(days=30)
    assert secret not in caplog.text
    assert not any(secret.encode() in value for value in redis_client.hvals(API_KEYS_KEY))
    [entry] = admin.audit(limit=1).entries
    assert ("make_api_key", "the new shop") == (entry.verb, entry.reason)


@run_async
async def test_a_form_that_is_sent_again_makes_no_second_key(redis_url: str, admin: Operator) -> None:
    """As a browser does when the page with the text is loaded again; nor does it rotate a second time."""
    async with visiting(redis_url) as visitor:
        form = await visitor.get(_FORM)
        hidden = {name: html.unescape(value) for name, value in _HIDDEN.findall(form.text)}
        fields = {**hidden, **_TYPED}
        for expected in (200, 409):
            answer = await visitor.post(_FORM, data=fields, headers={"sec-fetch-site": "same-origin"})
            assert expected == answer.status_code
        assert "was made already" in answer.text
        assert not _TEXT.search(answer.text)
        [key] = admin.api_keys()
        path = f"keys/{key.id}/rotate"
        stale = {"newest": str(int(key.made_at.timestamp()) - 9), "overlap": "86400"}
        late = await send_form(visitor, path, stale)
        assert (409, "This key has a new secret already") == (late.status_code, heading_of(late))
    assert [key] == admin.api_keys()


@run_async
async def test_a_key_is_rotated_with_an_overlap(redis_url: str, admin: Operator) -> None:
    """The list shows both secrets until the former one ends; a second rotation says what ends at once."""
    issued = admin.make_api_key("billing", ["work"])
    path = f"keys/{issued.key.id}/rotate"
    async with visiting(redis_url) as visitor:
        rotated = await _send(visitor, path, {"overlap": "86400", "reason": "yearly"})
        [text] = _TEXT.findall(rotated.text)
        assert "stays valid until" in rotated.text
        [key] = admin.api_keys()
        for one in (text, issued.text):
            assert key.accepts(one.split("_")[2], key.secrets[0].made_at)
        assert "Two secrets" in (await visitor.get("keys")).text
        assert "the older one ends at once" in (await visitor.get(path)).text
        ended = await _send(visitor, path, {"overlap": "0"})
        assert "The former secret has ended." in ended.text
        assert 400 == (await _send(visitor, path, {"overlap": "5"})).status_code
    [key] = admin.api_keys()
    assert 1 == len(key.secrets)


@run_async
async def test_a_key_is_deleted_only_by_its_name(redis_url: str, admin: Operator) -> None:
    """A key that is gone is told as such."""
    key = admin.make_api_key("billing", ["work"]).key
    path = f"keys/{key.id}/delete"
    async with visiting(redis_url) as visitor:
        assert 400 == (await _send(visitor, path, {"confirm": "bill"})).status_code
        assert [key] == admin.api_keys()
        assert 303 == (await _send(visitor, path, {"confirm": "billing"})).status_code
        assert [] == admin.api_keys()
        gone = await visitor.get(path)
        assert (404, "This key is gone") == (gone.status_code, heading_of(gone))
        assert 404 == (await send_form(visitor, path, {"confirm": "billing"}, page="settings")).status_code
        assert 400 == (await visitor.get(f"keys/{key.id}/dance")).status_code


@run_async
async def test_keys_that_end_soon_and_expired_ones_are_marked(redis_url: str, admin: Operator) -> None:
    """The first line counts them."""
    for name, days in (("soon", 6), ("later", 60)):
        admin.make_api_key(name, ["tasks:read"], expires_in=days * 86_400)
    admin.make_api_key("ever", ["admin"], ["a", "b<i>"])
    admin.make_api_key("expired", ["tasks:read"], expires_in=0.001)
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("keys")).text
        assert "4 keys of programs, for the task service; 1 ends within a week; 1 has expired" in page
        for word, count in (("Ends soon", 1), ("Expired", 1), ("Valid", 2)):
            assert count == page.count(f"</svg>{word}")
        assert "b&lt;i&gt;" in page
        assert "soon" not in _names((await visitor.get("keys?f=late")).text)


def _names(text: str) -> list[str]:
    return re.findall(r'<th scope="row"[^>]*>(.*?)</th>', text)


@run_async
async def test_wrong_fields_stay_in_the_form(redis_url: str, admin: Operator) -> None:
    """With their sentence, and without a key."""
    async with visiting(redis_url) as visitor:
        for changed, said in (
            ({"name": ""}, "k-name-e"),
            ({"scope:tasks:write": ""}, "give at least one of"),
            ({"queues": " , "}, "k-queues-e"),
            ({"end": "1e9"}, "must be one of the choices"),
            ({"name": "x" * 101}, "at most 100 characters"),
        ):
            answer = await _send(visitor, _FORM, {**_TYPED, **changed})
            assert (400, True) == (answer.status_code, said in answer.text)
    assert [] == admin.api_keys()


@run_async
async def test_a_rate_is_set_in_the_form_and_shown(redis_url: str, admin: Operator) -> None:
    """A wrong one stays in the form with its remedy; the command has it, and a rotation keeps it."""
    async with visiting(redis_url) as visitor:
        wrong = await _send(visitor, _FORM, {**_TYPED, "rate": "50<"})
        assert (400, True) == (wrong.status_code, 'id="k-rate-e"' in wrong.text)
        assert "write 50/s, 100/m" in wrong.text
        assert 'value="50&lt;"' in wrong.text
        assert [] == admin.api_keys()
        made = await _send(visitor, _FORM, {**_TYPED, "rate": " 50/s+10 "})
        assert "--queue invoices --rate 50/s+10" in html.unescape(made.text)
        assert 'data-l="Rate">50/s+10<' in (await visitor.get("keys")).text
        [key] = admin.api_keys()
        await _send(visitor, f"keys/{key.id}/rotate", {"overlap": "0"})
        assert 'data-l="Rate">50/s+10<' in (await visitor.get("keys")).text


@run_async
async def test_the_form_says_what_each_scope_allows(redis_url: str, redis_client: RedisClient) -> None:
    """In words, also for a scope that is added."""
    async with visiting(redis_url) as visitor:
        form = (await visitor.get(_FORM)).text
    assert list(SCOPES) == re.findall(r"<code>([^<]+)</code> [a-z]", form)


@run_async
async def test_without_keys_the_page_says_how_to_make_one(redis_url: str, redis_client: RedisClient) -> None:
    """By the command line."""
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("keys")).text
        assert ("No program has a key" in page, "pyasynq key make" in page) == (True, True)


@run_async
async def test_only_an_admin_of_all_queues_sees_and_changes_keys(redis_url: str, admin: Operator) -> None:
    """Others are refused each page and form, and are not led there; a read-only dashboard only lists."""
    key = admin.make_api_key("billing", ["work"]).key
    paths = (_FORM, f"keys/{key.id}/rotate", f"keys/{key.id}/delete")

    async def other_team(_: object) -> User:
        return User.with_role("olaf", "admin", queues="other-*")

    refused: tuple[dict[str, Any], ...] = (
        {"auth": Everyone("viewer"), "client": ABROAD},
        {"auth": Everyone("operator"), "client": ABROAD},
        {"auth": other_team, "client": ABROAD},
        {"read_only": True},
    )
    for options in refused:
        async with visiting(redis_url, **options) as visitor:
            is_admin = "read_only" in options
            listed = await visitor.get("keys")
            assert (200 if is_admin else 403) == listed.status_code
            assert is_admin == ("billing" in listed.text)
            settings = (await visitor.get("settings")).text
            assert is_admin == ("API keys" in settings)
            commands = (await visitor.get("palette.json?q=api+key")).json()["commands"]
            assert not [one for one in commands if one["href"] == _FORM]
            for path in paths:
                assert path not in listed.text
                assert 403 == (await visitor.get(path)).status_code
                fields = {"csrf": form_token(settings), **_TYPED, "confirm": "billing", "overlap": "0"}
                sent = await visitor.post(path, data=fields, headers={"sec-fetch-site": "same-origin"})
                assert 403 == sent.status_code
    assert [key] == admin.api_keys()
