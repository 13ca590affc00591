"""Settings of a worker: each by flag, environment, file and app, and where they came from."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from pyasynq import App, GroupRule, Queue, WorkerConfig
from pyasynq._settings import settings_of
from pyasynq.cli import main
from pyasynq.cli.queue_settings import QUEUE_LIMITS
from pyasynq.cli.worker import worker
from pyasynq.cli.worker_settings import (
    SETTINGS,
    find_file,
    find_misspelt_variables,
    flags_of,
    load_file,
    read_environment,
    read_file,
    read_flags,
    resolve,
    variable_of,
)
from tools.settings_page import build as build_page

if TYPE_CHECKING:
    from pathlib import Path

ROWS: list[tuple[str, str, Any]] = [
    ("concurrency", "7", 7),
    ("prefetch", "0", 0),
    ("executor_processes", "2", 2),
    ("executor_max_tasks", "10", 10),
    ("queues", "critical=6,default", {"critical": 6, "default": 1}),
    ("strict_priority", "yes", True),
    ("retry_delay", "90", 90.0),
    ("on_unknown", "return", "return"),
    ("crash_limit", "1", 1),
    ("shutdown_timeout", "1m30s", 90.0),
    ("cancel_timeout", "500ms", 0.5),
    ("overdue_limit", "1h", 3_600.0),
    ("task_check_interval", "2", 2.0),
    ("delayed_task_check_interval", "2.5", 2.5),
    ("janitor_interval", "3s", 3.0),
    ("janitor_batch_size", "50", 50),
    ("health_check_interval", "20", 20.0),
    ("archive_max_size", "5", 5),
    ("archive_max_age", "7d", 604_800.0),
    ("max_result", "1M", 1_048_576),
    ("max_payload", "2M", 2_097_152),
    ("group_grace_period", "5", 5.0),
    ("group_max_delay", "10m", 600.0),
    ("group_max_size", "100", 100),
    ("publish_events", "on", True),
    ("statistics", "no", False),
    ("burst", "true", True),
    ("max_tasks", "3", 3),
    ("processes", "4", 4),
    ("max_tasks_per_child", "1000", 1_000),
    ("max_memory", "512M", 536_870_912),
    ("beat_timeout", "0", 0.0),
    ("start_timeout", "5", 5.0),
    ("reload", "1", True),
    ("with_scheduler", "1", True),
    ("health_port", "8080", 8_080),
    ("health_host", "127.0.0.1", "127.0.0.1"),
    ("health_file", "/tmp/alive", "/tmp/alive"),
    ("metrics", "1", True),
    ("log_level", "debug", "debug"),
    ("log_format", "json", "json"),
    ("log_config", "log.toml", "log.toml"),
    ("logging", "no", False),
    ("log_tasks", "yes", True),
]


def typed_of(*arguments: str) -> dict[str, Any]:
    """Return what click makes of flags."""
    context = click.Context(worker)
    parser = worker.make_parser(context)
    values, _, _ = parser.parse_args([*arguments, "shop:app"])
    return {name: values.get(name) for name in SETTINGS}


def test_every_setting_that_text_can_give_has_a_row() -> None:
    """Functions and tables are left to Python and to files."""
    described = {one.name for one, setting in settings_of(WorkerConfig) if setting.kind.has_text}
    assert described == {name for name, _, _ in ROWS}


@pytest.mark.parametrize(("name", "text", "value"), ROWS)
def test_a_setting_is_given_by_flag_environment_file_and_app(name: str, text: str, value: Any) -> None:
    """The value is the same, and so is the way to it: the source is told."""
    flag = next(one for one in flags_of(name) if one.startswith("--")).partition("/")
    is_switch = not SETTINGS[name].kind.metavar
    wanted = flag[0] if value is not False else flag[2]
    arguments = [wanted] if is_switch else [f"{wanted}={text}"]
    variable = variable_of(name)
    assert variable is not None
    layers = {
        wanted: read_flags(typed_of(*arguments)),
        variable: read_environment({variable: text}),
        f"F: {name}": read_file("F", {name: text}),  # type: ignore[arg-type] # it is only shown
    }
    for source, layer in layers.items():
        resolved = resolve(layer)
        assert (value, source) == (getattr(resolved.config, name), resolved.sources[name])
    app = App(worker=WorkerConfig(**{name: value}))
    assert (value, "app") == (
        getattr(resolve(app=app).config, name),
        resolve(app=app).sources[name],
    )


def test_flags_win_over_the_environment_the_file_and_the_app() -> None:
    """A flag overrides the environment, which overrides the file, which overrides the app."""
    app = App(worker=WorkerConfig(concurrency=1, prefetch=1, crash_limit=1, max_tasks=1))
    flags = read_flags(typed_of("-c", "4"))
    variables = read_environment({"PYASYNQ_CONCURRENCY": "3", "PYASYNQ_PREFETCH": "3"})
    file = read_file("F", {"concurrency": 2, "prefetch": 2, "crash-limit": 2})  # type: ignore[arg-type]
    resolved = resolve(flags, variables, file, app=app)
    values = {name: (value, source) for name, value, source in resolved.lines()}
    assert {
        "concurrency": ("4", "--concurrency"),
        "prefetch": ("3", "PYASYNQ_PREFETCH"),
        "crash_limit": ("2", "F: crash-limit"),
        "max_tasks": ("1", "app"),
        "janitor_batch_size": ("100", "default"),
    } == {
        name: values[name]
        for name in ("concurrency", "prefetch", "crash_limit", "max_tasks", "janitor_batch_size")
    }


def test_a_setting_that_is_optional_can_be_taken_back() -> None:
    """The text `none` takes the setting back, and is how it is shown."""
    app = App(worker=WorkerConfig(max_tasks=5))
    resolved = resolve(read_environment({"PYASYNQ_MAX_TASKS": "none"}), app=app)
    assert (None, "PYASYNQ_MAX_TASKS") == (resolved.config.max_tasks, resolved.sources["max_tasks"])


def test_empty_variables_say_nothing() -> None:
    """An environment file may list all names and leave values empty."""
    assert {} == read_environment({"PYASYNQ_CONCURRENCY": " "})


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"PYASYNQ_CONCURRENCY": "many"},
            r"^PYASYNQ_CONCURRENCY='many': must be a whole number of at least 1$",
        ),
        ({"PYASYNQ_BURST": "maybe"}, r"^PYASYNQ_BURST='maybe': must be 1, true, yes or on; or 0"),
        (
            {"PYASYNQ_SHUTDOWN_TIMEOUT": "5x"},
            r"^PYASYNQ_SHUTDOWN_TIMEOUT='5x': must be a duration: 30, 500ms",
        ),
        ({"PYASYNQ_SHUTDOWN_TIMEOUT": ""}, None),
        ({"PYASYNQ_SHUTDOWN_TIMEOUT": "5 5"}, "must be a duration"),
        ({"PYASYNQ_TASK_CHECK_INTERVAL": "0"}, "must be more than 0 seconds"),
        ({"PYASYNQ_LOG_LEVEL": "loud"}, "must be 'debug', 'info', 'warning' or 'error'"),
        ({"PYASYNQ_MAX_MEMORY": "much"}, "must be a size: 512M or 1.5G"),
        ({"PYASYNQ_HEALTH_PORT": "65536"}, "must be at most 65,535"),
        ({"PYASYNQ_QUEUES": "a=\x1b[2J"}, "PYASYNQ_QUEUES='a=.*x1b"),
        ({"PYASYNQ_GROUP_MAX_SIZE": "10001"}, "must be at most 10,000"),
        ({"PYASYNQ_MAX_RESULT": "9" * 200}, r"PYASYNQ_MAX_RESULT='9{59}\.\.\.: must be a size"),
    ],
)
def test_a_wrong_value_names_its_source(variables: dict[str, str], message: str | None) -> None:
    """The error also says what to write instead."""
    if message is None:
        read_environment(variables)
        return
    with pytest.raises(click.UsageError, match=message):
        read_environment(variables)


FILE = """
concurrency = 8
shutdown-timeout = "30s"
burst = true
publish_events = 500

