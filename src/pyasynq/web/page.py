"""Request and result of a page function: `PageRequest` and `Page`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from pyasynq.errors import RedisError
from pyasynq.operations import VERBS
from pyasynq.operations.guard import denied, require_everywhere, require_for_queue, require_somewhere
from pyasynq.operations.verbs import Subject
from pyasynq.web.auth.origin import FORM_FIELD, form_token
from pyasynq.web.locations import from_segment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from starlette.requests import Request

    from pyasynq.operations import Operator, User
    from pyasynq.web.auth.sessions import LoginSession
    from pyasynq.web.locations import Links
    from pyasynq.web.preferences import Preferences
    from pyasynq.web.settings import Settings
    from pyasynq.web.targets import Target

PAGE_SIZE: Final = 50
"""Maximum number of table rows on one page; further rows are on the next pages."""


@dataclass(slots=True)
class PageRequest:
    """A user's request for a page, with everything that page functions need."""

    request: Request
    settings: Settings
    target: Target
    user: User
    operator: Operator
    preferences: Preferences
    links: Links
    now: datetime
    session: LoginSession | None = None
    session_error: RedisError | None = None
    """Redis' error if it is unknown whether the session was ended; the user may then only sign out."""
    parameters: dict[str, str] | None = None
    """Path parameters by name, such as the queue; None means the path parameters of `request`."""

    @property
    def form_key(self) -> str:
        """Key to which the CSRF tokens of this viewer's forms are bound: the session's id, or the user."""
        return self.session.id if self.session else f"{self.user.login}:{self.user.name}"

    @property
    def csrf(self) -> Markup:
        """Hidden input with the CSRF token, for every form of this viewer."""
        token = form_token(self.settings.secret, self.form_key)
        return Markup('<input type="hidden" name="{}" value="{}">').format(FORM_FIELD, token)

    def require_known_session(self) -> None:
        """Check that the session of the request was not ended.

        Raises:
            RedisError: Redis cannot be reached, so it is unknown whether the session was ended.
        """
        if self.session_error is not None:
            raise self.session_error

    async def is_session_over(self) -> bool:
        """Return whether the session has ended since a stream began; False if Redis cannot be asked."""
        if self.session is None:
            return False
        if self.settings.sessions.find(self.request) is None:
            return True
        try:
            return await self.target.signed_out.has(self.session)
        except RedisError:
            # Without Redis the stream sends no data. If the session has ended, it ends once Redis is back.
            return False

    async def note_refusal(self, why: str, queue: str = "") -> None:
        """Record in the audit log that this request was refused before it called a method of the operator."""
        request = f"{self.request.method} {self.links.path}"
        await self.operator.note_refused_request(request, why, queues=(queue,) if queue else ())

    def may(self, verb: str, queue: str = "") -> bool:
        """Return whether the user has the permissions for a verb in a queue.

        Without a queue: in all queues if the verb concerns everything, such as API keys; else in one or more.
        Decides whether a button is shown; the operator checks the permissions again on submit.
        """
        row, access = VERBS.get(verb), self.operator.access
        if row is None or (row.changes and access.read_only):
            return False
        if queue:
            return all(access.may(permission, queue) for permission in row.needed)
        may = access.may_everywhere if row.subject is Subject.EVERYTHING else access.may_somewhere
        return all(may(permission) for permission in row.needed)

    def require(self, verb: str, queue: str) -> None:
        """Check a permission before showing a confirmation form; the operator checks again on submit.

        Raises:
            QueueNotFoundError: the user does not see the queue.
            PermissionDeniedError: the user may not do this, or the dashboard is read-only.
        """
        row, access = VERBS[verb], self.operator.access
        require_for_queue(access, row, queue)
        if row.changes and access.read_only:
            raise denied(access, row, queue)

    def require_somewhere(self, verb: str) -> None:
        """Check that the user may use this verb for at least one queue, existing or not.

        Raises:
            PermissionDeniedError: the user may do this in none of the queues, or the dashboard is read-only.
        """
        row, access = VERBS[verb], self.operator.access
        require_somewhere(access, row)
        if row.changes and access.read_only:
            raise denied(access, row, "")

    def require_everywhere(self, verb: str) -> None:
        """Check that the user may use this verb for all queues.

        Raises:
            PermissionDeniedError: the user may not, or the dashboard is read-only.
        """
        row, access = VERBS[verb], self.operator.access
        require_everywhere(access, row)
        if row.changes and access.read_only:
            raise denied(access, row, "")

    @property
    def query(self) -> dict[str, str]:
        """The query parameters of the URL; the last value counts if a name occurs more than once."""
        return self.links.query

    def at(self, links: Links, parameters: dict[str, str]) -> PageRequest:
        """Return a request of the same viewer for another page."""
        return replace(self, links=links, parameters=parameters)

    def name(self, parameter: str) -> str:
        """Return the value of a path parameter, decoded."""
        given = self.request.path_params if self.parameters is None else self.parameters
        return from_segment(given[parameter])

    def number(self, parameter: str, default: int, most: int) -> int:
        """Return a query parameter as a number, clamped to 1 to `most`; the default if it is not a number."""
        text = self.query.get(parameter, "")
        return min(max(int(text), 1), most) if text.isdecimal() and len(text) < 10 else default

    def choice(self, parameter: str, choices: tuple[str, ...]) -> str:
        """Return a query parameter if it is one of the choices; otherwise the first choice."""
        text = self.query.get(parameter, "")
        return text if text in choices else choices[0]


@dataclass(frozen=True, slots=True)
class Page:
    """Result of a page function: a template and its view model."""

    template: str
    title: str
    """Title, which begins with the state: `(1,120) archived · emails`."""
    section: str
    """Name of the current entry of the navigation."""
    view: Any = None
    status: int = 200
    is_live: bool = False
    """Whether cells and rows of the page are updated live."""
    headers: dict[str, str] = field(default_factory=dict)


if TYPE_CHECKING:
    PageFunction = Callable[[PageRequest], Awaitable[Page]]
