"""Errors of programs and commands whose extra is not installed: they name what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run_without(package: str, program: str) -> str:
    """Run a Python program that cannot import a package; return what it writes to its standard error."""
    program = f"import sys; sys.modules[{package!r}] = None; {program}"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    return ended.stderr


@pytest.mark.parametrize(
    ("package", "module", "extra"),
    [
        ("starlette", "pyasynq.web", "web"),
        ("sentry_sdk", "pyasynq.contrib.sentry", "sentry"),
        ("opentelemetry", "pyasynq.contrib.otel", "otel"),
    ],
)
def test_an_import_names_the_missing_extra(package: str, module: str, extra: str) -> None:
    """The last line is the remedy."""
    last = run_without(package, f"import {module}").splitlines()[-1]
    assert f"this needs the package {package}: type  pip install 'pyasynq[{extra}]'" in last


@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("starlette", "web", "['web']"),
        ("joserfc", "oidc", "['web', '--oidc-issuer', 'https://a.example']"),
        ("aiohttp", "oidc", "['web', '--oidc-issuer', 'https://a.example']"),
        ("aiohttp", "service", "['service', 'examples/service/service.toml', '--check']"),
    ],
)
def test_a_command_names_the_missing_extra_in_one_line(package: str, extra: str, command: str) -> None:
    """Without a traceback."""
    written = run_without(package, f"from pyasynq.cli import main; main({command})")
    assert f"Error: this needs the package {package}: type  pip install 'pyasynq[{extra}]'\n" == written


def test_another_missing_module_is_told_as_it_is() -> None:
    """Only packages of extras have a remedy here."""
    program = "import pyasynq._extras as e; raise e.explain_missing(ModuleNotFoundError('no', name='mine'))"
    assert run_without("mine", program).endswith("ModuleNotFoundError: no\n")
