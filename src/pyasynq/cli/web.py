"""The commands `pyasynq web`, `pyasynq web passwd` and `pyasynq web token`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from pyasynq._listener import format_url, open_listener
from pyasynq._visible_text import visible
from pyasynq.cli.event_loop import run_until_done
from pyasynq.cli.garbage_collection import tune_garbage_collection
from pyasynq.cli.log_options import log_options, set_up_logging
from pyasynq.cli.web_openid import add_openid_options, make_openid
from pyasynq.errors import ConfigurationError, PyasynqError

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

    import uvicorn

    from pyasynq.app import App
    from pyasynq.web import Dashboard, OpenIdConnect

_URL_VARIABLE: Final = "PYASYNQ_REDIS_URL"
_DEFAULT_URL: Final = "redis://127.0.0.1:6379/0"
_UNREACHABLE: Final = 5
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_ROLES: Final = ("viewer", "operator", "admin")
_CONTAINER_VARIABLE: Final = "PYASYNQ_CONTAINER"
_WAYS: Final = """\
{host} can be reached from other machines, and nothing would ask who they are. Choose one:
  --auth people            passwords from a file; write it with  pyasynq web passwd NAME --auth people
  --oidc-issuer URL        an OpenID provider signs people in; see docs/dashboard.md
  --proxy 10.0.0.0/8       a proxy there signs people in and names them in X-Forwarded-User
  --no-auth viewer         the network is guarded by other means, and everyone may look"""


def _add_asynqmon_options(command: Any) -> Any:
    for name, variable, text in reversed(_ASYNQMON_OPTIONS):
        command = click.option(f"--{name}", envvar=variable, metavar="TEXT", help=text)(command)
    return command


_ASYNQMON_OPTIONS: Final = (
    ("redis-url", "REDIS_URL", "As asynqmon: URL of Redis."),
    ("redis-addr", "REDIS_ADDR", "As asynqmon: host and port of Redis."),
    ("redis-db", "REDIS_DB", "As asynqmon: number of the database."),
    ("redis-password", "REDIS_PASSWORD", "As asynqmon: password of Redis."),
    ("redis-tls", "REDIS_TLS", "As asynqmon: name of the server in its certificate; turns TLS on."),
    ("redis-cluster-nodes", "REDIS_CLUSTER_NODES", "As asynqmon: addresses of a cluster, with commas."),
)
_LENGTH: Final[dict[str, Any]] = {
    "type": click.IntRange(0),
    "default": 200,
    "show_default": True,
    "metavar": "CHARACTERS",
    "help": "As asynqmon: longest text in its API.",
}


@click.group(invoke_without_command=True)
@click.option("--redis", "urls", metavar="URL", multiple=True, help="Where Redis is; repeated as NAME=URL.")
@click.option("--app", metavar="MODULE:APP", help="Your app: fields for new tasks, and names of secrets.")
@click.option("--redact", metavar="MODULE:FUNCTION", help="Replaces secrets of a task; see the docs.")
@click.option("--show", metavar="MODULE:FUNCTION", help="Shows payloads in a format of yours; see the docs.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", envvar="PORT", type=click.IntRange(0, 65_535), default=8080, show_default=True)
@click.option("--auth", "credentials", metavar="FILE", help="Passwords and tokens; see `pyasynq web passwd`.")
@add_openid_options
@click.option("--proxy", "proxies", metavar="NETWORK", multiple=True, help="A proxy there names the user.")
@click.option("--proxy-role", "proxy_roles", metavar="GROUP=ROLE", multiple=True, help="Role of a group.")
@click.option(
    "--trust-proxy", "trusted", metavar="NETWORK", multiple=True, help="Believe X-Forwarded-* from there."
)
@click.option("--no-auth", type=click.Choice(_ROLES), help="Everyone has this role.")
@click.option("--read-only", envvar="READ_ONLY", is_flag=True, help="Refuse every change.")
@click.option("--queues", metavar="PATTERN", multiple=True, help="Queues that are shown; may be repeated.")
@click.option("--title", default="pyasynq", show_default=True, help="Name in the corner.")
@click.option("--environment", metavar="NAME[:COLOR]", help="Badge: red, amber, green or blue.")
@click.option("--prefix", default="", metavar="PATH", help="Path below which a proxy serves the dashboard.")
@click.option("--trace-url", default="", metavar="URL", help="Address of a trace, with {trace_id} in it.")
@click.option(
    "--prometheus-addr",
    envvar="PROMETHEUS_ADDR",
    default="",
    metavar="URL",
    help="As asynqmon: Prometheus for the charts of its API.",
)
@click.option("--max-payload-length", envvar="MAX_PAYLOAD_LENGTH", **_LENGTH)
@click.option("--max-result-length", envvar="MAX_RESULT_LENGTH", **_LENGTH)
@click.option("--demo", is_flag=True, help="Show the demo, on a Valkey of its own.")
@_add_asynqmon_options
@log_options
@click.pass_context
def web(context: click.Context, /, **options: Any) -> None:
    """Serve the dashboard for browsers.

    asynqmon's flags and variables work too. Without authentication it listens on this machine only.

    Exit codes: 0 stopped; 1 it could not start; 2 wrong usage; 5 Redis does not answer.
    """
    if context.invoked_subcommand is not None:
        return
    import pyasynq.web  # noqa: F401, PLC0415 - a missing extra is told before anything else, and not by --help

    if options["demo"]:
        _show_demo(context, options)
        return
    set_up_logging(options)
    openid = make_openid(options, _LOOPBACK)
    code = _find_code(options)
    targets = _find_targets(options, code["app"])
    is_guessed = targets == {"": _DEFAULT_URL} and not options["urls"]
    _check_reachable(targets, is_guessed=is_guessed)
    with _choose_authenticators(options, openid) as auth:
        _serve(_make_dashboard(targets, auth, code, options), options)


def _find_code(options: dict[str, Any]) -> dict[str, Any]:
    """Return the user's app, redactor and presentation (`show`) by name; None for an option that is missing.

    Raises:
        ConfigurationError: for a reference that does not exist, or a module that cannot be imported.
    """
    from pyasynq.cli.locate import find_function, load_app  # noqa: PLC0415 - only with these options
    from pyasynq.operations import Redactor  # noqa: PLC0415 - as above

    return {
        "app": load_app(options["app"], (), None) if options["app"] else None,
        "redactor": Redactor(hook=find_function(options["redact"])) if options["redact"] else None,
        "show": find_function(options["show"]) if options["show"] else None,
    }


def _make_dashboard(
    targets: dict[str, str], auth: Any, code: dict[str, Any], options: dict[str, Any]
) -> Dashboard:
    from pyasynq.web import dashboard  # noqa: PLC0415 - the extra `web` is needed here only

    name, _, color = (options["environment"] or "").partition(":")
    return dashboard(
        targets[""] if set(targets) == {""} else targets,
        auth=auth,
        **code,
        trusted_proxies=options["trusted"],
        read_only=options["read_only"],
        queues=options["queues"] or "*",
        title=options["title"],
        environment=(name, color or "none") if name else None,
        trace_url=options["trace_url"],
        prometheus=options["prometheus_addr"],
        max_payload_length=options["max_payload_length"],
        max_result_length=options["max_result_length"],
    )


def _serve(site: Dashboard, options: dict[str, Any]) -> None:
    import uvicorn  # noqa: PLC0415 - as above

    from pyasynq.cli.web_server import make_server  # noqa: PLC0415 - as above

    host, port, prefix = options["host"], options["port"], options["prefix"].rstrip("/")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        # uvicorn's `root_path` does not fit: some proxies pass the prefix on, and others strip it.
        await site({**scope, "root_path": prefix} if prefix else scope, receive, send)

    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # `--proxy` and `--trust-proxy` decide which proxies are trusted
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    server = make_server(config)
    with open_listener(host, port) as listener:
        address = format_url(host, listener.getsockname()[1])
        click.echo(f"The dashboard is at {address}{prefix}/  (Ctrl-C stops it)", err=True)
        tune_garbage_collection()
        run_until_done(_run_until_signal(server, site, listener))
    if not server.started:
        raise SystemExit(1)


async def _run_until_signal(server: uvicorn.Server, site: Dashboard, listener: socket.socket) -> None:
    """Serve until INT or TERM; a second signal also cuts off open requests."""

    def stop() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        await server.serve(sockets=[listener])
    finally:
        await site.aclose()


def _find_targets(options: dict[str, Any], app: App | None) -> dict[str, str]:
    """Return the URLs of Redis by name; a single URL has an empty name.

    Without an option it is the app's URL or, if that has none, the URL of the environment or the default.
    """
    urls: Sequence[str] = options["urls"] or _build_asynqmon_urls(options)
    if not urls and app is not None:
        with contextlib.suppress(ConfigurationError):  # the app has no URL
            urls = [app.url]
    if not urls:
        urls = [os.environ.get(_URL_VARIABLE) or _DEFAULT_URL]
    if len(urls) == 1 and "=" not in urls[0].partition("://")[0]:
        return {"": urls[0]}
    targets = {}
    for text in urls:
        name, separator, url = text.partition("=")
        if not separator or "://" in name:
            raise click.UsageError("of several --redis each is written NAME=URL")
        targets[name] = url
    return targets


def _build_asynqmon_urls(options: dict[str, Any]) -> list[str]:
    """Return the URLs in asynqmon's options: cluster nodes override the URL, which overrides the address."""
    password = f":{quote(options['redis_password'], safe='')}@" if options["redis_password"] else ""
    tls = options["redis_tls"]
    if options["redis_cluster_nodes"]:
        scheme = "rediss-cluster" if tls else "redis-cluster"
        return [f"{scheme}://{password}{options['redis_cluster_nodes']}"]
    if options["redis_url"]:
        return [options["redis_url"]]
    if options["redis_addr"]:
        scheme = "rediss" if tls else "redis"
        return [f"{scheme}://{password}{options['redis_addr']}/{options['redis_db'] or 0}"]
    return []


