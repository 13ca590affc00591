"""The service's file: what it may say, in each of its forms, and the error of each wrong field."""

from __future__ import annotations

import json
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.errors import ConfigurationError, InvalidOptionError
from pyasynq.gateway.configurations import (
    ServiceSettings,
    TaskConfiguration,
    parse_service_file,
    parse_task_configuration,
    read_service_file,
)
from pyasynq.limits import QueueLimits
from pyasynq.web import OpenIdConnect

if TYPE_CHECKING:
    from pathlib import Path

TOML = """\
[service]
redis = "redis://redis.internal:6379/1"
listen = "[::1]:9000"
max_body = "2M"
max_inflight = 200
trusted_proxies = ["10.0.0.0/8"]

[tasks.dumpfeature]
max_run = 3
timeout = "10m"
max_retry = 5
retry = { first = "5s", factor = 2, most = "1h", jitter = 0.2 }
retention = "24h"
schema = "dumpfeature.json"
kind = "worker"

[tasks.deliver]
ordered = true
retry = ["0s", "5s", "5m"]
managed = "api"

[tasks.resize]
rate = "50/s+10"
"""
OIDC = {"issuer": "https://login.example", "client_id": "tasks", "roles": {"ops": "operator"}}
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


def parse_toml(text: str) -> dict[str, TaskConfiguration]:
    """Return the task types of a file."""
    return dict(parse_service_file(tomllib.loads(text)).tasks)


def test_a_file_is_read(tmp_path: Path) -> None:
    """Settings, limits, options, schema and retry rule, with durations in seconds."""
    (tmp_path / "dumpfeature.json").write_text(json.dumps(SCHEMA), "utf-8")
    file = tmp_path / "service.toml"
    file.write_text(TOML, "utf-8")

    found = read_service_file(file)

    expected = ServiceSettings(
        "redis://redis.internal:6379/1",
        "::1",
        9_000,
        2 * 2**20,
        max_inflight=200,
        trusted_proxies=("10.0.0.0/8",),
    )
    assert expected == found.service
    assert ["dumpfeature", "deliver", "resize"] == list(found.tasks)
    dump, deliver, resize = found.tasks.values()
    assert {"queue": "dumpfeature", "timeout": 600, "max_retry": 5, "retention": 86_400} == dump.options
    assert QueueLimits(3) == dump.limits
    assert SCHEMA == dump.schema
    assert QueueLimits(ordered=True) == deliver.limits
    assert {"queue": "deliver"} == deliver.options
    assert "api" == deliver.managed
    assert QueueLimits(None, 50, 1, 10) == resize.limits


def test_an_empty_file_has_the_defaults() -> None:
    """It listens to this machine alone."""
    found = parse_service_file({})

    assert ServiceSettings("redis://localhost:6379/0", "127.0.0.1", 8_080, 1_000_000) == found.service
    assert {} == found.tasks


def test_a_provider_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field of the table; its secret is outside of the file, and `openid` is always asked for."""
    monkeypatch.setenv("OF_PROVIDER", " secret ")
    text = """
    [service]
    listen = "0.0.0.0:8080"

    [service.oidc]
    issuer = "https://login.example/realms/staff"
    client_id = "tasks"
    client_secret = "env:OF_PROVIDER"
    url = "https://ops.example"
    roles = { ops = "operator", team = "viewer" }
    default_role = "viewer"
    queues = { team = ["team-*", "mail"], ops = "*" }
    scopes = ["groups", "openid"]
    user_claim = "upn"
    groups_claim = "member"
    name = "Corp"
    """
    expected = OpenIdConnect(
        issuer="https://login.example/realms/staff",
        client_id="tasks",
        client_secret="secret",
        url="https://ops.example",
        roles={"ops": "operator", "team": "viewer"},
        default_role="viewer",
        queues={"team": ("team-*", "mail"), "ops": ("*",)},
        scopes=("openid", "groups"),
        user_claim="upn",
        groups_claim="member",
        name="Corp",
    )
    found = parse_service_file(tomllib.loads(text)).service
    assert expected == found.oidc
    assert (True, True) == (found.dashboard, found.has_sign_in)


def test_on_this_machine_the_url_of_the_dashboard_may_be_missing() -> None:
    """It is the address on which the service listens."""
    found = parse_service_file({"service": {"listen": "[::1]:9000", "oidc": OIDC}}).service.oidc
    assert found is not None
    assert ("http://[::1]:9000", ("openid", "profile", "email")) == (found.url, found.scopes)


def test_a_missing_secret_of_the_provider_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the file is read, not when someone signs in."""
    monkeypatch.delenv("OF_PROVIDER", raising=False)
    content = {"service": {"oidc": OIDC | {"client_secret": "env:OF_PROVIDER"}}}
    with pytest.raises(ConfigurationError, match=r"service\.oidc\.client_secret: env:OF_PROVIDER is not set"):
        parse_service_file(content)


