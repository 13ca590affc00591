"""One process of the task service: its parts, its HTTP server, its signals, and its link to a supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

import click
import uvicorn

from pyasynq._exit_codes import EXIT_FAILED, EXIT_UNREACHABLE
from pyasynq._human_text import counted
from pyasynq._listener import format_url, open_listener
from pyasynq._visible_text import visible
from pyasynq.cli.garbage_collection import tune_garbage_collection
from pyasynq.cli.web_server import make_server
from pyasynq.config import ServerConfig
from pyasynq.errors import ConfigurationError, PyasynqError, RedisError
from pyasynq.events import Events, QueuesAsked, ServerStateChanged, SignOfLife
from pyasynq.gateway.api import TaskService
from pyasynq.gateway.api.service import HOSTED_END_SECONDS
from pyasynq.gateway.api.site import ServiceSite
from pyasynq.gateway.configurations import read_service_file
from pyasynq.supervisor import Health, HealthSettings, SupervisorLink, Vitals
from pyasynq.web import CredentialsFile, dashboard
from pyasynq.web.auth.secret import SigningSecret

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from pyasynq.client import ClientMiddleware
    from pyasynq.gateway.configurations import ServiceFile, ServiceSettings

_log = logging.getLogger("pyasynq.gateway")

GRACE_SECONDS: Final = 30
"""Grace period in seconds for open requests at a shutdown: longer than a settle request waits for Redis."""
END_SECONDS: Final = GRACE_SECONDS + HOSTED_END_SECONDS + 2
"""Maximum seconds of a shutdown after `service.drain`: for open requests, then for running hosted tasks."""
_NAME: Final = "service"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TRACED: Final = "PYASYNQ_OTEL_AUTO"
"""Environment variable that pyasynq's OpenTelemetry instrumentor sets under `opentelemetry-instrument`."""
_BEAT_SECONDS: Final = 1.0
_NO_KEY: Final = """\
{address} asks for API keys, and there is none yet. Make one:
  pyasynq key make admin --scope admin"""
_UNSIGNED: Final = """\
PYASYNQ_SECRET is not set: leases end with this process, and a second instance cannot settle them."""


@dataclass(frozen=True, slots=True)
class ServiceRun:
    """Parameters of one process of the task service.

    Attributes:
        path: path of the service's TOML file, which is read again at HUP.
        file: content of the file, overridden by the options of the command line.
        parts: names of the parts: `api`, `hosted`, `dashboard`.
        listener: listening socket that the processes share; if None, the process opens one.
        link: connection to the supervisor; None without one.
    """

    path: Path
    file: ServiceFile
    parts: frozenset[str]
    listener: socket.socket | None = None
    link: SupervisorLink | None = None


def choose_parts(settings: ServiceSettings, only: str | None) -> frozenset[str]:
    """Return the names of the parts that a process runs.

    Raises:
        ConfigurationError: if only the dashboard runs, without sign-in, on an address open to the network.
    """
    if only == "dashboard" and settings.is_public and not settings.has_sign_in:
        address = format_url(settings.host, settings.port)
        raise ConfigurationError(
            f"{address} can be reached from other machines, and nothing would ask who they are: "
            'name a file of passwords in service.people = "people", which pyasynq web passwd writes, '
            "or an OpenID provider in [service.oidc]"
        )
    if only is not None:
        return frozenset({only})
    return frozenset({"api", "hosted"} | ({"dashboard"} if settings.dashboard else set()))


def build_site(file: ServiceFile, parts: frozenset[str], *, shares_ports: bool = False) -> ServiceSite:
    """Build one ASGI application from the parts of a service.

    Args:
        file: settings and task types.
        parts: names of the parts.
        shares_ports: whether other processes listen on the same ports.

    Raises:
        ConfigurationError: for an invalid URL, secret or file of passwords.
    """
    settings = file.service
    api = None
    if parts & {"api", "hosted"}:
        api = TaskService(
            file,
            needs_keys=settings.keys,
            client_middleware=_find_tracing(),
            runs_hosted="hosted" in parts,
            shares_ports=shares_ports,
        )
    people = None if settings.people is None else CredentialsFile(settings.people)
    site = None
    if "dashboard" in parts:
        ways = [way for way in (people, settings.oidc) if way is not None]
        site = dashboard(
            settings.redis, auth=ways or None, service=api, trusted_proxies=settings.trusted_proxies
        )
    return ServiceSite(api, site, serves_api="api" in parts)


