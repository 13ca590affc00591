"""The service's file, in TOML or JSON: settings of the service, and a table or list of task types."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyasynq._checks import check_switch, check_text, is_whole
from pyasynq._settings import Size
from pyasynq._visible_text import visible
from pyasynq.errors import ConfigurationError, InvalidOptionError

from .command_rules import CommandRules, parse_command_rules
from .field_names import join_path, read_table
from .gearman_settings import GearmanSettings, parse_gearman_settings
from .host_rule import HostRule, parse_host_rules, parse_networks
from .listen_address import is_loopback_host, parse_listen
from .openid_settings import parse_openid_settings
from .retry_rule import parse_duration
from .task_configuration import TaskConfiguration, parse_task_configuration

if TYPE_CHECKING:
    from pyasynq._sign_in.openid_options import OpenIdConnect

_DEFAULT_REDIS: Final = "redis://localhost:6379/0"
_DEFAULT_MAX_BODY: Final = 1_000_000
_MOST_MAX_BODY: Final = 8_000_000
MAX_TASK_TYPES: Final = 2_000
"""Maximum number of task types of a service; it is also the maximum for types that workers publish."""
_LONGEST_DRAIN: Final = 600
_DEFAULT_MAX_INFLIGHT: Final = 1_000
_MOST_MAX_INFLIGHT: Final = 100_000
"""Maximum of `max_inflight`: more connections than one process can have in practice."""
_SETTINGS: Final = (
    "redis",
    "listen",
    "max_body",
    "max_inflight",
    "keys",
    "dashboard",
    "people",
    "oidc",
    "trusted_proxies",
    "health",
    "drain",
)
_LATER_SETTINGS: Final = frozenset({"middlewares"})


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Settings of the service.

    Attributes:
        redis: URL of Redis.
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        max_body: largest body of a request in bytes.
        keys: whether requests need an API key. If the file does not say, they need one unless the service
            listens on loopback only.
        dashboard: whether the dashboard is served, too. If the file does not say, it is served if people sign
            in, or if the service listens on loopback only.
        people: file of passwords and tokens for the dashboard; None for no sign-in.
        oidc: OpenID provider at which people sign in to the dashboard; None for no provider.
        trusted_proxies: networks of proxies whose `X-Forwarded-*` headers the dashboard believes.
        health: host and port for probes and metrics of all processes together; None for no such address.
        drain: seconds after SIGTERM during which new requests are accepted, while `/ready` answers 503.
        max_inflight: number of requests that a process works on at once; waiting requests do not count.
    """

    redis: str = _DEFAULT_REDIS
    host: str = "127.0.0.1"
    port: int = 8080
    max_body: int = _DEFAULT_MAX_BODY
    keys: bool = False
    dashboard: bool = True
    people: Path | None = None
    health: tuple[str, int] | None = None
    drain: float = 0.0
    max_inflight: int = _DEFAULT_MAX_INFLIGHT
    trusted_proxies: tuple[str, ...] = ()
    oidc: OpenIdConnect | None = None

    @property
    def is_public(self) -> bool:
        """Whether other machines reach the address."""
        return not is_loopback_host(self.host)

    @property
    def has_sign_in(self) -> bool:
        """Whether people sign in to the dashboard."""
        return self.people is not None or self.oidc is not None


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """Content of a service's file.

    Attributes:
        service: settings of the service.
        tasks: configuration of each task type, by name.
        hosts: rule of each host that tasks of the kind `http` call, by name.
        gearman: settings of the Gearman server; None if there is none.
        commands: rules of all commands, which are the tasks of the kind `cmd`.
    """

    service: ServiceSettings = ServiceSettings()
    tasks: Mapping[str, TaskConfiguration] = field(default_factory=dict)
    hosts: Mapping[str, HostRule] = field(default_factory=dict)
    gearman: GearmanSettings | None = None
    commands: CommandRules = field(default_factory=CommandRules)


def read_service_file(file: Path) -> ServiceFile:
    """Read and check the service's file: JSON if its name ends with `.json`, TOML otherwise.

    Raises:
        ConfigurationError: for a file that cannot be read, and for one with wrong content.
    """
    try:
        text = file.read_text("utf-8")
        content = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{visible(file)} cannot be read: {visible(error)}") from None
    try:
        return parse_service_file(content, folder=file.parent)
    except ConfigurationError as error:
        raise ConfigurationError(f"{visible(file)}: {visible(error)}") from None


def parse_service_file(content: object, *, folder: Path | None = None) -> ServiceFile:
    """Parse the content of a service's file; a list contains task types only.

    Raises:
        InvalidOptionError: for an invalid field; the message names the field and the remedy.
    """
    if isinstance(content, list):
        content = {"tasks": content}
    tables = read_table("", content, ("service", "tasks", "hosts", "doors", "commands"))
    service = _parse_settings(tables.get("service", {}), folder)
    hosts = parse_host_rules("hosts", tables.get("hosts", {}))
    doors = read_table("doors", tables.get("doors", {}), ("gearman",), later=("faktory",))
    gearman = parse_gearman_settings("doors.gearman", doors["gearman"]) if "gearman" in doors else None
    commands = parse_command_rules("commands", tables.get("commands", {}))
    return ServiceFile(service, _parse_tasks(tables.get("tasks", {}), folder), hosts, gearman, commands)


