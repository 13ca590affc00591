"""The mechanism below all methods of `Operator`: permission, call, redaction, audit, in this order.

Each public method of a subclass of `OperatorBase` is wrapped when the class is defined, so that no method can
omit a check. If a method has no row in `pyasynq.operations.verbs`, the definition raises `TypeError`.
"""

from __future__ import annotations

import functools
import inspect
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Self

from pyasynq._clock import SYSTEM_CLOCK
from pyasynq.errors import (
    OperationNotFoundError,
    PermissionDeniedError,
    QueueNotFoundError,
    ServerNotFoundError,
)
from pyasynq.operations.audit import (
    AuditEntry,
    begin_entry,
    describe_request,
    end_entry,
    noting_change,
    with_change,
)
from pyasynq.operations.guard import OperatorCall
from pyasynq.operations.permissions import Access
from pyasynq.operations.published_secrets import PublishedSecrets
from pyasynq.operations.redaction import Redactor
from pyasynq.operations.shown import HIDDEN, Shown
from pyasynq.operations.verbs import verb_named

from ._admission import Admission
from ._connections import OperatorConnections

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from types import FunctionType, TracebackType

    from pyasynq._clock import Clock
    from pyasynq._redis.clients import RedisSource
    from pyasynq.client import Client
    from pyasynq.operations.permissions import User
    from pyasynq.operations.presentation import Presentation, ShowHook
    from pyasynq.options import Duration
    from pyasynq.task_types import TaskTypeInfo

    from ._operator_inspector import OperatorInspector
    from ._recorder import AuditRecorder

_REFUSALS: Final = (
    PermissionDeniedError,
    QueueNotFoundError,
    ServerNotFoundError,
    OperationNotFoundError,
)