def _find_tracing() -> list[ClientMiddleware]:
    """Return tracing middleware for new tasks if the process runs under `opentelemetry-instrument`."""
    if not os.environ.get(_TRACED):
        return []
    from pyasynq.contrib.otel import ClientTracing  # noqa: PLC0415 - of the extra `otel`
    from pyasynq.contrib.otel.client import join_trace  # noqa: PLC0415 - as above

    return [join_trace, ClientTracing()]


def probe_settings(settings: ServiceSettings) -> HealthSettings:
    """Return port and host at which the supervisor answers probes and metrics for all processes."""
    if settings.health is None:
        return HealthSettings()
    host, port = settings.health
    return HealthSettings(port, host)


async def serve(run: ServiceRun) -> int:
    """Serve until a signal; return the exit code."""
    site = build_site(run.file, run.parts, shares_ports=run.link is not None)
    with ExitStack() as held:
        try:
            if site.api is not None:
                if "api" in run.parts:
                    await _check_keys(site.api, run.file.service)
                await site.api.start()
                if "api" in run.parts:
                    await site.api.open_doors()
            settings = run.file.service
            listener = run.listener or held.enter_context(open_listener(settings.host, settings.port))
            return await _Process(run, site, held).serve(listener)
        except RedisError as error:
            click.echo(f"Error: {visible(error)}", err=True)
            return EXIT_UNREACHABLE
        finally:
            await site.close()
            _ignore_signals()


async def _check_keys(api: TaskService, settings: ServiceSettings) -> None:
    """Refuse to start on an address that requires API keys if no key exists.

    Raises:
        ConfigurationError: without an API key.
    """
    if settings.keys and not await api.has_keys():
        raise ConfigurationError(_NO_KEY.format(address=format_url(settings.host, settings.port)))


def _ignore_signals() -> None:
    """Ignore further signals, so that they do not change the exit code of the ending process."""
    for number in _SIGNALS:
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


