"""Settings of the OpenID provider at which people sign in to the dashboard of the service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyasynq._checks import check_text
from pyasynq._sign_in.openid_options import OpenIdConnect
from pyasynq.errors import InvalidOptionError

from .field_names import join_path, read_table
from .listen_address import is_loopback_host
from .secret_reference import parse_secret_reference

_TEXTS: Final = ("issuer", "client_id", "url", "default_role", "user_claim", "groups_claim", "name")
_FIELDS: Final = (*_TEXTS, "client_secret", "roles", "queues", "scopes")
_DEFAULT_SCOPES: Final = ("profile", "email")


def parse_openid_settings(path: str, value: object, *, host: str, port: int) -> OpenIdConnect:
    """Parse the settings of the OpenID provider from their table in the service's file.

    Args:
        path: dotted path of the table in the file, for error messages.
        value: the table.
        host: address on which the service listens. A loopback address, with the port, is the default `url`.
        port: port on which the service listens; 0 for any free one.

    Raises:
        InvalidOptionError: for an invalid field; the message names the field and the remedy.
        ConfigurationError: the secret of the client is missing.
    """
    fields = read_table(path, value, _FIELDS)
    options: dict[str, Any] = {name: fields[name] for name in _TEXTS if name in fields}
    for name, text in options.items():
        check_text(join_path(path, name), text)
    if port and is_loopback_host(host):
        options.setdefault("url", f"http://{f'[{host}]' if ':' in host else host}:{port}")
    for name in ("issuer", "client_id", "url"):
        if name not in options:
            raise InvalidOptionError(join_path(path, name), type(None), "is needed to sign people in")
    if "client_secret" in fields:
        place = join_path(path, "client_secret")
        options["client_secret"] = parse_secret_reference(place, fields["client_secret"]).read()
    roles = _read_groups(join_path(path, "roles"), fields.get("roles", {}))
    options["roles"] = {group: _read_text(place, role) for group, (place, role) in roles.items()}
    queues = _read_groups(join_path(path, "queues"), fields.get("queues", {}))
    options["queues"] = {group: _read_texts(place, patterns) for group, (place, patterns) in queues.items()}
    scopes = _read_texts(join_path(path, "scopes"), fields.get("scopes", _DEFAULT_SCOPES))
    options["scopes"] = tuple(dict.fromkeys(("openid", *scopes)))
    try:
        return OpenIdConnect(**options)
    except InvalidOptionError as error:
        # An unknown role is an error of the option `role`, which this table calls `roles`.
        name = error.option if error.option in _FIELDS else "roles"
        raise InvalidOptionError(join_path(path, name), error.value, error.remedy) from None


def _read_groups(path: str, value: object) -> dict[str, tuple[str, Any]]:
    """Return the entries of a table by group of people: the path in the file, for errors, and the value."""
    if not isinstance(value, Mapping):
        raise InvalidOptionError(path, type(value), "must be a table of groups, such as { ops = ... }")
    return {str(group): (join_path(path, str(group)), content) for group, content in value.items()}


def _read_text(path: str, value: object) -> str:
    check_text(path, value)
    return str(value)


def _read_texts(path: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, (list, tuple)):
        raise InvalidOptionError(path, type(value), "must be text or a list of texts")
    return tuple(_read_text(f"{path}[{place}]", one) for place, one in enumerate(value))
