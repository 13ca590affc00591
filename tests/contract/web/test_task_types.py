"""Pages and forms of the task service's types: the list, one type, edits with compare-and-set, deletion."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyasynq.operations import User
from pyasynq.operations.sync import Operator
from pyasynq.web import Everyone
from tests.factories import Tasks
from tests.fix_commands import ON_LINUX
from tests.fix_service import serving
from tests.run_async import run_async
from tests.shop import announce_servers
from tests.shop_service import configure_service
from tests.visiting import ABROAD, form_token, heading_of, send_form, visiting

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from pyasynq.operations import TypeConfiguration
    from tests.invariants import RedisClient

pytestmark = pytest.mark.single_server("one database for all queues")
_HIDDEN: Final = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)">')
_EDIT: Final = "task-types/exports/edit"


@pytest.fixture
def admin(redis_url: str, redis_client: RedisClient) -> Iterator[Operator]:
    """An administrator's operator, on the configured types of a shop."""
    Tasks(redis_client, "exports").pending("a", "b")
    Tasks(redis_client, "emails").pending("c")
    announce_servers(redis_url)
    configure_service(redis_url)
    with Operator(redis_url, User.with_role("mira", "admin")) as one:
        yield one


def _hidden(response: httpx.Response) -> dict[str, str]:
    """Return the hidden fields of the one form of a page."""
    found = _HIDDEN.findall(response.text)
    return {name: html.unescape(value) for name, value in found}


async def _preview(
    visitor: httpx.AsyncClient, fields: dict[str, Any], path: str = _EDIT, status: int = 200
) -> httpx.Response:
    """Send the form of a type, with what is hidden in it, and return the answer."""
    hidden = _hidden(await visitor.get(path))
    answer = await send_form(visitor, path, {**hidden, **fields})
    assert status == answer.status_code, html.unescape(answer.text)
    return answer


async def _confirm(
    visitor: httpx.AsyncClient, question: httpx.Response, path: str = _EDIT, **fields: str
) -> httpx.Response:
    """Send the form of a preview."""
    return await visitor.post(
        path, data={**_hidden(question), **fields}, headers={"sec-fetch-site": "same-origin"}
    )


def _stored(admin: Operator, name: str = "exports") -> TypeConfiguration:
    found = admin.type_configuration(name)
    assert found is not None
    return found


def _cells(text: str) -> list[str]:
    """Return the texts of the cells of a page's tables."""
    found = re.findall(r"<(?:td|th scope=\"row\")[^>]*>(.*?)</t[dh]>", text, re.DOTALL)
    return [html.unescape(re.sub(r"<[^>]+>", " ", one)).strip() for one in found]


@run_async
async def test_the_list_shows_limits_load_and_types_without_a_worker(redis_url: str, admin: Operator) -> None:
    """A type with waiting tasks that no server takes is marked, and a chip shows only those."""
    async with visiting(redis_url) as visitor:
        page = await visitor.get("task-types")
        cells = _cells(page.text)
        row = cells[cells.index("exports") :][:10]
        assert ["exports", "No worker", "0 / 3", "2"] == row[:4]
        assert ["0", "worker", "API"] == row[7:]
        row = cells[cells.index("emails") :][:10]
        assert ["1", "100/m"] == row[3:5]
        assert ["4", "worker", "file"] == row[7:]
        assert "1 type has no worker" in page.text
        only = (await visitor.get("task-types?state=unserved")).text
        assert ("task-types/exports" in only, "task-types/emails" in only) == (True, False)
        assert "task-types/emails" in (await visitor.get("task-types?f=MAIL")).text
        assert "No task type matches" in (await visitor.get("task-types?f=nothing")).text


@run_async
async def test_without_types_the_page_says_how_to_configure_one(
    redis_url: str, redis_client: RedisClient
) -> None:
    """With a table of the service's file."""
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("task-types")).text
        assert "No task type is configured" in page
        assert "pyasynq service service.toml" in page
        assert 404 == (await visitor.get("task-types/nothing")).status_code


