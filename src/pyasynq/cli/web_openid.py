"""Options of `pyasynq web` for sign-in at an OpenID provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._listener import format_url

if TYPE_CHECKING:
    from pyasynq.web import OpenIdConnect

_OPTIONS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("--oidc-issuer", {"metavar": "URL", "help": "People sign in at this OpenID provider; see the docs."}),
    ("--oidc-client-id", {"metavar": "ID", "help": "Id of the dashboard at the provider."}),
    ("--oidc-url", {"metavar": "URL", "help": "Where browsers reach the dashboard."}),
    ("--oidc-role", {"metavar": "GROUP=ROLE", "multiple": True, "help": "Role of a group."}),
    ("--oidc-queues", {"metavar": "GROUP=PATTERN", "multiple": True, "help": "Queues that a group sees."}),
    ("--oidc-scope", {"metavar": "SCOPE", "multiple": True, "help": "Scopes to ask for; openid always is."}),
    ("--oidc-user-claim", {"metavar": "CLAIM", "default": "", "help": "Claim that names the person."}),
    (
        "--oidc-groups-claim",
        {"metavar": "CLAIM", "default": "groups", "show_default": True, "help": "Claim with the groups."},
    ),
    ("--oidc-name", {"metavar": "NAME", "default": "", "help": "Name of the provider on the login page."}),
)


def add_openid_options(command: Any) -> Any:
    """Add the options for an OpenID provider to a command."""
    for name, settings in reversed(_OPTIONS):
        command = click.option(name, **settings)(command)
    return command


def make_openid(options: dict[str, Any], loopback: frozenset[str]) -> OpenIdConnect | None:
    """Return the OpenID provider that the options describe; None without `--oidc-issuer`.

    Args:
        options: the command's options.
        loopback: loopback host names. With such a host, `--oidc-url` defaults to the dashboard's address.

    Raises:
        click.UsageError: if an option is missing or malformed.
        InvalidOptionError: if a value is invalid.
        ModuleNotFoundError: if the extra `oidc` is missing.
    """
    if not options["oidc_issuer"]:
        return None
    from pyasynq.web import OpenIdConnect  # noqa: PLC0415 - the extra `web` is needed here only
    from pyasynq.web.auth.openid_people import import_provider  # noqa: PLC0415 - as above

    import_provider()
    url = options["oidc_url"]
    if not url and options["host"] in loopback and options["port"]:
        url = format_url(options["host"], options["port"]) + options["prefix"].rstrip("/")
    for name, value in (
        ("--oidc-client-id", options["oidc_client_id"]),
        ("--oidc-url", url),
        ("--oidc-role", options["oidc_role"]),
    ):
        if not value:
            raise click.UsageError(f"--oidc-issuer also needs {name}")
    scopes = options["oidc_scope"] or ("profile", "email")
    queues: dict[str, tuple[str, ...]] = {}
    for group, pattern in _split_pairs("--oidc-queues", options["oidc_queues"]):
        queues[group] = (*queues.get(group, ()), pattern)
    return OpenIdConnect(
        issuer=options["oidc_issuer"],
        client_id=options["oidc_client_id"],
        url=url,
        roles=dict(_split_pairs("--oidc-role", options["oidc_role"])),
        queues=queues,
        user_claim=options["oidc_user_claim"],
        groups_claim=options["oidc_groups_claim"],
        name=options["oidc_name"],
        scopes=tuple(dict.fromkeys(("openid", *scopes))),
    )


def _split_pairs(option: str, texts: tuple[str, ...]) -> list[tuple[str, str]]:
    """Split each `GROUP=VALUE` at its last `=`, because the name of a group may contain `=`, as in LDAP."""
    pairs = [(text.rpartition("=")[0], text.rpartition("=")[2]) for text in texts]
    if not all(group and value for group, value in pairs):
        raise click.UsageError(f"each {option} is written GROUP=VALUE")
    return pairs
