"""Modules that a program loads at its start (D41). Not timed: a clock would notice other programs too."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import pyasynq

EXPECTED: dict[str, list[str]] = json.loads(
    (Path(__file__).parent.parent / "golden" / "start-up.json").read_text(encoding="utf-8")
)
"""By the statement: our modules by name, and the packages of others."""


def run_alone(program: str) -> str:
    """Run a program in an interpreter of its own and return what it prints."""
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def loaded_by(statement: str) -> list[str]:
    """Return what a statement loads in a fresh interpreter, except for the standard library."""
    program = (
        # redis-py loads this package wherever it is installed.
        "import sys; sys.modules['opentelemetry'] = None; before = set(sys.modules)\n"
        f"{statement}\n"
        "print(*sorted(set(sys.modules) - before), sep='\\n')"
    )
    names = run_alone(program).splitlines()
    ours = [name for name in names if name.partition(".")[0] == "pyasynq"]
    packages = {name.partition(".")[0] for name in names} - {"pyasynq", *sys.stdlib_module_names}
    # Python's own build settings have a name for each platform; redis-py looks for cryptography.
    return [*ours, *sorted(name for name in packages if not name.startswith(("_", "cryptography")))]


@pytest.mark.parametrize("statement", EXPECTED)
def test_a_program_loads_no_more_than_is_listed(statement: str) -> None:
    """Each module costs every program about a millisecond: list a new one only if a start needs it. (D41)"""
    loaded, expected = set(loaded_by(statement)), set(EXPECTED[statement])

    assert set() == loaded - expected, "loads more than tests/golden/start-up.json lists"
    assert set() == expected - loaded, "loads less than tests/golden/start-up.json lists: remove these lines"


_CHILD_PROCESSES = "pyasynq._engine.executor.pool"


def test_a_worker_loads_child_processes_and_aggregation_only_for_handlers_that_need_them() -> None:
    """Both together took 1 % of the memory of an idle worker."""
    loaded = loaded_by("import pyasynq; pyasynq.App('redis://localhost').server()")

    assert {_CHILD_PROCESSES, "pyasynq._engine.services.aggregator"}.isdisjoint(loaded)


def test_a_declaration_loads_child_processes_before_the_worker_needs_them() -> None:
    """A deployment may replace the files of a running worker, so that it would import another version."""
    program = "import pyasynq, os; pyasynq.Mux().handle('a', os.getcwd, executor='process')"

    assert _CHILD_PROCESSES in loaded_by(program)


def test_the_dashboard_loads_nothing_of_the_command_line() -> None:
    """A program that mounts it pays for no commands, and needs no click."""
    loaded = loaded_by("import pyasynq.web")

    assert [] == [name for name in loaded if name == "click" or name.startswith("pyasynq.cli")]


def test_the_help_of_no_command_loads_what_it_needs_to_run() -> None:
    """Each is shown within a fifth of a second, however much its command loads. (D41)"""
    program = (
        "import contextlib, io, sys\n"
        "import click\n"
        "from pyasynq.cli import main\n"
        "heavy = {'redis', 'starlette', 'jinja2', 'uvicorn', 'pyasynq.app', 'pyasynq.client'}\n"
        "for name in main.list_commands(click.Context(main)):\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        main([name, '--help'])\n"
        "    if loaded := heavy & set(sys.modules):\n"
        "        print(name, loaded)\n"
        "        heavy -= loaded\n"
    )
    assert "" == run_alone(program)


@pytest.mark.parametrize("command", [[], ["worker"], ["service"], ["queue", "ls"], ["task", "ls"]])
def test_the_help_of_what_is_asked_most_loads_no_asyncio(command: list[str]) -> None:
    """It takes longer to load than the rest of such a command. (D41)"""
    program = (
        "import contextlib, io, sys\n"
        "from pyasynq.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        f"    main([*{command}, '--help'])\n"
        "print(*{'asyncio', 'ssl'} & set(sys.modules))\n"
    )
    assert "\n" == run_alone(program)


def test_an_unknown_name_is_an_attribute_error_that_names_the_module() -> None:
    """As for any module; Python adds the most similar name, also one that was not imported yet. (D41)"""
    with pytest.raises(AttributeError, match="module 'pyasynq' has no attribute 'Cilent'") as caught:
        pyasynq.Cilent  # type: ignore[attr-defined] # noqa: B018 - the access is what is tested

    assert ("Cilent", pyasynq) == (caught.value.name, caught.value.obj)
    shown = subprocess.run(
        [sys.executable, "-c", "import pyasynq; pyasynq.Cilent"], check=False, capture_output=True, text=True
    )
    assert "Did you mean: 'Client'?" in shown.stderr


def test_dir_lists_names_before_they_are_imported() -> None:
    """Completion in an editor or an interactive session shows them all. (D41)"""
    missing = "import pyasynq; print(set(pyasynq.__all__) - set(dir(pyasynq)))"

    assert "set()\n" == run_alone(missing)


def test_a_star_import_brings_every_public_name() -> None:
    """The function `context` too, which has a submodule of the same name. (D41)"""
    program = "from pyasynq import *; import pyasynq.context, pyasynq as p\n"
    program += "print([n for n in p.__all__ if n not in globals()], type(context).__name__)"

    assert "[] function\n" == run_alone(program)


def test_public_classes_and_functions_survive_pickling() -> None:
    """By reference to the module that defines them. (D41)"""
    values = [getattr(pyasynq, name) for name in pyasynq.__all__]
    picklable = [value for value in values if hasattr(value, "__qualname__")]

    assert len(picklable) > 80
    assert picklable == [pickle.loads(pickle.dumps(value)) for value in picklable]


def test_submodules_with_public_names_need_no_import_of_their_own() -> None:
    """They never did: `import pyasynq` used to load them all. (D41)"""
    program = "import pyasynq; print(pyasynq.errors.PyasynqError.__name__, pyasynq.sync.Client.__name__, "
    program += "pyasynq.task.Task.__name__)"

    assert "PyasynqError Client Task\n" == run_alone(program)


def test_a_command_of_an_operator_loads_neither_metrics_of_redis_py_nor_collects_garbage() -> None:
    """Both took a sixth of a short command; OpenTelemetry can still be imported later. (D41)"""
    program = (
        "import contextlib, gc, sys\n"
        "from pyasynq.cli import main\n"
        "with contextlib.suppress(SystemExit):\n"
        "    main(['queue', 'ls', '--redis', 'redis://localhost:port'])\n"
        "print('redis' in sys.modules, 'opentelemetry' in sys.modules, gc.get_threshold()[0])\n"
        "import opentelemetry.sdk.metrics\n"
    )
    assert "True False 100000\n" == run_alone(program)


def test_redis_py_keeps_its_metrics_in_a_program_that_uses_opentelemetry() -> None:
    """Only a process that has not imported it yet hides it. (D41)"""
    program = (
        "import opentelemetry.sdk.metrics\n"
        "from pyasynq.cli.redis_without_metrics import import_redis_without_metrics\n"
        "import_redis_without_metrics()\n"
        "from redis.observability import providers\n"
        "print(providers.OTEL_AVAILABLE)\n"
    )
    assert "True\n" == run_alone(program)