def _check_reachable(targets: dict[str, str], *, is_guessed: bool) -> None:
    from pyasynq.app import App  # noqa: PLC0415 - --help does without

    for url in targets.values():
        app = App(url)
        try:
            app.ping_sync()
        except PyasynqError as error:
            hint = "; name it with --redis, or look around with --demo" if is_guessed else ""
            click.echo(f"Error: {visible(error)}{hint}", err=True)
            raise SystemExit(_UNREACHABLE) from error
        finally:
            app.close_sync()


@contextlib.contextmanager
def _choose_authenticators(options: dict[str, Any], openid: OpenIdConnect | None) -> Iterator[Any]:
    """Yield the authenticators that the options choose; None if they choose none and the host is loopback.

    In a container, a generated password replaces missing authenticators for any other host.

    Raises:
        click.UsageError: outside a container, for a host that is not loopback and has no authenticators.
    """
    from pyasynq.web import CredentialsFile, Everyone, TrustedProxy  # noqa: PLC0415 - as above

    found: list[Any] = []
    if options["credentials"]:
        found.append(CredentialsFile(options["credentials"]))
    if openid is not None:
        found.append(openid)
    if options["proxies"]:
        roles = dict(text.partition("=")[::2] for text in options["proxy_roles"])
        found.append(TrustedProxy(options["proxies"], roles=roles, default_role=None if roles else "viewer"))
    if options["no_auth"]:
        found.append(Everyone(options["no_auth"]))
    if found or options["host"] in _LOOPBACK:
        yield found or None
        return
    if not os.environ.get(_CONTAINER_VARIABLE):
        raise click.UsageError(_WAYS.format(host=options["host"]))
    with _generate_password() as file:
        yield [CredentialsFile(file)]