class OperatorBase:
    """Base class of `Operator`: its user and connections. Subclasses have the methods."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Wrap each public method of the class in the checks that its row in the table of verbs requires."""
        super().__init_subclass__(**kwargs)
        for name, method in list(vars(cls).items()):
            if not name.startswith("_") and inspect.isfunction(method):
                setattr(cls, name, _guard_method(method))

    def __init__(  # noqa: PLR0913 - each is a setting of a face
        self,
        target: RedisSource,
        user: User,
        *,
        queues: str | Sequence[str] = "*",
        read_only: bool = False,
        redactor: Redactor | None = None,
        show: ShowHook | None = None,
        types: Iterable[TaskTypeInfo] = (),
        timeout: Duration = 5.0,
        environment: str = "",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._environment = environment
        self._show = show
        self._connections = OperatorConnections(target, timeout, clock)
        self._owns_doors = True
        self._types = tuple(types)
        declared = PublishedSecrets()
        declared.learn(self._types)
        self._redactor = (
            (redactor or Redactor())
            .with_secret_fields(declared.fields_of)
            .with_secret_fields(self._connections.secrets.fields_of)
        )
        patterns = (queues,) if isinstance(queues, str) else tuple(queues)
        self._take_access(Access(user, patterns, read_only))

    def _take_access(self, access: Access) -> None:
        self._access = access
        self._shown = Shown(access, self._redactor)
        self._admission = Admission(access, self._connections.inspector)

    @property
    def user(self) -> User:
        """User on whose behalf calls are made."""
        return self._access.user

    @property
    def access(self) -> Access:
        """Permissions of the user through this operator, to show or hide buttons; calls are still checked."""
        return self._access

    @property
    def audit_is_in_log_only(self) -> bool:
        """Whether the Redis user may not write the audit, so that it goes to the log `pyasynq.audit` alone.

        It is False until Redis has refused the first entry.
        """
        return self._recorder.is_in_log_only

    @property
    def address(self) -> str:
        """Address of Redis, without the password."""
        return self._connections.inspector.address

    @property
    def redactor(self) -> Redactor:
        """The redactor, which replaces secrets."""
        return self._redactor

    @property
    def _inspector(self) -> OperatorInspector:
        return self._connections.inspector

    @property
    def _recorder(self) -> AuditRecorder:
        return self._connections.recorder

    @property
    def _client(self) -> Client:
        return self._connections.client

    def present(self, task_type: str, data: bytes | None, form: str = "") -> Presentation:
        """Return a payload or result in readable form: a tree, text or hex; `form` selects one of them."""
        from pyasynq.operations.presentation import present  # noqa: PLC0415 - most calls need none

        return present(data, form, task_type=task_type, show=self._show, redactor=self._redactor)

    def for_user(self, user: User) -> Self:
        """Return an operator for another user on these connections, which its own `close` leaves open."""
        other = type(self).__new__(type(self))
        other._connections = self._connections  # noqa: SLF001 - of the same class
        other._show = self._show  # noqa: SLF001 - as above
        other._types = self._types  # noqa: SLF001 - as above
        other._environment = self._environment  # noqa: SLF001 - as above
        other._owns_doors = False  # noqa: SLF001 - as above
        other._redactor = self._redactor  # noqa: SLF001 - as above
        other._take_access(Access(user, self._access.queues, self._access.read_only))  # noqa: SLF001 - as above
        return other

    async def note_refused_request(self, request: str, why: str, *, queues: tuple[str, ...] = ()) -> None:
        """Record in the audit that an interface, such as the dashboard, has refused a change before any call.

        Args:
            request: method and path of the request, such as `POST /queues/emails/pause`.
            why: reason for the refusal, such as that another site has sent the request (CSRF).
            queues: queues that the request concerns; empty if they are not known.
        """
        now = self._connections.clock.now().to_datetime()
        entry = describe_request(self.user, request, queues, self._redactor, now=now)
        await self._recorder.refuse(entry, why)

    async def _admit_or_note(self, call: OperatorCall) -> None:
        """Check that the user may make this call, and record a refusal in the audit."""
        if call.verb.may_show_contents:
            await self._connections.read_secrets()
        try:
            await self._admission.admit(call)
        except _REFUSALS as refusal:
            await self._recorder.refuse(self._begin_entry(call), str(refusal))
            raise

    async def _change(self, call: OperatorCall, method: Callable[..., Any]) -> Any:
        """Make a call that changes something; write an audit entry before it, and its result afterwards."""
        began = time.monotonic()
        entry = self._begin_entry(call)
        position = await self._recorder.begin(entry)
        with noting_change() as change:
            try:
                result = await method(*call.args, **call.kwargs)
            except Exception as error:
                entry = with_change(entry, change, self._redactor)
                seconds = time.monotonic() - began
                await self._recorder.end(
                    position, end_entry(entry, self._redactor, error=error, seconds=seconds)
                )
                raise
        entry = with_change(entry, change, self._redactor)
        seconds = time.monotonic() - began
        await self._recorder.end(position, end_entry(entry, self._redactor, result=result, seconds=seconds))
        return result

    async def _note_stream(self, call: OperatorCall, items: Any) -> AsyncIterator[Any]:
        """Yield the items of a stream; write an audit entry before, and the number of items afterwards."""
        began = time.monotonic()
        entry = self._begin_entry(call)
        position = await self._recorder.begin(entry)
        count, failure = 0, None
        try:
            async with aclosing(items):
                async for item in items:
                    count += 1
                    yield item
        except Exception as error:
            failure = error
            raise
        finally:
            seconds = time.monotonic() - began
            ended = end_entry(entry, self._redactor, result=count, error=failure, seconds=seconds)
            await self._recorder.end(position, ended)

    def _begin_entry(self, call: OperatorCall) -> AuditEntry:
        now = self._connections.clock.now().to_datetime()
        return begin_entry(
            self.user, call.verb, call.arguments, self._redactor, concerns=call.concerns, now=now
        )

    async def close(self) -> None:
        """Close the connections, unless they belong to another operator. Closing twice is harmless."""
        if self._owns_doors:
            await self._connections.close()

    async def __aenter__(self) -> Self:
        """Return the operator; the first call connects."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.Operator of {self._inspector!r} for {self.user.name}>"


def _guard_method(method: FunctionType) -> Callable[..., Any]:
    """Wrap a method: check the call first, then remove from its result what the user may not see.

    Raises:
        TypeError: the method has no row in the table of verbs, or lacks the argument that its row names.
    """
    verb = verb_named(method.__name__)
    OperatorCall.check(verb, method)
    # Read at the first call: a command calls one method, and reading all signatures would take longer.
    signature_of = functools.cache(inspect.signature)

    @functools.wraps(method)
    async def call_once(self: OperatorBase, *args: Any, **named: Any) -> Any:
        call = OperatorCall(verb, signature_of(method).bind(self, *args, **named))
        await self._admit_or_note(call)
        result = await (self._change(call, method) if verb.changes else method(*call.args, **call.kwargs))
        shown = self._shown(result)
        if shown is HIDDEN:
            raise QueueNotFoundError(call.queue)
        return shown

    @functools.wraps(method)
    async def stream(self: OperatorBase, *args: Any, **named: Any) -> Any:
        call = OperatorCall(verb, signature_of(method).bind(self, *args, **named))
        await self._admit_or_note(call)
        items = method(*call.args, **call.kwargs)
        if verb.is_audited:
            items = self._note_stream(call, items)
        async with aclosing(items):
            async for item in items:
                if (shown := self._shown(item)) is not HIDDEN:
                    yield shown

    return stream if inspect.isasyncgenfunction(method) else call_once
