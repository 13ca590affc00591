"""Redis connection of an operator command: a URL, a profile of the user, or flags of Asynq's command."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import click

from pyasynq.cli.asynq_settings import read_asynq_settings
from pyasynq.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

URL_VARIABLE: Final = "PYASYNQ_REDIS_URL"
_DEFAULT_URI: Final = "127.0.0.1:6379"
_COLORS: Final = ("red", "yellow", "green", "blue", "magenta", "cyan", "white")
_CONFIRMATIONS: Final = ("ask", "type-name")
_PROFILE_KEYS: Final = ("url", "color", "confirm", "read_only")
ASYNQ_FLAGS: Final = (
    *("uri", "db", "password", "username", "cluster", "cluster_addrs", "tls", "tls_server", "insecure"),
    "config",
)
"""Flags of Asynq's command line that say which Redis to use; `config` names a file with such settings."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Redis connection that the user has chosen.

    Attributes:
        url: may contain a password, so it is never shown.
        name: name of the profile; empty if the user gave a URL.
        color: color of the name in confirmation questions; empty for none.
        confirm: how the user confirms a change: `ask` (answer y), or `type-name` (type the profile's name).
        read_only: whether changes are refused.
    """

    url: str = field(repr=False)
    name: str = ""
    color: str = ""
    confirm: str = "ask"
    read_only: bool = False


def config_file() -> Path:
    """Return the path of the profiles: `pyasynq/config.toml` in `$XDG_CONFIG_HOME` or `~/.config`."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "pyasynq" / "config.toml"


def read_profiles(path: Path) -> dict[str, Connection]:
    """Return the profiles in a file, by name; none if there is no such file.

    Raises:
        click.ClickException: for an unreadable file, and for an invalid profile.
    """
    import tomllib  # noqa: PLC0415 - help needs no profiles

    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.ClickException(f"{path} cannot be read: {error}") from error
    profiles = content.get("redis", {})
    if not isinstance(profiles, dict) or not all(isinstance(one, dict) for one in profiles.values()):
        raise click.ClickException(f"{path}: write each profile as a table, as in [redis.prod]")
    return {name: _read_profile(path, name, values) for name, values in profiles.items()}


def _read_profile(path: Path, name: str, values: Mapping[str, Any]) -> Connection:
    where = f"{path}, [redis.{name}]"
    for key in values:
        if key not in _PROFILE_KEYS:
            raise click.ClickException(f"{where}: there is no setting {key!r}{nearest(key, _PROFILE_KEYS)}")
    url = values.get("url")
    if not isinstance(url, str) or "://" not in url:
        raise click.ClickException(
            f'{where}: url must be a Redis URL, as in url = "redis://localhost:6379/0"'
        )
    color, confirm = values.get("color", ""), values.get("confirm", "ask")
    if color not in ("", *_COLORS):
        raise click.ClickException(f"{where}: color must be one of {', '.join(_COLORS)}")
    if confirm not in _CONFIRMATIONS:
        raise click.ClickException(f"{where}: confirm must be one of {', '.join(_CONFIRMATIONS)}")
    read_only = values.get("read_only", False)
    if not isinstance(read_only, bool):
        raise click.ClickException(f"{where}: read_only must be true or false")
    return Connection(url, name, color, confirm, read_only)


def find_connection(redis: str | None, flags: Mapping[str, Any]) -> Connection:
    """Return the connection that the options name.

    Without options, it is the one that `PYASYNQ_REDIS_URL` names, or else the one of Asynq's settings.

    Raises:
        click.UsageError: for contradicting options, for an unknown profile, and if nothing names a Redis.
        click.ClickException: if the file of profiles or Asynq's settings cannot be read.
    """
    given = {name: value for name, value in flags.items() if value}
    if given and redis:
        names = ", ".join(f"--{name}" for name in given)
        raise click.UsageError(f"--redis and {names} name a Redis each; give one of them")
    if _is_url(given):
        others = ", ".join(f"--{name}" for name in given if name != "uri")
        if others:
            raise click.UsageError(
                f"--uri with a URL excludes {others}; the URL has all of it, as in redis://:PASSWORD@HOST:6379/2"
            )
        return Connection(given["uri"])
    if given:
        return Connection(asynq_url({**read_asynq_settings(given.pop("config", None)), **given}))
    reference = redis or os.environ.get(URL_VARIABLE)
    if not reference:
        settings = read_asynq_settings(None)
        if settings:
            return Connection(asynq_url(settings))
        raise click.UsageError(
            "which Redis? Give --redis redis://localhost:6379/0 or the name of a profile, "
            f"or set {URL_VARIABLE} in the environment"
        )
    if "://" in reference:
        return Connection(reference)
    profiles = read_profiles(config_file())
    if reference not in profiles:
        known = f"there are: {', '.join(profiles)}" if profiles else f"{config_file()} has none"
        raise click.UsageError(f"there is no profile {reference!r}{nearest(reference, profiles)}; {known}")
    return profiles[reference]


def _is_url(flags: Mapping[str, Any]) -> bool:
    """Return whether `uri` is a whole URL; Asynq's command takes only HOST:PORT."""
    return "://" in (flags.get("uri") or "")


def asynq_url(flags: Mapping[str, Any]) -> str:
    """Build a URL from flags of Asynq's command (`--uri HOST:PORT --db 2 --tls_server NAME`).

    Raises:
        click.ClickException: if `uri` is a URL. Only the flag `--uri` accepts one; Asynq's settings do not.
    """
    if _is_url(flags):
        raise click.ClickException(
            "uri in Asynq's settings must be HOST:PORT, not a URL; "
            f"give a URL as --redis, or set {URL_VARIABLE}"
        )
    server_name = flags.get("tls_server")
    has_tls = bool(server_name or flags.get("tls"))
    is_cluster = bool(flags.get("cluster"))
    hosts = flags.get("cluster_addrs") or ",".join(f"127.0.0.1:{port}" for port in range(7000, 7006))
    address = hosts if is_cluster else flags.get("uri") or _DEFAULT_URI
    scheme = ("rediss" if has_tls else "redis") + ("-cluster" if is_cluster else "")
    login = ""
    if flags.get("username") or flags.get("password"):
        login = (
            f"{quote(flags.get('username') or '', safe='')}:{quote(flags.get('password') or '', safe='')}@"
        )
    parameters = {}
    if server_name:
        parameters["ssl_server_hostname"] = server_name
    if has_tls and flags.get("insecure"):
        parameters["ssl_cert_reqs"] = "none"
    database = "" if is_cluster else f"/{flags.get('db') or 0}"
    return f"{scheme}://{login}{address}{database}" + (f"?{urlencode(parameters)}" if parameters else "")
