"""People whom an OpenID provider signs in: their roles by groups, and their sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._extras import explain_missing
from pyasynq._sign_in.group_roles import GroupRoles
from pyasynq._visible_text import visible
from pyasynq.operations import User
from pyasynq.web.auth.pending_login import PendingLogins
from pyasynq.web.auth.sign_in_error import SignInError

if TYPE_CHECKING:
    from pyasynq._sign_in.openid_options import OpenIdConnect
    from pyasynq.web.auth.openid_provider import OpenIdProvider
    from pyasynq.web.auth.secret import SigningSecret
    from pyasynq.web.auth.sessions import LoginSession, Sessions

OPENID_LOGIN: Final = "oidc"
"""Authentication method of people who sign in at an OpenID provider, for the audit log."""


class OpenIdPeople:
    """People of one OpenID provider, with their roles and sessions.

    Args:
        options: the provider and its groups.
        secret: signs the cookies of sign-ins that have begun.

    Raises:
        ModuleNotFoundError: without the extra `oidc`.
    """

    def __init__(self, options: OpenIdConnect, secret: SigningSecret) -> None:
        self._options = options
        self._groups = GroupRoles(options.roles, options.default_role, options.queues)
        self.provider = import_provider()(options)
        self.pending = PendingLogins(secret, options.fingerprint)
        self.label = visible(options.label)
        """Name of the provider that people see."""

    def began(self, session: LoginSession) -> bool:
        """Return whether a session began by a sign-in at this provider."""
        return session.fingerprint == self._options.fingerprint

    def begin_session(self, sessions: Sessions, name: str, groups: tuple[str, ...]) -> LoginSession:
        """Return a new session for a person.

        Raises:
            SignInError: no group has a role, or the groups with a role are too many for a cookie.
        """
        if self._groups.find(groups) is None:
            text = f"You are signed in as {visible(name)}, and none of your groups may use this dashboard."
            raise SignInError(f"{text} Ask its administrator.", status=403, name=name)
        session = sessions.begin(name, self._options.fingerprint, self._groups.select_known(groups))
        if not sessions.fits(session):
            raise SignInError("You are in too many groups of this dashboard.", status=403, name=name)
        return session

    def find_user(self, session: LoginSession, address: str) -> User | None:
        """Return the person of a session; None if their groups have no role any more."""
        found = self._groups.find(session.groups)
        if found is None:
            return None
        role, patterns = found
        return User.with_role(session.name, role, queues=patterns, login=OPENID_LOGIN, address=address)

    def callback_url(self, target: str) -> str:
        """Return the redirect URI for one Redis of the dashboard; `target` is the name of that Redis."""
        return self._options.callback_url(target)


def import_provider() -> type[OpenIdProvider]:
    """Import the class `OpenIdProvider`, and return it.

    Raises:
        ModuleNotFoundError: without the extra `oidc`, which the error names.
    """
    try:
        from pyasynq.web.auth.openid_provider import OpenIdProvider  # noqa: PLC0415 - of the extra `oidc`
    except ModuleNotFoundError as error:
        raise explain_missing(error, "oidc") from None
    return OpenIdProvider
