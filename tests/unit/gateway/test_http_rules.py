"""What a request of a task looks like, and what its answer means."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from pyasynq.control import Archive, Cancel, Retry, Snooze
from pyasynq.errors import ConfigurationError, InvalidOptionError
from pyasynq.gateway.configurations import find_host_rule, parse_service_file, parse_task_configuration
from pyasynq.gateway.configurations.url_template import TemplateError, parse_url_template
from pyasynq.gateway.hosted.http.outcomes import Gone, judge_answer, read_retry_after
from pyasynq.gateway.hosted.http.signature import message_id, read_signing_secret, signature_headers
from pyasynq.gateway.hosted.outcome import Throttled
from pyasynq.operations import RequestRate

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HTTP = {"name": "deliver", "kind": "http", "url": "https://a.example/"}


@pytest.mark.parametrize(
    ("status", "headers", "outcome"),
    [
        (200, {}, None),
        (204, {}, None),
        (202, {}, None),
        (302, {}, Retry),
        (304, {}, Retry),
        (400, {}, Archive),
        (401, {}, Archive),
        (404, {}, Archive),
        (408, {}, Retry),
        (410, {}, Gone),
        (422, {}, Archive),
        (425, {}, Retry),
        (429, {}, Throttled),
        (429, {"retry-after": "7"}, Throttled),
        (500, {}, Retry),
        (501, {}, Retry),
        (502, {}, Retry),
        (503, {}, Throttled),
        (504, {}, Retry),
        (599, {}, Retry),
        (200, {"Pyasynq-Outcome": "snooze=30"}, Snooze),
        (500, {"Pyasynq-Outcome": "Archive"}, Archive),
        (200, {"Pyasynq-Outcome": " cancel "}, Cancel),
        (200, {"Pyasynq-Outcome": "bogus\x1b[31m"}, Retry),
        (200, {"Pyasynq-Outcome": "snooze=soon"}, Retry),
        (200, {"Pyasynq-Outcome": ""}, None),
    ],
)
def test_each_answer_has_its_outcome(status: int, headers: dict[str, str], outcome: Any) -> None:
    """As the table in docs/service.md says."""
    from multidict import CIMultiDict  # noqa: PLC0415 - the headers of an answer

    found = judge_answer(status, CIMultiDict(headers))
    assert outcome is (None if found is None else type(found))
    assert "\x1b" not in str(found)


def test_a_type_says_what_statuses_mean() -> None:
    """They win over the table, but not over what the host itself says."""
    rules: dict[str, Any] = {"retry_on": (404,), "archive_on": (500, 429)}
    kinds = [type(judge_answer(status, {}, **rules)) for status in (404, 500, 429, 403)]
    assert [Retry, Archive, Archive, Archive] == kinds
    assert isinstance(judge_answer(500, {"Pyasynq-Outcome": "snooze=1"}, **rules), Snooze)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, 30.0),
        ("0", 0.0),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("99999", 3_600.0),
        ("9" * 5_000, 3_600.0),
        ("Sun, 01 Mar 2026 12:00:20 GMT", 20.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("Sun, 01 Mar 2026 18:00:00 GMT", 3_600.0),
        ("Sunday, 01-Mar-26 12:00:20 GMT", 20.0),
        ("soon", 30.0),
        ("-5", 30.0),
        ("1.5", 30.0),
        ("\N{ARABIC-INDIC DIGIT SEVEN}", 30.0),
        ("", 30.0),
    ],
)
def test_retry_after_is_a_number_or_a_date(text: str | None, seconds: float) -> None:
    """It is an hour at most, and half a minute without a sensible value."""
    assert seconds == read_retry_after(text, NOW)


@pytest.mark.parametrize(
    ("template", "params", "url"),
    [
        ("https://a.example/d/{id}", {"id": 7}, "https://a.example/d/7"),
        ("https://a.example/d/{id}", {"id": "a/b?c#d"}, "https://a.example/d/a%2Fb%3Fc%23d"),
        ("https://a.example/d/{id}", {"id": "ü"}, "https://a.example/d/%C3%BC"),
        ("https://a.example/d/x-{id}.json", {"id": ".."}, "https://a.example/d/x-...json"),
        (
            "https://a.example/?q={q}&b={b}",
            {"q": "1&x=2", "b": True},
            "https://a.example/?q=1%26x%3D2&b=true",
        ),
        ("http://a.example:8080/{n}", {"n": 1.5}, "http://a.example:8080/1.5"),
        ("https://a.example/{id}", {"id": "%2e%2e"}, "https://a.example/%252e%252e"),
        ("https://a.example/{id}", {"id": "\r\nX: y"}, "https://a.example/%0D%0AX%3A%20y"),
        ("https://[2606:4700::1]/", None, "https://[2606:4700::1]/"),
    ],
)
def test_params_stay_in_their_places(template: str, params: Any, url: str) -> None:
    """No value adds a segment, a parameter or a header."""
    assert url == parse_url_template("url", template).fill(params)


@pytest.mark.parametrize("value", ["", ".", "..", None, [1], {"a": 1}, "\ud800"])
def test_a_value_that_would_lead_elsewhere_is_refused(value: Any) -> None:
    """The error names the param, never its value."""
    with pytest.raises(TemplateError, match=r"^params\.id ") as error:
        parse_url_template("url", "https://a.example/d/{id}/x").fill({"id": value})
    assert str(value) not in str(error.value) or value in {"", ".", None}


def test_a_missing_param_and_a_long_url_are_refused() -> None:
    """Before anything is sent."""
    template = parse_url_template("url", "https://a.example/{id}")
    missing: list[Any] = [{}, None, [], {"ID": 1}]
    for params in missing:
        with pytest.raises(TemplateError, match=r"params\.id is missing"):
            template.fill(params)
    with pytest.raises(TemplateError, match="longer than"):
        template.fill({"id": "a" * 9_000})


@pytest.mark.parametrize(
    "template",
    [
        *(
            "",
            "a.example",
            "//a.example/",
            "ftp://a.example/",
            "file:///etc/passwd",
            "https://",
            "https:///x",
        ),
        *("https://{host}/", "https://a.{host}/", "https://a.example:{port}/", "{scheme}://a.example/"),
        *(
            "https://user:secret@a.example/",
            "https://a.example/#x",
            "https://a.example/a b",
            "https://a.example/ü",
        ),
        *(
            "https://a.example:99999/",
            "https://a.example:x/",
            "https://[::1/",
            "https://a.example\\@b.example/",
        ),
        *(
            "https://a.example/{a b}",
            "https://a.example/{}",
            "https://a.example/{id",
            "https://a.example/../x",
        ),
        *("https://" + "a." * 126 + "example/",),
        *("https://a.exam%70le/", "https://a.example/" + "x" * 9_000, "https://a.example/\n", 5, None),
    ],
)
def test_a_template_that_cannot_be_is_refused(template: Any) -> None:
    """The host is never left to params, and there are no passwords in it."""
    with pytest.raises(InvalidOptionError, match=r"^url\b") as error:
        parse_url_template("url", template)
    assert "secret" not in str(error.value).replace("secret_headers", "")


SECRETS = [base64.b64encode(letter * 32).decode() for letter in (b"a", b"b")]


def test_the_reference_library_verifies_each_signature() -> None:
    """With the old secret and with the new one; another one, an old message and other bytes fail."""
    body, secrets = b'{"a": 1}', [read_signing_secret("s", f"whsec_{one}") for one in SECRETS]
    now = int(datetime.now(UTC).timestamp())
    headers = signature_headers(secrets, message_id("q", "a.b"), now, body)
    for secret in SECRETS:
        assert {"a": 1} == Webhook(secret).verify(body, headers)
    old = signature_headers(secrets, message_id("q", "a.b"), now - 400, body)
    for secret, changed, data in (
        (base64.b64encode(b"c" * 32).decode(), headers, body),
        (SECRETS[0], old, body),
        (SECRETS[0], headers, b'{"a": 2}'),
        (SECRETS[0], {**headers, "webhook-id": "x"}, body),
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(data, changed)


def test_the_id_of_a_message_is_that_of_its_task() -> None:
    """Without dots, the same for all attempts, and another for each other task."""
    ids = {
        message_id(queue, task) for queue, task in (("q", "a.b"), ("q.a", "b"), ("qa", ".b"), ("q", "\udcff"))
    }
    assert 4 == len(ids)
    assert all(one.isalnum() and 26 == len(one) for one in ids)
    assert message_id("q", "a.b") == message_id("q", "a.b")


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_!!!", "whsec_" + "YQ==", "whsec_" + "YWFh" * 30])
def test_a_signing_secret_that_cannot_be_is_not_repeated(text: str) -> None:
    """The error names its place."""
    with pytest.raises(ConfigurationError, match=r"^hosts\.a: ") as error:
        read_signing_secret("hosts.a", text)
    assert text.removeprefix("whsec_") == "" or text.removeprefix("whsec_") not in str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"url": "x"}, "tasks.deliver.url must begin with"),
        ({"method": "HEAD"}, "tasks.deliver.method must be one of POST"),
        ({"headers": {"Host": "x"}}, "tasks.deliver.headers.Host is set by the service"),
        ({"headers": {"Webhook-Id": "x"}}, "tasks.deliver.headers.Webhook-Id is set by the service"),
        ({"headers": {"authorization": "Bearer hush"}}, "tasks.deliver.headers.authorization is a secret"),
        ({"headers": {"X-A": "a\r\nb"}}, "tasks.deliver.headers.X-A must be text in printable ASCII"),
        ({"headers": {"X A": "a"}}, "tasks.deliver.headers.X A must be the name of a header"),
        ({"retry_on": [99]}, r"tasks.deliver.retry_on\[0\] must be a status"),
        ({"retry_on": 404}, "tasks.deliver.retry_on must be a list of statuses"),
        (
            {"retry_on": [404], "archive_on": [404]},
            "tasks.deliver.archive_on has a status that is in retry_on",
        ),
        ({"callback": "yes"}, "tasks.deliver.callback must be"),
        ({"kind": "worker"}, 'tasks.deliver.url is for kind = "http" only'),
    ],
)
def test_fields_of_an_http_type_are_checked(fields: dict[str, Any], message: str) -> None:
    """The error names the place, and holds no secret."""
    with pytest.raises(InvalidOptionError) as error:
        parse_task_configuration("tasks.deliver", {**HTTP, **fields})
    assert re.match(message, f"{error.value.option} {error.value.remedy}")
    assert "hush" not in str(error.value)


def test_an_http_type_needs_a_url() -> None:
    """And it is written as it was read."""
    with pytest.raises(InvalidOptionError, match=r"tasks\.deliver\.url.* give the URL"):
        parse_task_configuration("tasks.deliver", {"name": "deliver", "kind": "http"})
    given = {
        **HTTP,
        "url": "https://a.example/{id}",
        "headers": {"X-Team": "maps"},
        "retry_on": [404],
        "callback": True,
    }
    stored = parse_task_configuration("tasks.deliver", given).to_json()
    assert stored == parse_task_configuration("tasks.deliver", stored).to_json()
    assert {**given, "ordered": False, "managed": "file", "method": "POST"} == {"ordered": False, **stored}


def parse_hosts(hosts: Any) -> Any:
    """Return the rules of a file with these hosts."""
    return parse_service_file({"hosts": hosts}).hosts


def test_the_rule_of_a_port_wins_over_that_of_its_host() -> None:
    """Names are compared as DNS does."""
    rules = parse_hosts(
        {
            "Billing.internal": {"addresses": ["10.1.0.0/16"], "ports": [443, 8443], "concurrency": 20},
            "billing.internal:9000": {"addresses": ["10.9.0.1"]},
        }
    )
    asked = [("billing.internal", 443), ("BILLING.internal.", 8_443), ("billing.internal", 9_000)]
    found = [find_host_rule(rules, host, port) for host, port in (*asked, ("b.example", 443))]
    names = ["billing.internal", "billing.internal", "billing.internal:9000", "b.example"]
    assert names == [rule.name for rule in found]
    assert [{443, 8_443}, {443, 8_443}, {9_000}, {80, 443}] == [set(rule.ports) for rule in found]
    assert ((), None) == (found[3].addresses, found[3].concurrency)


@pytest.mark.parametrize("name", ["[::1]:8080", "[0:0::0001]:8080", "[::1]"])
def test_a_rule_is_found_for_an_address_of_version_6(name: str) -> None:
    """However it is written in the file and in the URL."""
    rules = parse_hosts({name: {"concurrency": 3}})
    for url in ("http://[::1]:8080/x", "http://[0:0:0:0:0:0:0:1]:8080/{id}"):
        template = parse_url_template("url", url)
        assert 3 == find_host_rule(rules, template.host, template.port).concurrency


def test_a_host_may_have_a_rate() -> None:
    """As a queue or an API key; without one it has none."""
    rules = parse_hosts({"a.example": {"rate": " 50/s+10 "}, "b.example": {}})
    assert (RequestRate("50/s+10", 50.0, 1.0, 10), None) == (rules["a.example"].rate, rules["b.example"].rate)


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ([], "hosts must be a table"),
        ({"a.example": 5}, r'hosts\."a\.example" must be a table'),
        ({"a b": {}}, r'hosts\."a b" must be the name of a host'),
        ({"https://a.example": {}}, "must be the name of a host|must be a port"),
        ({"a.example:0": {}}, "must be a port"),
        ({"a.example:80": {"ports": [80]}}, "the host's name has a port already"),
        ({"a.example": {"addresses": ["10.0.0.1/8"]}}, r"addresses\[0\] must be a network"),
        ({"a.example": {"addresses": "10.0.0.0/8"}}, "addresses must be a list"),
        ({"a.example": {"ports": [True]}}, r"ports\[0\] must be a port"),
        ({"a.example": {"concurrency": 0}}, "concurrency must be a number"),
        ({"a.example": {"signing_secrets": ["whsec_hush"]}}, r"signing_secrets\[0\] must name where"),
        ({"a.example": {"secret_headers": {"Authorization": "hush"}}}, "Authorization must name where"),
        ({"a.example": {"secret_headers": {"Host": "env:A"}}}, "Host is set by the service"),
        ({"a.example": {"adresses": []}}, "did you mean 'addresses'"),
        ({"a.example": {"rate": 5}}, r'hosts\."a\.example"\.rate must be text, such as'),
        ({"a.example": {"rate": "5 a second"}}, r'hosts\."a\.example"\.rate write 50/s'),
        ({"a.example": {"rate": "0/s"}}, "rate must be a number above 0"),
        ({"a.example": {"oauth2": {}}}, "comes with a later version"),
    ],
)
def test_a_host_that_cannot_be_is_refused(hosts: Any, message: str) -> None:
    """The error names the place and the remedy, never a secret."""
    with pytest.raises(InvalidOptionError) as error:
        parse_hosts(hosts)
    assert re.search(message, f"{error.value.option} {error.value.remedy}")
    assert "hush" not in str(error.value)


def test_secrets_are_read_where_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """From a variable or a file, without its last line's end; a missing one is named, not shown."""
    file = tmp_path / "secret"
    file.write_text("from file\n")
    monkeypatch.setenv("BILLING_TOKEN", "from env")
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    places = ["env:BILLING_TOKEN", f"file:{file}", "env:NO_SUCH_TOKEN", f"file:{tmp_path}/none"]
    rule = parse_hosts({"a.example": {"secret_headers": {f"X-{n}": one for n, one in enumerate(places)}}})
    references = [one for _, one in rule["a.example"].secret_headers]
    assert ["from env", "from file"] == [one.read() for one in references[:2]]
    for one, reason in zip(references[2:], ("is not set", "cannot be read"), strict=True):
        with pytest.raises(ConfigurationError, match=reason):
            one.read()
