"""Which Redis an operator command works on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from pyasynq.cli import main
from pyasynq.cli.actions import DURATION
from pyasynq.cli.connection import Connection, asynq_url, config_file, find_connection, read_profiles

if TYPE_CHECKING:
    from pathlib import Path

PROFILES = """
[redis.prod]
url = "redis://:secret@redis.example:6379/0"
color = "red"
confirm = "type-name"

[redis.dev]
url = "redis://localhost:6379/1"
"""


@pytest.fixture(autouse=True)
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration file of this test, and no URL in the environment."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PYASYNQ_REDIS_URL", "URI", "CLUSTER", "CLUSTER_ADDRS", "USERNAME", "PASSWORD", "DB"):
        monkeypatch.delenv(name, raising=False)
    path = config_file()
    path.parent.mkdir()
    path.write_text(PROFILES, "utf-8")
    return path


def test_a_profile_is_named_by_the_option_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The option wins."""
    monkeypatch.setenv("PYASYNQ_REDIS_URL", "prod")
    assert "redis://localhost:6379/1" == find_connection("dev", {}).url
    assert ("prod", "red", "type-name") == (
        (found := find_connection(None, {})).name,
        found.color,
        found.confirm,
    )


def test_a_connection_does_not_show_its_password() -> None:
    """Its representation may be in a log."""
    assert "secret" not in repr(find_connection("prod", {}))


def test_without_a_redis_the_error_says_how_to_name_one() -> None:
    """The error names the option and the environment variable."""
    with pytest.raises(
        click.UsageError, match="Give --redis redis://localhost:6379/0 or the name of a profile"
    ):
        find_connection(None, {})


def test_an_unknown_profile_is_an_error_with_the_most_similar_one() -> None:
    """The error also lists all profiles."""
    with pytest.raises(click.UsageError, match=r"there is no profile 'prd'; did you mean 'prod'\?"):
        find_connection("prd", {})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[redis.x]\nurl = 1", "url must be a Redis URL"),
        (
            '[redis.x]\nurl = "redis://h"\ncolour = "red"',
            "there is no setting 'colour'; did you mean 'color'",
        ),
        ('[redis.x]\nurl = "redis://h"\nconfirm = "never"', "confirm must be one of ask, type-name"),
        ('[redis.x]\nurl = "redis://h"\nread_only = 1', "read_only must be true or false"),
        ("[redis.x", "cannot be read"),
        ('redis = "x"', "write each profile as a table"),
    ],
)
def test_a_wrong_profile_is_an_error_that_names_file_and_setting(
    profiles: Path, content: str, message: str
) -> None:
    """Its values are not shown: one may be a password."""
    profiles.write_text(content, "utf-8")
    with pytest.raises(click.ClickException) as caught:
        read_profiles(profiles)
    assert message in caught.value.message
    assert str(profiles) in caught.value.message


@pytest.mark.parametrize(
    ("flags", "url"),
    [
        ({"uri": "h:1"}, "redis://h:1/0"),
        ({"db": 2}, "redis://127.0.0.1:6379/2"),
        ({"uri": "h:1", "password": "p@s"}, "redis://:p%40s@h:1/0"),
        ({"uri": "h:1", "tls_server": "n"}, "rediss://h:1/0?ssl_server_hostname=n"),
        ({"uri": "h:1", "tls": True, "insecure": True}, "rediss://h:1/0?ssl_cert_reqs=none"),
        ({"cluster": True, "cluster_addrs": "a:1,b:2"}, "redis-cluster://a:1,b:2"),
    ],
)
def test_the_flags_of_asynqs_command_make_a_url(flags: dict[str, Any], url: str) -> None:
    """So that trained hands need not learn another way."""
    assert Connection(url) == find_connection(None, flags)
    assert url == asynq_url(flags)


@pytest.mark.parametrize("url", ["redis://h:1/2", "rediss://:p@h:1", "unix:///run/redis.sock?db=2"])
def test_a_url_may_be_given_where_asynqs_command_takes_host_and_port(url: str) -> None:
    """Asynq's file and variables do not change it."""
    assert Connection(url) == find_connection(None, {"uri": url})
    found = CliRunner().invoke(main, ["-u", "redis://localhost:1/2", "queue", "ls"])
    assert (5, True) == (found.exit_code, "localhost:1 cannot be reached" in found.stderr)


def test_a_url_with_flags_that_it_has_itself_is_an_error_that_names_them() -> None:
    """Neither wins silently."""
    with pytest.raises(click.UsageError, match="--uri with a URL excludes --db, --tls; the URL has"):
        find_connection(None, {"uri": "redis://h:1", "db": 2, "tls": True})