def _parse_tasks(value: object, folder: Path | None) -> dict[str, TaskConfiguration]:
    tasks: dict[str, TaskConfiguration] = {}
    for path, name, table in _iterate_tables(value):
        one = parse_task_configuration(path, table, name=name, folder=folder, allows_command=True)
        if one.name in tasks:
            raise InvalidOptionError(join_path(path, "name"), str, "another table has this name already")
        tasks[one.name] = one
    if len(tasks) > MAX_TASK_TYPES:
        raise InvalidOptionError("tasks", len(tasks), f"there can be {MAX_TASK_TYPES:,} task types at most")
    return tasks


def _iterate_tables(value: object) -> Iterator[tuple[str, str | None, Any]]:
    """Yield path, name and table of each task type; the name is None for a table in a list."""
    if isinstance(value, Mapping):
        for name, table in value.items():
            yield join_path("tasks", name), name, table
    elif isinstance(value, list):
        for place, table in enumerate(value):
            yield f"tasks[{place}]", None, table
    else:
        remedy = "must be a table for each type, as in [tasks.resize], or a list of such tables"
        raise InvalidOptionError("tasks", type(value), remedy)


def _parse_settings(value: object, folder: Path | None) -> ServiceSettings:
    fields = read_table("service", value, _SETTINGS, later=_LATER_SETTINGS)
    redis = fields.get("redis", _DEFAULT_REDIS)
    check_text("service.redis", redis)
    host, port = parse_listen("service.listen", fields.get("listen", "127.0.0.1:8080"))
    max_body = fields.get("max_body", _DEFAULT_MAX_BODY)
    keys = _parse_keys("service.keys", fields.get("keys"), host)
    people = _parse_people("service.people", fields.get("people"), folder)
    oidc = fields.get("oidc")
    openid = None if oidc is None else parse_openid_settings("service.oidc", oidc, host=host, port=port)
    has_sign_in = people is not None or openid is not None
    return ServiceSettings(
        redis,
        host,
        port,
        max_body=_parse_max_body("service.max_body", max_body),
        keys=keys,
        dashboard=_parse_dashboard(
            "service.dashboard", fields.get("dashboard"), host, has_sign_in=has_sign_in
        ),
        people=people,
        health=parse_listen("service.health", fields["health"]) if "health" in fields else None,
        drain=_parse_drain("service.drain", fields.get("drain", 0)),
        max_inflight=_parse_max_inflight(
            "service.max_inflight", fields.get("max_inflight", _DEFAULT_MAX_INFLIGHT)
        ),
        trusted_proxies=_parse_proxies("service.trusted_proxies", fields.get("trusted_proxies", [])),
        oidc=openid,
    )


def _parse_max_inflight(path: str, value: object) -> int:
    if not is_whole(value, 1) or value > _MOST_MAX_INFLIGHT:
        raise InvalidOptionError(path, value, f"must be a whole number from 1 to {_MOST_MAX_INFLIGHT:,}")
    return value


def _parse_proxies(path: str, value: object) -> tuple[str, ...]:
    return tuple(map(str, parse_networks(path, value)))


def _parse_drain(path: str, value: object) -> float:
    seconds = parse_duration(path, value)
    if seconds > _LONGEST_DRAIN:
        raise InvalidOptionError(path, value, f"must be {_LONGEST_DRAIN} s at most")
    return seconds


def _parse_people(path: str, value: object, folder: Path | None) -> Path | None:
    if value is None:
        return None
    check_text(path, value)
    return (folder or Path()) / str(value)


def _parse_dashboard(path: str, value: object, host: str, *, has_sign_in: bool) -> bool:
    is_guarded = has_sign_in or is_loopback_host(host)
    if value is None:
        return is_guarded
    check_switch(path, value)
    if value and not is_guarded:
        remedy = 'other machines reach this address: name a file of passwords, people = "people"'
        remedy += ", which pyasynq web passwd writes, or an OpenID provider, [service.oidc]"
        raise InvalidOptionError(path, value, remedy)
    return bool(value)


def _parse_keys(path: str, value: object, host: str) -> bool:
    is_public = not is_loopback_host(host)
    if value is None:
        return is_public
    check_switch(path, value)
    if is_public and not value:
        remedy = "other machines reach this address: ask for keys, or listen on 127.0.0.1"
        raise InvalidOptionError(path, value, remedy)
    return bool(value)


def _parse_max_body(path: str, value: object) -> int:
    size = Size().read(path, value) if isinstance(value, str) else value
    Size().check(path, size)
    assert isinstance(size, int)  # noqa: S101 - it was checked
    if size > _MOST_MAX_BODY:
        raise InvalidOptionError(path, size, f"must be {_MOST_MAX_BODY:,} at most, the largest payload")
    return size