@run_async
async def test_a_type_shows_its_fields_its_schema_and_who_changed_it(redis_url: str, admin: Operator) -> None:
    """Also as a table of the service's file and as a call of its API."""
    async with visiting(redis_url) as visitor:
        page = html.unescape((await visitor.get("task-types/shipping-labels")).text)
        for part in ("50/s+10", "5s, 1m, 10m", '"order_id"', "mira", "the service's file", "[tasks.shipping"):
            assert part in page
        version = _stored(admin, "shipping-labels").version
        assert f'If-Match: "{version}"' in page
        assert "no worker takes tasks" in (await visitor.get("task-types/exports")).text


@run_async
async def test_a_type_of_the_file_is_read_only_and_says_why(redis_url: str, admin: Operator) -> None:
    """Its form is refused too, and changes nothing."""
    before = _stored(admin, "emails")
    async with visiting(redis_url) as visitor:
        page = await visitor.get("task-types/emails")
        assert "The file of the task service manages this type" in page.text
        assert "emails/edit" not in page.text
        path = "task-types/emails/edit"
        assert 400 == (await visitor.get(path)).status_code
        fields = {"version": str(before.version), "max_run": "5", "sure": "yes"}
        assert 400 == (await send_form(visitor, path, fields, page="settings")).status_code
    assert before == _stored(admin, "emails")


@run_async
async def test_an_edit_shows_the_difference_before_it_is_stored(redis_url: str, admin: Operator) -> None:
    """A field that is emptied is unset; the audit has the reason, before and after."""
    before = _stored(admin)
    async with visiting(redis_url) as visitor:
        question = await _preview(
            visitor, {"max_run": "", "rate": "5/s", "timeout": "2h", "reason": "x", "schema": "{}"}
        )
        assert "Change the task type exports?" == heading_of(question)
        assert ["At once", "3", "no limit", "Rate", "no limit", "5/s"] == _cells(question.text)[:6]
        assert "2 tasks wait" in question.text
        assert re.search(r'id="made">[0-9.]+ m?s<', question.text), "a form is timed like a page"
        assert before == _stored(admin)
        answer = await _confirm(visitor, question, reason="half speed")
        assert (303, "../../task-types/exports") == (answer.status_code, answer.headers["location"])
        assert "takes exports over within seconds" in (await visitor.get("task-types/exports")).text
    content = {"kind": "worker", "managed": "api", "name": "exports", "rate": "5/s", "schema": {}}
    assert {**content, "timeout": 7_200.0} == dict(_stored(admin).content)
    [entry] = admin.audit(limit=1).entries
    assert ("set_type_configuration", "half speed") == (entry.verb, entry.reason)
    assert json.loads(entry.before) == dict(before.content)
    assert json.loads(entry.after) == dict(_stored(admin).content)


@run_async
async def test_an_edit_that_changes_nothing_asks_nothing(redis_url: str, admin: Operator) -> None:
    """The form says so."""
    async with visiting(redis_url) as visitor:
        answer = await _preview(visitor, {"max_run": "3", "timeout": "120m"})
        assert "Nothing is different yet." in answer.text
        again = await _preview(visitor, {"max_run": "4", "timeout": "120m"})
        edited = await _confirm(visitor, again, step="edit")
        assert ("Edit exports", True) == (heading_of(edited), 'value="4"' in edited.text)


@run_async
async def test_wrong_fields_stay_in_the_form_each_with_its_sentence(redis_url: str, admin: Operator) -> None:
    """All of them at once; what was typed is kept, and never in the sentence."""
    before = _stored(admin)
    wrong = {
        "max_run": "0",
        "rate": "fast",
        "timeout": "soon",
        "max_retry": "some",
        "retry": "first 5s, factor many",
        "retention": "400d",
        "schema": '{"type": 7}',
    }
    async with visiting(redis_url) as visitor:
        answer = await _preview(visitor, wrong, status=400)
        text = html.unescape(answer.text)
        assert len(wrong) == text.count('class="err"') == text.count('aria-invalid="true"')
        for value in wrong.values():
            assert value in text
        assert "to stop a type, pause its queue" in text
        answer = await _preview(visitor, {"ordered": "yes", "max_run": "2"}, status=400)
        assert "an ordered type runs one task at a time" in html.unescape(answer.text)
    assert before == _stored(admin)