def test_a_url_in_asynqs_settings_is_an_error_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asynq cannot use it either. It may hold a password, so it is not shown."""
    (tmp_path / ".asynq.yaml").write_text("uri: redis://:secret@h:1/0\n", "utf-8")
    with pytest.raises(
        click.ClickException, match="must be HOST:PORT, not a URL; give a URL as --redis"
    ) as told:
        find_connection(None, {})
    assert "secret" not in told.value.message
    monkeypatch.setenv("URI", "https://example.com")
    with pytest.raises(click.ClickException, match="or set PYASYNQ_REDIS_URL"):
        find_connection(None, {"db": 2})
    assert Connection("redis://h:1/0") == find_connection(None, {"uri": "h:1"})


def test_two_ways_to_name_a_redis_contradict_each_other() -> None:
    """Neither wins silently."""
    with pytest.raises(click.UsageError, match="--redis and --uri name a Redis each"):
        find_connection("dev", {"uri": "h:1"})


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1h30m", 5_400), ("250ms", 0.25), ("2d", 172_800)]
)
def test_a_duration_is_seconds_or_has_units(text: str, seconds: float) -> None:
    """Durations are written as Go and people write them."""
    assert seconds == DURATION.convert(text, None, None)


@pytest.mark.parametrize("text", ["", "1x", "h", "1h x", "-5"])
def test_a_wrong_duration_is_an_error_with_examples(text: str) -> None:
    """A typo must not pause a queue for ever."""
    with pytest.raises(click.BadParameter, match="write seconds, or units as in 90s, 15m, 1h30m, 2d"):
        DURATION.convert(text, None, None)


def test_asynqs_variables_name_a_redis_if_ours_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """`USERNAME` alone belongs to other programs; a flag wins over a variable."""
    monkeypatch.setenv("USERNAME", "somebody")
    with pytest.raises(click.UsageError, match="which Redis"):
        find_connection(None, {})
    monkeypatch.setenv("URI", "h:1")
    monkeypatch.setenv("DB", "3")
    assert Connection("redis://somebody:@h:1/3") == find_connection(None, {})
    assert Connection("redis://somebody:@h:1/4") == find_connection(None, {"db": 4})
    monkeypatch.setenv("PYASYNQ_REDIS_URL", "redis://ours:1/0")
    assert Connection("redis://ours:1/0") == find_connection(None, {})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("asynq.yaml", "# Redis\nuri: h:1  # of the test\npassword: 'p w'\ndb: 2\ntls: true\n"),
        ("asynq.json", '{"URI": "h:1", "password": "p w", "db": 2, "tls": true}'),
        ("asynq.toml", 'uri = "h:1"\npassword = "p w"\ndb = 2\ntls = true\n'),
    ],
)
def test_asynqs_file_names_a_redis(tmp_path: Path, name: str, text: str) -> None:
    """`~/.asynq.yaml` unless `--config` names one; variables and flags win over it."""
    path = tmp_path / name
    path.write_text(text, "utf-8")
    assert Connection("rediss://:p%20w@h:1/2") == find_connection(None, {"config": str(path)})
    assert Connection("rediss://:p%20w@h:9/2") == find_connection(None, {"config": str(path), "uri": "h:9"})


def test_variables_of_asynq_win_over_its_file_when_they_are_false_or_zero_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As viper does it; an empty variable, and a null of the file, count as not given."""
    path = tmp_path / "asynq.json"
    path.write_text('{"uri": "h:1", "cluster": true, "db": 3, "tls": true, "password": null}', "utf-8")
    for name, value in {"URI": "h:2", "CLUSTER": "false", "DB": "0", "TLS": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("USERNAME", raising=False)
    monkeypatch.delenv("PASSWORD", raising=False)
    assert Connection("rediss://h:2/0") == find_connection(None, {"config": str(path)})


def test_the_usual_file_of_asynq_is_found_in_the_home_folder(tmp_path: Path) -> None:
    """If nothing else names a Redis."""
    (tmp_path / ".asynq.yaml").write_text("uri: h:1\n", "utf-8")
    assert Connection("redis://h:1/0") == find_connection(None, {})
    assert "redis.example" in find_connection("prod", {}).url


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("uri: h:1\n  deep: 2\n", "line 2 must have the form  name: value"),
        ("- uri", "line 1 must have the form"),
        ("db: two", "db must be a whole number"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    """Half a configuration would be another Redis."""
    path = tmp_path / "settings.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(click.ClickException, match=message):
        find_connection(None, {"config": str(path)})


def test_a_missing_file_of_settings_is_an_error_if_it_is_named(tmp_path: Path) -> None:
    """The usual one need not exist."""
    with pytest.raises(click.ClickException, match="there is no file"):
        find_connection(None, {"config": str(tmp_path / "none.yaml")})


def test_a_redis_is_named_before_the_command_too() -> None:
    """As for Asynq's command; what follows the command wins."""
    before = CliRunner().invoke(main, ["--uri", "localhost:1", "queue", "ls"])
    assert (5, True) == (before.exit_code, "localhost:1 cannot be reached" in before.stderr)
    after = CliRunner().invoke(
        main, ["--uri", "localhost:1", "queue", "ls", "--redis", "redis://localhost:2"]
    )
    assert (5, True) == (after.exit_code, "localhost:2 cannot be reached" in after.stderr)
    own = CliRunner().invoke(main, ["--redis", "redis://localhost:1", "worker", "shop:app"])
    assert (2, True) == (own.exit_code, "give it after  pyasynq worker" in own.stderr)
