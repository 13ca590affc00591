"""Settings of Asynq's command line, from its environment variables and file, for users who migrate."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXTS: Final = ("uri", "password", "username", "cluster_addrs", "tls_server")
_FLAGS: Final = ("cluster", "tls", "insecure")
_NAMES: Final = (*_TEXTS, *_FLAGS, "db")
_PLACES: Final = ("URI", "CLUSTER", "CLUSTER_ADDRS")
"""Environment variables with an address of Redis. If none of them is set, Asynq's other variables are
ignored, too: `USERNAME` and `PASSWORD` may belong to other programs.
"""
_TRUE: Final = frozenset({"1", "t", "true"})
_LARGEST: Final = 100_000


def read_asynq_settings(path: str | None) -> dict[str, Any]:
    """Return the settings of Asynq's environment variables and file, by the names of Asynq's flags.

    Variables override the file. The result is empty if neither has a setting.

    Args:
        path: path of the file; None is `.asynq.yaml` in the home folder, which need not exist.

    Raises:
        click.ClickException: for an unreadable file, or an invalid value.
    """
    given: dict[str, str] = {}
    if any(os.environ.get(name) for name in _PLACES):
        given = {name: value for name in _NAMES if (value := os.environ.get(name.upper()))}
    return {**_read_file(path), **_check(given, "the environment")}


def _read_file(path: str | None) -> dict[str, Any]:
    file = Path(path) if path is not None else Path.home() / ".asynq.yaml"
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(_LARGEST)
    except FileNotFoundError:
        if path is None:
            return {}
        raise click.ClickException(f"there is no file {visible(file)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{visible(file)} cannot be read: {visible(error)}") from error
    try:
        content = _parse(text, file.suffix)
    except ValueError as error:
        raise click.ClickException(f"{visible(file)} cannot be read: {visible(error)}") from error
    known = {name.lower(): value for name, value in content.items()}
    return _check({name: known[name] for name in _NAMES if name in known}, str(file))


def _parse(text: str, suffix: str) -> Mapping[str, Any]:
    """Parse the content of a settings file into names and values.

    Raises:
        ValueError: for content that cannot be parsed.
    """
    if suffix == ".toml":
        import tomllib  # noqa: PLC0415 - help needs no settings

        return tomllib.loads(text)
    if suffix == ".json":
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError("it must be an object")
        return content
    return _parse_lines(text)


def _parse_lines(text: str) -> dict[str, str]:
    """Parse lines `name: value`: the only part of YAML that these settings need."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split(" #", 1)[0].strip()
        if not content or content[0] in "#%" or content in {"---", "..."}:
            continue
        name, colon, value = content.partition(":")
        if not colon or line[0].isspace() or (value and not value[0].isspace()):
            raise ValueError(f"line {number} must have the form  name: value")
        value = value.strip()
        if value[:1] in {"'", '"'} and value[-1:] == value[:1] and len(value) > 1:
            value = value[1:-1]
        found[name.strip()] = value
    return found


def _check(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return settings with numbers and flags converted; leave out settings without a value.

    Raises:
        click.ClickException: for a `db` that is not a whole number.
    """
    settings: dict[str, Any] = {}
    for name, value in given.items():
        text = "" if value is None else str(value).strip()
        if not text:
            continue
        if name in _FLAGS:
            settings[name] = text.lower() in _TRUE
        elif name == "db":
            if not text.isdecimal():
                raise click.ClickException(f"{visible(where)}: db must be a whole number")
            settings[name] = int(text)
        else:
            settings[name] = text
    return settings