@run_async
async def test_someone_who_was_quicker_is_shown_with_both_changes(redis_url: str, admin: Operator) -> None:
    """To go on keeps their change to another field, and puts the own one over what is stored."""
    async with visiting(redis_url) as visitor:
        question = await _preview(visitor, {"max_run": "9", "timeout": "2h"})
        theirs = {**_stored(admin).content, "timeout": 60.0}
        admin.set_type_configuration("exports", theirs)
        late = await _confirm(visitor, question)
        assert (409, "Someone else was quicker with exports") == (late.status_code, heading_of(late))
        assert "changed meanwhile by mira" in late.text
        assert ["At once", "3", "3", "9", "you"] == _cells(late.text)[:5]
        assert ["Timeout", "2h", "1m", "2h", "the other"] == _cells(late.text)[5:10]
        assert theirs == dict(_stored(admin).content)
        assert 303 == (await _confirm(visitor, late)).status_code
    assert {**theirs, "max_run": 9} == dict(_stored(admin).content)


@run_async
async def test_two_changes_of_one_field_are_marked(redis_url: str, admin: Operator) -> None:
    """And a third change in between asks once more."""
    async with visiting(redis_url) as visitor:
        question = await _preview(visitor, {"max_run": "9", "timeout": "2h"})
        for number in (5, 6):
            admin.set_type_configuration("exports", {**_stored(admin).content, "max_run": number})
            question = await _confirm(visitor, question)
            assert 409 == question.status_code
            assert ["At once", "3" if number == 5 else "5", str(number), "9"] == _cells(question.text)[:4]
            assert "both" in _cells(question.text)[4]
        assert 303 == (await _confirm(visitor, question)).status_code
    assert 9 == _stored(admin).content["max_run"]


@run_async
async def test_a_type_that_was_deleted_meanwhile_is_not_made_again_unasked(
    redis_url: str, admin: Operator
) -> None:
    """The question says that it is gone."""
    async with visiting(redis_url) as visitor:
        question = await _preview(visitor, {"max_run": "9", "timeout": "2h"})
        admin.delete_type_configuration("exports")
        late = await _confirm(visitor, question)
        assert (409, True) == (late.status_code, "was deleted meanwhile" in late.text)
        assert admin.type_configuration("exports") is None
        assert 303 == (await _confirm(visitor, late)).status_code
    assert 9 == _stored(admin).content["max_run"]


@run_async
async def test_a_type_is_made_once(redis_url: str, admin: Operator) -> None:
    """A name that is taken or cannot be is told at its field."""
    path = "new-task-type"
    async with visiting(redis_url) as visitor:
        question = await _preview(visitor, {"name": "resize", "max_run": "3"}, path)
        assert "Make the task type resize?" == heading_of(question)
        assert 303 == (await _confirm(visitor, question, path)).status_code
        late = await _confirm(visitor, question, path)
        assert (409, True) == (late.status_code, "made by someone else meanwhile" in late.text)
        taken = await _preview(visitor, {"name": "resize"}, path, 409)
        assert "is taken" in taken.text
        for name in ("", "a/b", "a\tb"):
            assert 'id="c-name-e"' in (await _preview(visitor, {"name": name}, path, 400)).text
    assert 3 == _stored(admin, "resize").content["max_run"]


@run_async
async def test_a_type_is_deleted_by_its_name_unless_it_has_changed(redis_url: str, admin: Operator) -> None:
    """Its tasks stay."""
    path = "task-types/exports/delete"
    async with visiting(redis_url) as visitor:
        question = await visitor.get(path)
        assert "2 tasks stay in its queue" in question.text
        assert 400 == (await _confirm(visitor, question, path, confirm="export")).status_code
        admin.set_type_configuration("exports", {**_stored(admin).content, "max_run": 7})
        assert 409 == (await _confirm(visitor, question, path, confirm="exports")).status_code
        assert 7 == _stored(admin).content["max_run"]
        question = await visitor.get(path)
        assert 303 == (await _confirm(visitor, question, path, confirm="exports")).status_code
    assert admin.type_configuration("exports") is None
    assert 2 == admin.queue("exports").pending


@pytest.mark.parametrize(
    "fields",
    [
        {"version": "x"},
        {"version": "9" * 30},
        {"version": "1", "base": "[1"},
        {"version": "1", "base": "[]"},
        {"version": "1", "base": '{"max_run": NaN}'},
        {"version": "1", "base": "[" * 100_000},
    ],
)
def test_hidden_fields_that_no_form_has_made_are_refused(
    redis_url: str, admin: Operator, fields: dict[str, str]
) -> None:
    """With a sentence, not as a bug."""

    @run_async
    async def send() -> None:
        async with visiting(redis_url) as visitor:
            answer = await send_form(visitor, _EDIT, {**fields, "max_run": "1"}, page="settings")
            assert (400, True) == (answer.status_code, "begin again" in answer.text.lower())

    send()