@pytest.mark.parametrize(
    "content",
    [
        [{"TaskName": "dumpfeature", "MaxRun": 3, "MaxRetry": 5}],
        {"tasks": [{"name": "dumpfeature", "max_run": 3, "max_retry": 5}]},
        {"Tasks": [{"TaskName": "dumpfeature", "MaxRun": 3, "MaxRetry": 5}]},
        {"tasks": {"dumpfeature": {"MaxRun": 3, "max_retry": 5}}},
        {"tasks": {"dumpfeature": {"TaskName": "dumpfeature", "max_run": 3, "max_retry": 5, "rate": None}}},
    ],
)
def test_lists_and_the_spelling_of_go_are_read(content: object) -> None:
    """The lists of a Go program load as they are."""
    expected = TaskConfiguration("dumpfeature", max_run=3, max_retry=5)

    assert {"dumpfeature": expected} == parse_service_file(content).tasks


def test_a_json_file_is_read(tmp_path: Path) -> None:
    """The ending of its name tells."""
    file = tmp_path / "tasks.json"
    file.write_text('[{"TaskName": "resize"}]', "utf-8")

    assert ["resize"] == list(read_service_file(file).tasks)


@pytest.mark.parametrize(
    ("fields", "named", "remedy"),
    [
        ("max_run = 0", "max_run=0", "to stop a type, pause its queue"),
        ("max_run = -1", "max_run=-1", "whole number from 1"),
        ("max_pending = 0", "max_pending=0", "whole number from 1"),
        ("max_pending = true", "max_pending=True", "whole number from 1"),
        ("max_run = true", "max_run=True", "whole number from 1"),
        ('max_run = "3"', "max_run=<str>", "whole number from 1"),
        ("MaxRun = 1\nmax_run = 2", "max_run", "given twice, in two spellings"),
        ("maxrun = 1", "maxrun", "did you mean 'max_run'?"),
        ("MaxRuns = 1", "MaxRuns", "did you mean 'max_run'?"),
        ("zzz = 1", "zzz", "the fields are allow_dash, archive_codes, archive_on, argv"),
        ('name = "other"', "name", "differs from the name of its table"),
        ("ordered = 1", "ordered=1", "must be True or False"),
        ("ordered = true\nmax_run = 3", "max_run=3", "runs one task at a time"),
        ("rate = 50", "rate=50", '"50/s"'),
        ('rate = "50"', "rate=<str>", "write 50/s"),
        ('rate = "0/s"', "rate=", "above 0"),
        ('rate = "50/s+0"', "rate=0", "burst"),
        ('timeout = "10x"', "timeout=<str>", "30, 500ms, 5m, 1h30m"),
        ("timeout = 0", "timeout=0", "more than 0 seconds"),
        ("timeout = -1", "timeout=-1", "negative"),
        ("timeout = nan", "timeout=nan", "finite"),
        ("timeout = 600000000000", "timeout=600000000000", "year"),
        ("timeout = 10000000000", "timeout=10000000000", "a number counts seconds"),
        ("timeout = 2020-01-01T00:00:00Z", "timeout=", "duration"),
        ("max_retry = -1", "max_retry=-1", "between 0 and"),
        ("max_retry = 1.5", "max_retry=1.5", "whole number"),
        ('retry = "5s"', "retry=<str>", "list of delays"),
        ("retry = []", "retry=0", "1 to 100 delays"),
        ('retry = ["5s", "x"]', "retry[1]=<str>", "1h30m"),
        ("retry = { firts = 1 }", "retry.firts", "did you mean 'first'?"),
        ("retry = { factor = 0.5 }", "retry.factor=0.5", "from 1 to 100"),
        ("retry = { jitter = 2 }", "retry.jitter=2", "from 0 to 1"),
        ("retry = { jitter = nan }", "retry.jitter=nan", "from 0 to 1"),
        ('retry = { first = "2h" }', "retry.most=3600", "at least as long as first"),
        ('retention = "x"', "retention=<str>", "duration"),
        ('kind = "list"\nshards = 0', "shards=0", "from 1 to 64"),
        ('kind = "list"\nshards = 65', "shards=65", "from 1 to 64"),
        ('kind = "list"\nshards = true', "shards=True", "from 1 to 64"),
        ("shards = 8", "shards=<str>", 'is for kind = "list" only'),
        ('kind = "worke"', "kind=<str>", "did you mean 'worker'?"),
        ("kind = 1", "kind=<int>", "must be 'worker'"),
        ('argv = ["/bin/true"]', "argv", 'is for kind = "cmd" only'),
        ('managed = "apis"', "managed=<str>", "did you mean 'api'?"),
        ('schema = "there-is-none.json"', "schema=<str>", "No such file"),
        ('schema = "."', "schema=<str>", "Is a directory"),
        ("schema = []", "schema=<list>", "must be a JSON Schema"),
        ('schema = { type = "objet" }', "schema=<dict>", "draft 2020-12"),
        ('schema = { "$ref" = "http://127.0.0.1:1/x.json" }', "schema=<dict>", "draft 2020-12"),
        ('schema = { "$ref" = "file:///etc/hostname" }', "schema=<dict>", "draft 2020-12"),
        ('schema = { pattern = "(?=a)" }', "schema=<dict>", "draft 2020-12"),
    ],
)
def test_a_wrong_field_is_named_with_its_remedy(tmp_path: Path, fields: str, named: str, remedy: str) -> None:
    """The error begins with the file and the field's place, and never with the value of a text."""
    file = tmp_path / "service.toml"
    file.write_text(f"[tasks.resize]\n{fields}\n", "utf-8")

    with pytest.raises(ConfigurationError) as caught:
        read_service_file(file)

    assert str(caught.value).startswith(f"{file}: tasks.resize.{named}")
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("content", "named", "remedy"),
    [
        ({"tsaks": {}}, "tsaks", "did you mean 'tasks'?"),
        ({"doors": {"faktory": {}}}, "doors.faktory", "comes with a later version"),
        ({"doors": {"german": {}}}, "doors.german", "did you mean 'gearman'?"),
        ({"doors": {"gearman": 5}}, "doors.gearman", "must be a table"),
        ({"doors": {"gearman": {"listen": "4730"}}}, "doors.gearman.listen", "127.0.0.1:8080"),
        ({"doors": {"gearman": {"listen": "0.0.0.0:4730"}}}, "doors.gearman.networks", "Gearman has no keys"),
        ({"doors": {"gearman": {"networks": ["x"]}}}, "doors.gearman.networks[0]", "must be a network"),
        ({"tasks": 3}, "tasks", "a table for each type"),
        ({"tasks": {"resize": 3}}, "tasks.resize", "must be a table"),
        ({"tasks": [{}]}, "tasks[0].name", "give the type's name"),
        ({"tasks": [{"name": ""}]}, "tasks[0].name", "not blank"),
        ({"tasks": [{"name": 3}]}, "tasks[0].name", "must be text"),
        ({"tasks": [{"name": "a/b"}]}, "tasks[0].name", "no slash"),
        ({"tasks": [{"name": "a\x1b"}]}, "tasks[0].name", "visible characters only"),
        ({"tasks": [{"name": "a" * 201}]}, "tasks[0].name", "at most 200 characters"),
        ({"tasks": [{"name": "a"}, {"name": "a"}]}, "tasks[1].name", "another table has this name"),
        ({"tasks": {str(number): {} for number in range(2_001)}}, "tasks=2001", "2,000 task types at most"),
        ({"service": []}, "service", "must be a table"),
        ({"service": {"redis": 3}}, "service.redis", "must be text"),
        ({"service": {"lissten": "x"}}, "service.lissten", "did you mean 'listen'?"),
        ({"service": {"middlewares": []}}, "service.middlewares", "comes with a later version"),
        ({"service": {"listen": 8_080}}, "service.listen", "127.0.0.1:8080"),
        ({"service": {"listen": "localhost"}}, "service.listen", "127.0.0.1:8080"),
        ({"service": {"listen": ":8080"}}, "service.listen", "127.0.0.1:8080"),
        ({"service": {"listen": "::1:8080"}}, "service.listen", "127.0.0.1:8080"),
        ({"service": {"listen": "localhost:70000"}}, "service.listen", "127.0.0.1:8080"),
        ({"service": {"max_inflight": 0}}, "service.max_inflight=0", "from 1 to 100,000"),
        ({"service": {"max_inflight": 100_001}}, "service.max_inflight=100001", "from 1 to 100,000"),
        ({"service": {"max_inflight": True}}, "service.max_inflight=True", "whole number"),
        ({"service": {"max_inflight": "many"}}, "service.max_inflight=", "whole number"),
        ({"service": {"trusted_proxies": ["proxy"]}}, "service.trusted_proxies[0]", "must be a network"),
        ({"service": {"max_body": 0}}, "service.max_body=0", "at least 1"),
        ({"service": {"max_body": "9M"}}, "service.max_body=", "8,000,000 at most"),
        ({"service": {"max_body": True}}, "service.max_body=True", "whole number"),
        ({"service": {"oidc": 3}}, "service.oidc", "must be a table"),
        ({"service": {"oidc": {"isuer": "x"}}}, "service.oidc.isuer", "did you mean 'issuer'?"),
        ({"service": {"oidc": OIDC | {"issuer": 3}}}, "service.oidc.issuer", "must be text"),
        ({"service": {"oidc": {"roles": {}}}}, "service.oidc.issuer", "is needed"),
        ({"service": {"listen": "0.0.0.0:80", "oidc": OIDC}}, "service.oidc.url", "is needed"),
        ({"service": {"listen": "[::1]:0", "oidc": OIDC}}, "service.oidc.url", "is needed"),
        ({"service": {"oidc": OIDC | {"issuer": "http://a.example"}}}, "service.oidc.issuer", "https://"),
        ({"service": {"oidc": OIDC | {"roles": {}}}}, "service.oidc.roles", "name the groups"),
        ({"service": {"oidc": OIDC | {"roles": ["ops"]}}}, "service.oidc.roles", "a table of groups"),
        ({"service": {"oidc": OIDC | {"roles": {"ops": 3}}}}, "service.oidc.roles.ops", "must be text"),
        ({"service": {"oidc": OIDC | {"roles": {"ops": "rot"}}}}, "service.oidc.roles", "must be one of"),
        ({"service": {"oidc": OIDC | {"default_role": "rot"}}}, "service.oidc.roles", "must be one of"),
        ({"service": {"oidc": OIDC | {"queues": {"ops": 3}}}}, "service.oidc.queues.ops", "list of texts"),
        ({"service": {"oidc": OIDC | {"queues": {"ops": [3]}}}}, "service.oidc.queues.ops[0]", "be text"),
        ({"service": {"oidc": OIDC | {"scopes": 3}}}, "service.oidc.scopes", "list of texts"),
        ({"service": {"oidc": OIDC | {"client_secret": "x"}}}, "service.oidc.client_secret", "env:NAME"),
        ("x", "", "must be a table"),
    ],
)
def test_a_wrong_table_is_named_with_its_remedy(content: object, named: str, remedy: str) -> None:
    """Also lists and settings of the service."""
    with pytest.raises(InvalidOptionError) as caught:
        parse_service_file(content)

    assert str(caught.value).startswith(named)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"), [("service.toml", "[tasks"), ("service.json", "{"), ("service.toml", "\x00")]
)
def test_a_file_that_cannot_be_parsed_is_named(tmp_path: Path, name: str, text: str) -> None:
    """Neither TOML nor JSON."""
    (tmp_path / name).write_text(text, "utf-8")

    with pytest.raises(ConfigurationError, match=rf"{name} cannot be read"):
        read_service_file(tmp_path / name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The error says what the system says."""
    with pytest.raises(ConfigurationError, match="No such file"):
        read_service_file(tmp_path / "service.toml")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"max_run": 3, "rate": " 100/10m+5 ", "timeout": "90s", "retention": "1d", "managed": "api"},
        {"ordered": True, "retry": [1, "2m"], "max_retry": 0},
        {"retry": {"first": 1, "factor": 3, "most": "1h", "jitter": 0}, "schema": SCHEMA},
    ],
)
def test_a_configuration_survives_its_json(fields: dict[str, Any]) -> None:
    """Store and API show it in a form that is read again as the same."""
    one = parse_task_configuration("task", {"name": "resize", **fields})

    again = parse_task_configuration("task", json.loads(json.dumps(one.to_json())))

    assert one == again
    assert one.limits == again.limits


def test_retries_wait_as_the_list_says() -> None:
    """The last delay repeats."""
    retry = parse_task_configuration("task", {"name": "resize", "retry": ["0s", "5s", "5m"]}).retry

    assert retry is not None
    assert [0, 5, 300, 300] == [retry.delay(retried) for retried in range(4)]


def test_retries_back_off_up_to_the_longest_delay() -> None:
    """Without jitter the delays are exact; a huge number of failures does not overflow."""
    rule = {"first": 5, "factor": 10, "most": "1h", "jitter": 0}
    retry = parse_task_configuration("task", {"name": "resize", "retry": rule}).retry

    assert retry is not None
    assert [5, 50, 500, 3_600, 3_600] == [retry.delay(retried) for retried in (0, 1, 2, 3, 10_000)]


def test_jitter_stays_in_its_share() -> None:
    """Twenty per cent in either direction."""
    retry = parse_task_configuration("task", {"name": "resize", "retry": {"first": 10, "jitter": 0.2}}).retry

    assert retry is not None
    assert all(8 <= retry.delay(0) <= 12 for _ in range(100))


@pytest.mark.parametrize(
    ("params", "place", "text"),
    [
        ({}, "params", '"id" is a required property'),
        ({"id": "secret"}, "params.id", "is not of type"),
        ([], "params", "is not of type"),
    ],
)
def test_params_that_do_not_fit_are_refused(params: object, place: str, text: str) -> None:
    """The error names the place, and shows no value."""
    schema = parse_task_configuration("task", {"name": "resize", "schema": SCHEMA}).params_schema
    assert schema is not None
    schema.check({"id": 3})

    with pytest.raises(InvalidOptionError) as caught:
        schema.check(params)

    assert place == caught.value.option
    assert text in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_large_schema_is_refused() -> None:
    """Each service reads all configurations."""
    with pytest.raises(InvalidOptionError, match="at most 64,000 bytes"):
        parse_task_configuration("task", {"name": "resize", "schema": {"description": "x" * 64_000}})


def test_schemas_need_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without it is told which one."""
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(ConfigurationError, match=r"tasks\.dump\.schema: .*pyasynq\[service\]"):
        parse_service_file({"tasks": {"dump": {"schema": {}}}})