@contextlib.contextmanager
def _generate_password() -> Iterator[str]:
    """Yield a credentials file with one administrator; print a password derived from the signing secret."""
    import tempfile  # noqa: PLC0415 - in containers only

    from pyasynq.web.auth.credentials import password_line  # noqa: PLC0415 - as above
    from pyasynq.web.auth.secret import SigningSecret  # noqa: PLC0415 - as above

    password = SigningSecret().sign("web admin password", b"admin")[:20]
    with tempfile.TemporaryDirectory(prefix="pyasynq-web-") as folder:
        file = Path(folder, "people")
        file.touch(0o600)
        file.write_text(password_line("admin", "admin", "*", password) + "\n", "utf-8")
        click.echo(f"Sign in as admin with the password {password}", err=True)
        yield str(file)


def _show_demo(context: click.Context, options: dict[str, Any]) -> None:
    from pyasynq.cli.demo.command import demo  # noqa: PLC0415 - as above

    context.invoke(demo, folder=None, no_kill=False, as_json=False, keep=True, port=options["port"])


@web.command()
@click.argument("name")
@click.option(
    "--auth", "file", metavar="FILE", default="people", show_default=True, help="The file to write."
)
@click.option(
    "--role", type=click.Choice(_ROLES), default="viewer", show_default=True, help="What they may do."
)
@click.option("--queues", default="*", show_default=True, help="Patterns of queues, with commas between.")
def passwd(name: str, file: str, role: str, queues: str) -> None:
    """Set the password of a person in a credentials file."""
    from pyasynq.web.auth.credentials import password_line  # noqa: PLC0415 - as above

    password = _ask_password()
    _write_line(Path(file), f"password:{name}:", password_line(name, role, queues, password))
    click.echo(f"{visible(name)} is {role} now. Running dashboards know it with the next request.", err=True)


@web.command()
@click.argument("name")
@click.option(
    "--auth", "file", metavar="FILE", default="people", show_default=True, help="The file to write."
)
@click.option(
    "--role", type=click.Choice(_ROLES), default="viewer", show_default=True, help="What they may do."
)
@click.option("--queues", default="*", show_default=True, help="Patterns of queues, with commas between.")
@click.option(
    "--days", type=click.IntRange(1, 3_660), default=90, show_default=True, help="How long it is good."
)
def token(name: str, file: str, role: str, queues: str, days: int) -> None:
    """Print a new bearer token for a program, and store its hash in a credentials file."""
    from pyasynq.web.auth.credentials import make_token, token_line  # noqa: PLC0415 - as above

    text = make_token()
    expires = datetime.now(UTC).date() + timedelta(days=days)
    _write_line(Path(file), f"token:{name}:", token_line(name, role, queues, expires, text))
    click.echo(f"It is good until {expires.isoformat()}, and is shown this once:", err=True)
    click.echo(text)


def _ask_password() -> str:
    if sys.stdin.isatty():
        password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    if len(password) < 8:
        raise click.UsageError("a password needs at least 8 characters")
    return password


def _write_line(file: Path, beginning: str, line: str) -> None:
    """Replace all lines that begin with a prefix by one line; only the owner may read the file."""
    try:
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        kept = [one for one in lines if not one.startswith(beginning)]
        new = file.with_name(f".{file.name}.new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write("\n".join([*kept, line]) + "\n")
        new.replace(file)
    except OSError as error:
        raise ConfigurationError(f"the credentials file cannot be written: {error}") from error