@run_async
async def test_a_base_of_odd_values_is_shown_and_breaks_nothing(redis_url: str, admin: Operator) -> None:
    """It came from the browser."""
    odd = {
        "max_run": {"a": [1e300]},
        "timeout": 1e999,
        "retry": [{"x": "\ud800"}, True],
        "retention": -1,
        "rate": ["<b>"],
        "schema": "text",
        "ordered": 3,
    }
    async with visiting(redis_url) as visitor:
        fields = {"version": "1", "base": json.dumps(odd).replace("Infinity", "1e999"), "max_run": "1"}
        late = await send_form(visitor, _EDIT, fields, page="settings")
        assert (409, True) == (late.status_code, "<b>" not in late.text)


@run_async
async def test_stored_values_of_others_are_shown_and_not_edited(redis_url: str, admin: Operator) -> None:
    """A later version of the service may have more fields and kinds."""
    admin.set_type_configuration("later", {"kind": "cmd", "argv": ["/bin/true"], "managed": "api"})
    odd = {"max_run": "many", "retry": {"first": []}, "schema": [1], "rate": 5, "managed": "api", "kind": {}}
    admin.set_type_configuration("odd <b>/", odd)
    async with visiting(redis_url) as visitor:
        assert 200 == (await visitor.get("task-types")).status_code
        for path in ("task-types/later", "task-types/odd~20~3Cb~3E~2F"):
            page = await visitor.get(path)
            assert (200, True) == (page.status_code, "does not know" in page.text)
            assert 400 == (await visitor.get(f"{path}/edit")).status_code


@run_async
async def test_fields_of_requests_are_shown_without_secrets_and_stay_as_they_are(
    redis_url: str, admin: Operator
) -> None:
    """The form edits the limits of a type of the kind `http`, and leaves its URL and headers."""
    fields = {
        "kind": "http",
        "url": "https://example.org/{id}",
        "method": "PUT",
        "headers": {"X-Team": "maps", "X-Api-Key": "k-314159"},
        "managed": "api",
    }
    admin.set_type_configuration("call", fields)
    async with visiting(redis_url) as visitor:
        page = html.unescape((await visitor.get("task-types/call")).text)
        assert ("https://example.org/{id}" in page, "maps" in page, "k-314159" in page) == (True, True, False)
        path = "task-types/call/edit"
        assert "k-314159" not in (await visitor.get(path)).text
        question = await _preview(visitor, {"max_run": "2", "max_pending": "9"}, path)
        assert "k-314159" not in question.text
        assert 303 == (await _confirm(visitor, question, path)).status_code
    assert {**fields, "name": "call", "max_run": 2, "max_pending": 9} == dict(_stored(admin, "call").content)


@run_async
async def test_an_earlier_version_is_stored_again(redis_url: str, admin: Operator) -> None:
    """The form begins with its fields, and shows the difference to what is stored now."""
    now, before = admin.type_configuration_versions("exports")[:2]
    path = f"{_EDIT}?version={before.version}"
    async with visiting(redis_url) as visitor:
        page = html.unescape((await visitor.get("task-types/exports")).text)
        assert path in page
        assert f"version={now.version}" not in page
        form = await visitor.get(path)
        assert "earlier version" in form.text
        question = await _preview(visitor, {"max_run": "2", "timeout": "2h"})
        assert ["At once", "3", "2"] == _cells(question.text)[:3]
        assert 'name="max_run" value="2"' in form.text
        assert 'name="max_run" value="3"' in (await visitor.get(f"{_EDIT}?version=1")).text
    async with visiting(redis_url, auth=Everyone("viewer"), client=ABROAD) as visitor:
        assert path not in (await visitor.get("task-types/exports")).text


