"""Settings of one dashboard, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._visible_text import visible
from pyasynq.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyasynq.operations import Redactor, ShowHook
    from pyasynq.task_types import TaskTypeInfo
    from pyasynq.web.asynqmon.shapes import TextLimits
    from pyasynq.web.auth import Authenticator, CredentialsFile
    from pyasynq.web.auth.openid_people import OpenIdPeople
    from pyasynq.web.auth.rate_limit import RateLimit
    from pyasynq.web.auth.secret import SigningSecret
    from pyasynq.web.auth.sessions import Sessions
    from pyasynq.web.auth.signed_cookie import SignedCookie
    from pyasynq.web.configured_types import CommandKnowledge
    from pyasynq.web.notice import Notice

COLORS: Final = ("red", "amber", "green", "blue", "none")


@dataclass(frozen=True, slots=True)
class Environment:
    """Name and color of the environment, such as production: the badge at the top of each page."""

    name: str
    color: str = "none"

    @classmethod
    def of(cls, given: str | tuple[str, str] | None) -> Environment | None:
        """Parse the option `environment`: a name, a name and a colour, or None.

        Raises:
            InvalidOptionError: for an unknown colour.
        """
        if given is None or given == "":
            return None
        name, color = (given, "none") if isinstance(given, str) else given
        if color not in COLORS:
            raise InvalidOptionError("environment", color, f"the colour is one of {', '.join(COLORS)}")
        return cls(visible(name), color)


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked arguments of a dashboard."""

    title: str
    environment: Environment | None
    authenticators: tuple[Authenticator, ...]
    credentials: CredentialsFile | None
    """File with the passwords of people; None if sign-in by password is off."""
    openid: OpenIdPeople | None
    """Sign-in at an OpenID provider; None if there is none."""
    trusted_proxies: Sequence[str]
    """Networks of proxies whose headers report scheme, host, prefix and client of a request."""
    read_only: bool
    queues: tuple[str, ...]
    redactor: Redactor | None
    show: ShowHook | None
    """Function of the application that presents payloads and results in the application's own formats."""
    types: tuple[TaskTypeInfo, ...]
    """Task types of the application; they override what workers have published."""
    commands: CommandKnowledge | None
    """Task service of this process, which knows the params of its commands; None if there is none."""
    secret: SigningSecret
    sessions: Sessions
    notices: SignedCookie[Notice]
    """Cookie of the notice that the next page shows once (flash message)."""
    login_tries: RateLimit
    """Rate limit of login attempts for one name from one address."""
    address_tries: RateLimit
    """Rate limit of login attempts for all names from one address."""
    trace_url: str
    """URL template of a trace, with the placeholder `{trace_id}`; empty when there is none."""
    text_limits: TextLimits
    """Maximum length, in characters, of payloads and of results in the API of asynqmon."""
    prometheus: str
    """Address of the Prometheus server that the charts of asynqmon query; empty for none."""
    api_requests: RateLimit | None
    """Rate limit of API requests of one user from one address; None for no limit."""
    names: tuple[str, ...]
    """Names of the Redis instances that the dashboard shows."""

    @property
    def has_login_page(self) -> bool:
        """Whether people can sign in on a page of the dashboard."""
        return self.credentials is not None or self.openid is not None


def name_targets(redis: object) -> Mapping[str, object]:
    """Return Redis instances by name; the name of a single one is empty.

    Raises:
        InvalidOptionError: for an empty mapping, or a name that cannot be part of an address.
    """
    if not isinstance(redis, dict):
        return {"": redis}
    for name in redis:
        if not isinstance(name, str) or not name or not name.replace("-", "").replace("_", "").isalnum():
            raise InvalidOptionError("redis", name, "a name is letters, digits, - and _")
    if not redis:
        raise InvalidOptionError("redis", redis, "at least one Redis is needed")
    return redis


def check_prometheus(address: str) -> str:
    """Check the address of a Prometheus server, and return it.

    Raises:
        InvalidOptionError: for an address that is not `http://` or `https://`.
    """
    if address and not address.startswith(("http://", "https://")):
        raise InvalidOptionError("prometheus", address, "must begin with http:// or https://")
    return address