class _Process:
    """One process of the task service: serves the site, and obeys signals and its supervisor."""

    def __init__(self, run: ServiceRun, site: ServiceSite, held: ExitStack) -> None:
        self.events = Events()
        drain = run.file.service.drain
        self.config = ServerConfig(shutdown_timeout=END_SECONDS + drain, cancel_timeout=0)
        self._run = run
        self._site = site
        self._loop = asyncio.get_running_loop()
        self._reloads: set[asyncio.Task[None]] = set()
        self._is_ending = False
        self._server = make_server(
            uvicorn.Config(
                site,
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        metrics = None if site.api is None else site.api.metrics
        if run.link is not None:
            site.has_metrics = False
            run.link.attach(self, run.file.service.redis, {}, metrics.take_rows if metrics else None)
        else:
            vitals = Vitals(1, os.getpid())
            vitals.watch(self.events)
            render = None if metrics is None else metrics.render
            held.enter_context(Health(probe_settings(run.file.service), lambda: [vitals], render))

    async def serve(self, listener: socket.socket) -> int:
        """Serve until a signal; return the exit code."""
        settings = self._run.file.service
        host, port = listener.getsockname()[:2]
        address = format_url(host, port)
        if self._run.link is None:
            if SigningSecret().is_generated:
                click.echo(_UNSIGNED, err=True)
            click.echo(f"The task service is at {address}  (Ctrl-C stops it)", err=True)
        beats = asyncio.create_task(self._beat(), name="pyasynq service beats")
        self.events.emit(ServerStateChanged(_NAME, "active"))
        _log.info("the service is at %s with %s", address, " and ".join(sorted(self._run.parts)))
        asked = settings.host.replace("localhost", host)
        if self._run.listener is not None and settings.port and (asked, settings.port) != (host, port):
            _log.warning("service.listen is another address now: restart the service to move it")
        for number, handler in zip(_SIGNALS, (self._stop, self._stop, self._begin_reload), strict=True):
            self._loop.add_signal_handler(number, handler)
        tune_garbage_collection()
        await self._server.serve(sockets=[listener])
        beats.cancel()
        await asyncio.wait({beats, *self._reloads})
        if not self._server.started:
            return EXIT_FAILED
        _log.info("the service has ended")
        return 0

    # Methods for requests of the supervisor, called from another thread.

    def request_shutdown(self, *, when_idle: bool = False) -> None:  # noqa: ARG002 - requests always end first
        """Begin a graceful shutdown, as the first signal does."""
        self._loop.call_soon_threadsafe(self._stop_once)

    def request_stop(self) -> None:
        """Do nothing: a service cannot stop accepting requests without shutting down."""

    def request_hooks(self, event: object) -> None:
        """Do nothing: this process runs no task hooks."""

    def _stop(self) -> None:
        """Answer long polls at once, and let other requests finish; at the second call, cut them off."""
        if self._is_ending:
            _log.warning("a second signal: open requests are cut off")
            self._server.force_exit = self._server.should_exit = True
        self._stop_once()

    def _stop_once(self) -> None:
        if self._is_ending:
            return
        self._is_ending = True
        api = self._site.api
        waiting = counted(api.waiting if api is not None else 0, "waiting request")
        _log.info("the service ends: %s answered, others get %d s", waiting, GRACE_SECONDS)
        self._site.end_waits()
        self.events.emit(ServerStateChanged(_NAME, "stopped"))
        self._loop.call_later(self._run.file.service.drain, self._close_listener)

    def _close_listener(self) -> None:
        self._server.should_exit = True

    def _begin_reload(self) -> None:
        task = asyncio.create_task(self._reload(), name="pyasynq service reload")
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload(self) -> None:
        """Read the file again, and apply its task types; an invalid file changes nothing."""
        shown = visible(self._run.path)
        try:
            read = await asyncio.to_thread(read_service_file, self._run.path)
            if self._site.api is not None:
                await self._site.api.reload(read.tasks)
        except ConfigurationError as error:
            _log.error("not reloaded, and nothing has changed: %s", visible(error))
        except PyasynqError as error:
            _log.error("not reloaded as a whole; send HUP again: %s", visible(error))
        else:
            _log.info("reloaded %s: %s", shown, counted(len(read.tasks), "task type"))
            if changed := find_changed_settings(self._run.file, read):
                _log.warning("%s changed: restart the service for that", ", ".join(changed))

    async def _beat(self) -> None:
        """Report to the probes and the supervisor that the event loop runs, and whether Redis answers."""
        while True:
            api = self._site.api
            is_current = api is None or api.is_current
            if api is not None:
                api.measure()
            self.events.emit(SignOfLife(_NAME))
            self.events.emit(QueuesAsked(_NAME, 1, () if is_current else ("redis",)))
            await asyncio.sleep(_BEAT_SECONDS)


def find_changed_settings(old: ServiceFile, new: ServiceFile) -> list[str]:
    """Return the names of changed settings that need a restart; changed task types do not need one."""
    before, after = old.service, new.service
    names = [one.name for one in fields(before) if getattr(before, one.name) != getattr(after, one.name)]
    shown = dict.fromkeys("listen" if name in {"host", "port"} else name for name in names)
    tables = [name for name in ("hosts", "commands") if getattr(old, name) != getattr(new, name)]
    return [*(f"service.{name}" for name in shown), *tables]


def replace_redis(file: ServiceFile, redis: str | None) -> ServiceFile:
    """Return a file's content; a URL from the command line replaces its URL of Redis."""
    if not redis:
        return file
    return replace(file, service=replace(file.service, redis=redis))