@run_async
async def test_a_viewer_reads_and_a_read_only_dashboard_changes_nothing(
    redis_url: str, admin: Operator
) -> None:
    """There are no buttons, and the forms are refused."""
    before = admin.type_configurations()
    fields = {"version": str(_stored(admin).version), "max_run": "9", "sure": "yes", "confirm": "exports"}
    for options in ({"auth": Everyone("viewer"), "client": ABROAD}, {"read_only": True}):
        async with visiting(redis_url, **options) as visitor:
            page = (await visitor.get("task-types/exports")).text
            assert "exports/edit" not in page
            assert "exports/delete" not in page
            assert "new-task-type" not in (await visitor.get("task-types")).text
            token = form_token((await visitor.get("settings")).text)
            for path in (_EDIT, "task-types/exports/delete", "new-task-type"):
                answer = await visitor.post(
                    path,
                    data={"csrf": token, "name": "x", **fields},
                    headers={"sec-fetch-site": "same-origin"},
                )
                assert 403 == answer.status_code
                assert 403 == (await visitor.get(path)).status_code
    assert before == admin.type_configurations()


@run_async
async def test_a_test_task_begins_with_a_sample_that_fits_the_schema(redis_url: str, admin: Operator) -> None:
    """The form has the fields of the configured schema; a payload that does not fit is refused."""
    async with visiting(redis_url) as visitor:
        page = (await visitor.get("task-types/shipping-labels")).text
        assert "type=shipping-labels&amp;queue=shipping-labels&amp;sample=yes" in page
        form = (await visitor.get("enqueue?type=shipping-labels&queue=shipping-labels&sample=yes")).text
        assert 'name="p:order_id" value="1"' in form
        fields = {
            "step": "enqueue",
            "mode": "fields",
            "type": "shipping-labels",
            "shown": "shipping-labels",
            "queue": "shipping-labels",
            "p:order_id": "1",
            "p:carrier": '"north-post"',
            "p:weight_g": "99999",
        }
        wrong = await send_form(visitor, "enqueue", fields)
        assert (400, True) == (wrong.status_code, "at most 31500" in html.unescape(wrong.text))
        as_text = {**fields, "mode": "text", "payload": "no json"}
        wrong = await send_form(visitor, "enqueue", as_text)
        assert (400, True) == (wrong.status_code, "is not JSON" in wrong.text)
        made = await send_form(visitor, "enqueue", {**fields, "p:weight_g": "5"})
        assert 303 == made.status_code
    [task] = admin.tasks("shipping-labels", "pending")
    payload = {"order_id": 1, "carrier": "north-post", "weight_g": 5}
    assert (5, payload) == (task.max_retry, json.loads(task.payload))


_REQUEST: Final = {"step": "enqueue", "type": "invoices", "shown": "invoices", "queue": "invoices"}


@run_async
async def test_the_params_of_a_url_are_fields(redis_url: str, admin: Operator) -> None:
    """A type without a schema that calls a host: the summary has the URL, and the payload is an object."""
    async with visiting(redis_url) as visitor:
        form = html.unescape((await visitor.get("enqueue?type=invoices")).text)
        assert "PUT https://billing.example/invoices/{order_id}" in form
        assert 'name="p:order_id"' in form
        assert "part of the URL" in form
        assert 'name="queue" value="invoices"' in form
        made = await send_form(visitor, "enqueue", {**_REQUEST, "mode": "fields", "p:order_id": "17"})
        assert 303 == made.status_code
    [task] = admin.tasks("invoices", "pending")
    assert {"order_id": "17"} == json.loads(task.payload)


@pytest.mark.parametrize(
    ("typed", "place", "sentence"),
    [
        ({"mode": "fields", "p:order_id": ""}, "f0", "is required"),
        ({"mode": "fields", "p:order_id": ".."}, "f0", "cannot be a segment of the path"),
        ({"mode": "json", "payload": "{}"}, "ep", "order_id is required"),
        ({"mode": "json", "payload": '{"order_id": [1]}'}, "ep", "order_id must be text, a number or a bool"),
        ({"mode": "json", "payload": "[17]"}, "ep", "must be an object"),
        ({"mode": "text", "payload": "17"}, "ep", "order_id is missing: the URL of the type needs it"),
    ],
)
@pytest.mark.usefixtures("admin")
def test_params_that_do_not_fill_a_url_are_refused_at_their_field(
    redis_url: str, redis_client: RedisClient, typed: dict[str, str], place: str, sentence: str
) -> None:
    """The service would archive such a task; the error shows no value, and nothing is enqueued."""

    @run_async
    async def visit() -> None:
        async with visiting(redis_url) as visitor:
            wrong = await send_form(visitor, "enqueue", {**_REQUEST, **typed})
            text = html.unescape(wrong.text)
            assert (400, True) == (wrong.status_code, sentence in text), text
            assert f'<a href="#{place}">' in text

    visit()
    assert not redis_client.exists("asynq:{invoices}:pending")