[queues]
bulk = 1
mail = { weight = 3, rate = "50/m+5", max_run = 2 }

[groups]
"report:*" = { max_size = 10 }
"""


def test_a_file_gives_numbers_switches_texts_and_tables(tmp_path: Path) -> None:
    """They are TOML's own; a queue may be a table."""
    path = tmp_path / "worker.toml"
    path.write_text(FILE)
    config = resolve(read_file(path, load_file(path))).config
    assert (8, 30.0, True, 500) == (
        config.concurrency,
        config.shutdown_timeout,
        config.burst,
        config.publish_events,
    )
    mail = Queue(priority=3, rate=50, period=60, burst=5, max_run=2)
    assert {"bulk": 1, "mail": mail} == config.queues
    assert {"report:*": GroupRule(max_size=10)} == config.groups


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("concurency = 1", "concurency: there is no such setting; did you mean 'concurrency'"),
        ("concurrency = 1.5", "concurrency=1.5: must be a whole number of at least 1"),
        ("error_handler = 'print'", "it is a function: set it in Python"),
        ("queue_rate = 'a=1/s'", "write it in the table of queues"),
        ("[queues.mail]\nrat = 5", "has no 'rat'; did you mean 'rate'"),
        ("[queues.mail]\nrate = '5'", "queues.mail.rate='5': write 50/s, 100/m"),
        ("[queues.mail]\nmax_run = 0", "queues.mail.max_run=0: must be"),
        ("[queues.mail]\nmax_run = '3'", "queues.mail.max_run='3': must be a whole number"),
        ("[queues.mail]\nweight = 0", "queues.mail.weight=0: must be a whole number of at least 1"),
        ("[queues.mail]\nordered = true\nmax_run = 2", "queues.mail.max_run=2: an ordered queue runs"),
        ("[queues.mail]\nrate = 'none'\nburst = 2", "queues.mail.burst=2: give a rate with it"),
        ("queues.q1 = '5'", "queues.q1='5': write a number without quotation marks, as in mail = 3, or a "),
        (
            "queues.q1 = 0",
            "queues.q1=0: write a whole number of at least 1, as in mail = 3, or a table",
        ),
        ("queues = ['q1', 'default']", "write a table of weights, as in queues = { mail = 3, default = 1 }"),
        ("queues = {}", "write a table of weights"),
        ("[groups.a]\nmax_size = -1", "groups.a.max_size=-1: must be a whole number of at least 0"),
        ("groups = 5", "must map names of groups to GroupRules"),
        ("retry_delay = true", "must be a duration"),
        ("concurrency = ", "is not valid TOML: Invalid value (at the end, line 1)"),
        ("a = 1\nb = yes", "is not valid TOML: Invalid value (at line 2, column 5)"),
        (
            "a = 1\n[queues",
            "']' at the end of a table declaration (at the end, line 2)",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_its_name(tmp_path: Path, content: str, message: str) -> None:
    """The error also names the setting."""
    path = tmp_path / "worker.toml"
    path.write_text(content)
    with pytest.raises(click.UsageError, match=r"worker\.toml") as caught:
        read_file(path, load_file(path))
    assert message in caught.value.message


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The error names the path."""
    with pytest.raises(click.UsageError, match="not_there"):
        load_file(tmp_path / "not_there.toml")


def test_the_pyproject_of_the_app_or_above_it_is_found(tmp_path: Path) -> None:
    """The nearest one with a table of ours."""
    inner = tmp_path / "src" / "shop"
    inner.mkdir(parents=True)
    (inner / "pyproject.toml").write_text("[project]\nname = 'shop'")
    (tmp_path / "pyproject.toml").write_text("[tool.pyasynq]\nconcurrency = 3")
    assert (tmp_path / "pyproject.toml", {"concurrency": 3}) == find_file(inner)
    assert None is find_file(None)


def test_queues_of_the_app_have_its_weights_and_all_declared_limits() -> None:
    """Flags replace names and weights; limits of flags win over declared ones."""
    app = App(queues={"mail": Queue(priority=2, rate=50), "bulk": 3})

    @app.task("one", max_run=1)
    async def one() -> None: ...

    @app.task("mailing", queue="mail", ordered=True)
    async def mailing() -> None: ...

    own = {
        "bulk": 3,
        "default": 1,
        "mail": Queue(priority=2, rate=50, ordered=True),
        "one": Queue(max_run=1),
    }
    assert own == resolve(app=app).config.queues
    assert "app" == resolve(app=app).sources["queues"]
    flags = read_flags(typed_of("-q", "one=5,bulk", "--queue-max-run", "one=2", "--queue-rate", "bulk=1/s"))
    resolved = resolve(flags, app=app)
    assert {"one": Queue(priority=5, max_run=2), "bulk": Queue(rate=1)} == resolved.config.queues
    assert "--queues, --queue-max-run, --queue-rate" == resolved.sources["queues"]


DECLARED = {
    "sms": Queue(rate=5, period=60, burst=2),
    "lab": Queue(max_run=1, priority=3),
    "ledger": Queue(ordered=True),
}


@pytest.mark.parametrize(
    ("content", "queues"),
    [
        ("sms = { weight = 3 }", {"sms": Queue(priority=3, rate=5, period=60, burst=2)}),
        ("sms = 3", {"sms": Queue(priority=3, rate=5, period=60, burst=2)}),
        ("sms = { burst = 1 }", {"sms": Queue(rate=5, period=60, burst=1)}),
        ("sms = { rate = '9/s' }", {"sms": Queue(rate=9)}),
        ("sms = { rate = 9 }", {"sms": Queue(rate=9)}),
        ("sms = { rate = 'none', weight = 2 }", {"sms": 2}),
        ("lab = { rate = '5/s' }", {"lab": Queue(priority=3, max_run=1, rate=5)}),
        ("lab = { max_run = 'none' }", {"lab": 3}),
        ("lab = { max_run = 4 }", {"lab": Queue(priority=3, max_run=4)}),
        ("ledger = { ordered = false, max_run = 3 }", {"ledger": Queue(max_run=3)}),
        ("other = { max_run = 2 }", {"other": Queue(max_run=2)}),
        ("other = {}", {"other": 1}),
    ],
)
@pytest.mark.parametrize("place", ["queues", "worker"])
def test_a_table_of_a_queue_changes_only_what_it_names(
    content: str, queues: dict[str, int | Queue], place: str
) -> None:
    """Other limits, and the weight, are those of the app; the server has the same."""
    app = App(
        "redis://localhost:1",
        queues=DECLARED if place == "queues" else {},
        worker=WorkerConfig(queues=DECLARED if place == "worker" else {}),
    )
    layer = read_file("F", tomllib.loads(f"[queues]\n{content}"))  # type: ignore[arg-type] # it is only shown
    resolved = resolve(layer, app=app)
    assert (queues, "F: queues") == (resolved.config.queues, resolved.sources["queues"])
    assert queues == app.server(replace(resolved.config, burst=True)).config.queues


def test_limits_of_each_place_stay_unless_a_higher_one_sets_them() -> None:
    """`--queues` replaces names and weights alone."""
    app = App(queues=DECLARED)
    file = read_file("F", {"queues": {"sms": {"max_run": 9}, "lab": {"rate": "1/s"}}})  # type: ignore[arg-type]
    variables = read_environment({"PYASYNQ_QUEUE_MAX_RUN": "sms=8,lab=none"})
    flags = read_flags(typed_of("-q", "sms=2,lab,default", "--queue-max-run", "sms=7"))
    resolved = resolve(flags, variables, file, app=app)
    assert {
        "sms": Queue(priority=2, rate=5, period=60, burst=2, max_run=7),
        "lab": Queue(rate=1),
        "default": 1,
    } == resolved.config.queues
    assert "--queues, F: queues, PYASYNQ_QUEUE_MAX_RUN, --queue-max-run" == resolved.sources["queues"]
    names = read_flags(typed_of("-q", "default"))
    assert ({"default": 1}, "--queues") == (
        resolve(names, file, app=app).config.queues,
        resolve(names, file, app=app).sources["queues"],
    )


def test_a_limit_that_a_lower_place_excludes_names_its_source() -> None:
    """A higher place may still remove it."""
    app = App(queues=DECLARED)
    file = read_file("F", {"queues": {"ledger": {"max_run": 3}, "lab": {"burst": 5}}})  # type: ignore[arg-type]
    with pytest.raises(
        click.UsageError, match=r"^F: queues: queue 'ledger': max_run=3: an ordered queue runs"
    ):
        resolve(file, app=app)
    flags = read_flags(typed_of("--queue-max-run", "ledger=none"))
    with pytest.raises(click.UsageError, match=r"^F: queues: queue 'lab': burst=5: give a rate with it"):
        resolve(flags, file, app=app)
    flags |= read_flags(typed_of("--queue-rate", "lab=1/s+2"))
    lab = Queue(priority=3, max_run=1, rate=1, burst=2)
    assert {"ledger": Queue(ordered=True), "lab": lab} == resolve(flags, file, app=app).config.queues


def test_a_limit_of_a_queue_that_is_not_served_is_refused() -> None:
    """A misspelt name would limit nothing."""
    with pytest.raises(click.UsageError, match="queue 'other' has a limit and is not served"):
        resolve(read_flags(typed_of("--queue-ordered", "other")), app=App())


def test_limits_that_do_not_go_together_are_refused() -> None:
    """An ordered queue runs one task at a time."""
    flags = read_flags(typed_of("-q", "a", "--queue-max-run", "a=2", "--queue-ordered", "a"))
    with pytest.raises(click.UsageError, match="queue 'a': max_run=2"):
        resolve(flags)


def test_what_is_shown_can_be_read_again() -> None:
    """For each setting that text can give, but the function that is the default of `retry_delay`."""
    for name, text, value in ROWS:
        described = SETTINGS[name]
        shown = described.show(value)
        assert value == described.read(name, shown), (name, text)


def test_show_config_prints_each_setting_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is started, and Redis is not asked."""
    (tmp_path / "shown_app.py").write_text(
        "from pyasynq import App, WorkerConfig\n"
        "app = App('redis://localhost:1', worker=WorkerConfig(prefetch=5, processes=3, reload=True))\n"
    )
    (tmp_path / "pyproject.toml").write_text("[tool.pyasynq]\ncrash_limit = 2\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setenv("PYASYNQ_LOG_LEVEL", "warning")
    result = CliRunner().invoke(main, ["worker", "shown_app:app", "--show-config", "-c", "9"])
    assert 0 == result.exit_code, result.output
    lines = {line.split()[0]: line.split()[1:] for line in result.output.splitlines()}
    assert {"redis", *(SETTINGS.keys() - QUEUE_LIMITS.keys())} == lines.keys()
    assert ["localhost:1,", "database", "0", "app"] == lines["redis"]
    assert ["9", "--concurrency"] == lines["concurrency"]
    assert ["warning", "PYASYNQ_LOG_LEVEL"] == lines["log_level"]
    assert ["5", "app"] == lines["prefetch"]
    assert ["2", f"{tmp_path / 'pyproject.toml'}:", "crash_limit"] == lines["crash_limit"]
    assert ["none", "default"] == lines["max_tasks"]


@pytest.mark.parametrize(
    ("variables", "arguments", "shown"),
    [
        ({}, (), ["none", "default"]),
        (
            {"PYASYNQ_REDIS_URL": "redis://me:secret@there:1/2"},
            (),
            ["there:1,", "database", "2", "PYASYNQ_REDIS_URL"],
        ),
        ({}, ("--redis", "redis://me:secret@here:1/2"), ["here:1,", "database", "2", "--redis"]),
        (
            {},
            ("--redis", "unix://me:secret@/run/redis.sock?db=3"),
            ["/run/redis.sock,", "database", "3", "--redis"],
        ),
        ({}, ("--redis", "redis-cluster://me:secret@a:1,b:2"), ["a:1,b:2", "--redis"]),
    ],
)
def test_show_config_says_where_redis_is_without_the_password(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    arguments: tuple[str, ...],
    shown: list[str],
) -> None:
    """An app may leave it to the environment."""
    (tmp_path / "bare_app.py").write_text("from pyasynq import App\napp = App()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "bare_app", raising=False)
    monkeypatch.delenv("PYASYNQ_REDIS_URL", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(main, ["worker", "bare_app:app", "--show-config", *arguments])
    assert ["redis", *shown] == result.output.splitlines()[0].split()
    assert "secret" not in result.output


def test_a_misspelt_variable_is_found_and_others_are_left_alone() -> None:
    """Other variables of pyasynq, and those of the user's own programs."""
    variables = {
        "PYASYNQ_CONCURENCY": "3",
        "PYASYNQ_CONCURRENCY": "4",
        "PYASYNQ_REDIS_URL": "redis://localhost",
        "PYASYNQ_SECRET": "s",
        "PYASYNQ_SERVICE": "http://localhost",
        "PYASYNQ_OTEL_PARENT": "creation",
        "PYASYNQ_DASHBOARD_TITLE": "ours",
        "CONCURENCY": "5",
    }
    assert {"PYASYNQ_CONCURENCY": "PYASYNQ_CONCURRENCY"} == find_misspelt_variables(variables)


@pytest.mark.parametrize("name", ["REDIS_URI", "URL", "REDIS", "REDIS_ULR", "BROKER_URL"])
def test_another_name_of_the_variable_of_the_url_is_found(name: str) -> None:
    """Other programs have such names for it."""
    variables = {f"PYASYNQ_{name}": "redis://localhost"}
    assert {f"PYASYNQ_{name}": "PYASYNQ_REDIS_URL"} == find_misspelt_variables(variables)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Without the number of the system's error."""
    path = tmp_path / "nothere.toml"
    with pytest.raises(click.UsageError) as caught:
        load_file(path)
    assert f"{path} cannot be read: No such file or directory" == caught.value.message


def test_a_configuration_of_a_worker_may_leave_the_queues_to_the_app() -> None:
    """A server's may not."""
    assert {} == WorkerConfig().queues
    assert {"a": 1} == replace(WorkerConfig(), queues={"a": 1}).queues


def test_the_environment_is_never_read_at_import() -> None:
    """A wrong variable ends `pyasynq worker` alone, and no program that enqueues."""
    program = (
        "from pyasynq import App, ServerConfig, WorkerConfig\n"
        "import pyasynq.cli.worker, pyasynq.cli.worker_start, pyasynq.server\n"
        "app = App('redis://localhost:1')\n"
        "app.server()\n"
        "print(app.worker.concurrency, ServerConfig().concurrency, WorkerConfig().concurrency)"
    )
    variables = {name: "many" for name in map(variable_of, SETTINGS) if name is not None}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **variables},
        check=True,
        capture_output=True,
        text=True,
    )
    assert ("100 100 100\n", "") == (done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("concurrency", "whole number, 1 or more"),
        ("group_max_size", "whole number, 0 to 10,000"),
        ("health_port", "whole number, 0 to 65,535; or `none`"),
        ("task_check_interval", "duration, more than 0"),
        ("group_grace_period", "duration, 1 s or more"),
        ("max_memory", "size, 1 byte or more; or `none`"),
        ("max_result", "size, at most 500,000,000 bytes"),
        ("log_level", "`debug`, `info`, `warning` or `error`"),
        ("burst", "switch"),
        ("log_config", "file; or `none`"),
        ("error_handler", "function; or `none`"),
        ("queue_max_run", "`NAME=NUMBER,...`"),
    ],
)
def test_a_setting_describes_its_values(name: str, values: str) -> None:
    """The words of a choice, the range of a number, and whether the setting may be taken back."""
    assert values == SETTINGS[name].describe_values()


def test_the_page_of_settings_is_for_readers_without_the_source() -> None:
    """It has the values of each setting, and no name that only the code knows."""
    rows = [line.split(" | ") for line in build_page().splitlines() if line.startswith("| `")]
    rows = [row for row in rows if len(row) == 5]  # not those of the table about a queue
    assert [*SETTINGS] == sorted((row[0].strip("| `") for row in rows), key=[*SETTINGS].index)
    for name, _, values, default, _ in rows:
        assert values.strip(), name
        assert not default.startswith("`_"), name


def test_a_default_that_is_a_private_function_is_described() -> None:
    """A function of the user is shown by its name."""
    shown = {name: value for name, value, _ in resolve().lines()}
    assert "every error is a failure" == shown["is_failure"]
    own = {name: value for name, value, _ in resolve(app=App(worker=WorkerConfig(is_failure=bool))).lines()}
    assert "builtins.bool" == own["is_failure"]