@run_async
async def test_a_number_in_a_url_is_enqueued_as_json(redis_url: str, admin: Operator) -> None:
    """With whatever else the body of the request is to have; the fields would make a text of the number."""
    payload = '{"order_id": 17, "copies": 2}'
    async with visiting(redis_url) as visitor:
        fields = {**_REQUEST, "mode": "json", "payload": payload}
        shown = await send_form(visitor, "enqueue", {**fields, "step": "fields"})
        assert "would make a text of order_id" in shown.text
        assert 303 == (await send_form(visitor, "enqueue", fields)).status_code
    [task] = admin.tasks("invoices", "pending")
    assert payload.encode() == task.payload


@ON_LINUX
@run_async
async def test_the_params_of_a_command_are_fields_where_the_service_runs(
    redis_url: str, admin: Operator
) -> None:
    """Redis has no commands, so only a dashboard in the process of the service knows them."""
    command = {"kind": "cmd", "argv": ["/bin/echo", "--id={id}", "/tmp/{id}/{name}"]}
    fields = {"step": "enqueue", "type": "dump", "shown": "dump", "queue": "dump", "mode": "fields"}
    admin.set_type_configuration("dump", {"name": "dump", "kind": "cmd"})
    async with serving(redis_url, {"dump": command}) as service:
        async with visiting(redis_url) as visitor:
            form = html.unescape((await visitor.get("enqueue?type=dump")).text)
            assert "Params of its command are in the service's file." in form
            assert "The task service runs a command for each task." in form
            assert 'name="p:id"' not in form
        async with visiting(redis_url, service=service.service) as visitor:
            form = (await visitor.get("enqueue?type=dump")).text
            assert ['name="p:id"', 'name="p:name"'] == re.findall(r'name="p:[^"]*"', form)
            wrong = await send_form(visitor, "enqueue", {**fields, "p:id": "1", "p:name": "a/b"})
            assert (400, True) == (wrong.status_code, "must be a name in a path" in wrong.text)
            made = await send_form(visitor, "enqueue", {**fields, "p:id": "1", "p:name": "a"})
            assert 303 == made.status_code
    [task] = admin.tasks("dump", "pending")
    assert {"id": "1", "name": "a"} == json.loads(task.payload)


@run_async
async def test_a_type_without_known_fields_takes_json_and_says_so(redis_url: str, admin: Operator) -> None:
    """Requests to a fixed URL, lists, and types that remote workers lease."""
    admin.set_type_configuration("legacy", {"name": "legacy", "kind": "list"})
    async with visiting(redis_url) as visitor:
        for name, hint in (
            ("notices", "The JSON is the body of the request."),
            ("legacy", "so it takes any JSON."),
            ("payments", "so it takes any JSON."),
            ("unknown", "No worker has published fields for this type."),
        ):
            form = html.unescape((await visitor.get(f"enqueue?type={name}")).text)
            assert hint in form, name
        body = {**_REQUEST, "type": "notices", "shown": "notices", "queue": "notices", "mode": "json"}
        wrong = await send_form(visitor, "enqueue", {**body, "payload": "{"})
        assert (400, True) == (wrong.status_code, "is not JSON" in wrong.text)


@run_async
async def test_the_palette_knows_configured_types(redis_url: str, admin: Operator) -> None:
    """For those who may: to go there, to enqueue, and to make one."""
    async with visiting(redis_url) as visitor:
        found = (await visitor.get("palette.json?q=export")).json()["commands"]
        assert {"label": "Go to task type exports", "href": "task-types/exports"} in found
        assert {"label": "Enqueue exports", "href": "enqueue?type=exports"} in found
        found = (await visitor.get("palette.json?q=task+type")).json()["commands"]
        assert {"label": "Make a task type", "href": "new-task-type"} in found
    async with visiting(redis_url, auth=Everyone("viewer"), client=ABROAD) as visitor:
        found = (await visitor.get("palette.json?q=task+type")).json()["commands"]
        assert {"label": "Make a task type", "href": "new-task-type"} not in found
