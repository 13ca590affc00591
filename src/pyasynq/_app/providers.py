"""Dependency injection: each scope calls a provider once, and closes the provider's value at its end."""

from __future__ import annotations

import asyncio
import inspect
import typing
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq._call_shape import describe_function
from pyasynq.context import TaskContext, context
from pyasynq.control import ControlFlow, find_control
from pyasynq.dependencies import Dependency
from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping


_WRONG_YIELDS: Final = "generator didn't "
"""Beginning of contextlib's errors about a generator that yields never, or more than once."""

_CONTEXT_MANAGERS: Final = (AbstractContextManager, AbstractAsyncContextManager)
_CONTEXT_MANAGER_NAMES: Final = frozenset(
    {"AbstractContextManager", "AbstractAsyncContextManager", "ContextManager", "AsyncContextManager"}
)
"""Names of these types, for annotations that are text and that only type checkers can resolve."""


class _Provider(NamedTuple):
    """An inspected provider function.

    Attributes:
        function: the provider; it returns the value, an awaitable of it, or a context manager.
        needs: the dependencies among its parameters, by name.
        context: names of the parameters that take the `TaskContext`.
        is_entered: whether it is a generator, or is annotated to return a context manager, which is entered
            and left. Other values are passed on unchanged, except those that `_is_of_contextlib` names:
            a pool may be a context manager too, and is shared.
    """

    function: Callable[..., Any]
    needs: Mapping[str, Dependency]
    context: tuple[str, ...]
    is_entered: bool


def find_dependencies(function: Callable[..., Any]) -> dict[str, Dependency]:
    """Return the parameters of a handler that are dependencies, by name.

    Raises:
        ConfigurationError: for a provider that cannot be called, or that outlives its own dependency.
    """
    parameters = inspect.signature(function).parameters.values()
    found = {one.name: one.default for one in parameters if isinstance(one.default, Dependency)}
    for dependency in found.values():
        _check(dependency, ())
    return found


def _check(dependency: Dependency, path: tuple[Callable[..., Any], ...]) -> None:
    name = describe_function(dependency.provider)
    if dependency.provider in path:
        raise ConfigurationError(f"the provider {name} depends on itself")
    provider = _inspect(dependency.provider)
    for one in provider.needs.values():
        if dependency.per == "worker" and one.per != "worker":
            raise ConfigurationError(
                f"the provider {name} lives as long as its worker, and depends on "
                f"{describe_function(one.provider)}, which lives as long as an attempt: give both one life"
            )
        _check(one, (*path, dependency.provider))
    if provider.context and dependency.per == "worker":
        raise ConfigurationError(
            f"the provider {name} takes a TaskContext, which lives as long as an attempt: "
            'depend on it without per="worker"'
        )


def _inspect(function: Callable[..., Any]) -> _Provider:
    """Inspect the parameters of a provider function."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"the parameters of the provider {describe_function(function)} cannot be read: {error}"
        ) from None
    parameters = signature.parameters
    needs = {name: one.default for name, one in parameters.items() if isinstance(one.default, Dependency)}
    of_context = tuple(name for name, one in parameters.items() if _takes_context(one))
    for name, one in parameters.items():
        is_given = name in needs or name in of_context or one.default is not inspect.Parameter.empty
        if not is_given and one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}:
            raise ConfigurationError(
                f"the provider {describe_function(function)} has the parameter {name!r}, which is neither a "
                "dependency nor a TaskContext: give it a default"
            )
    if inspect.isasyncgenfunction(function):
        function = asynccontextmanager(function)
    elif inspect.isgeneratorfunction(function):
        function = contextmanager(function)
    plain = inspect.unwrap(function)
    is_generator = inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)
    is_entered = is_generator or (
        _is_context_manager(signature.return_annotation) and not inspect.iscoroutinefunction(plain)
    )
    return _Provider(function, needs, of_context, is_entered)


def _is_context_manager(annotation: Any) -> bool:
    """Return whether a return annotation is `AbstractContextManager` or its asynchronous counterpart."""
    if isinstance(annotation, str):
        return annotation.partition("[")[0].rpartition(".")[2] in _CONTEXT_MANAGER_NAMES
    return (typing.get_origin(annotation) or annotation) in _CONTEXT_MANAGERS


def _is_of_contextlib(value: object) -> bool:
    """Return whether a value is an unentered context manager of contextlib, such as `closing`.

    An exit stack is not: entering gives the stack itself, which may be shared.
    """
    return type(value).__module__ == "contextlib" and not isinstance(value, ExitStack | AsyncExitStack)


def _takes_context(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is annotated as `TaskContext`, also as a string (forward reference)."""
    annotation = parameter.annotation
    return annotation is TaskContext or (
        isinstance(annotation, str) and annotation.rpartition(".")[2] == TaskContext.__name__
    )


@contextmanager
def _naming(function: Callable[..., Any]) -> Iterator[None]:
    """Name the provider in errors about its number of yields; contextlib's errors do not."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith(_WRONG_YIELDS):
            raise
        how = "does not yield" if "yield" in str(error) else "yields more than once"
        raise ConfigurationError(
            f"the provider {describe_function(function)} {how}: a generator that is a provider yields once"
        ) from None


def _enter(
    function: Callable[..., Any],
    value: AbstractContextManager[Any],
    stack: ExitStack | AsyncExitStack,
) -> Any:
    with _naming(function):
        entered = value.__enter__()
    stack.push(partial(_leave, function, value))
    return entered


def _leave(function: Callable[..., Any], value: AbstractContextManager[Any], *error: Any) -> bool | None:
    with _naming(function):
        return value.__exit__(*error)


async def _leave_async(
    function: Callable[..., Any], value: AbstractAsyncContextManager[Any], *error: Any
) -> bool | None:
    with _naming(function):
        return await value.__aexit__(*error)


def _nothing() -> None:
    """Do nothing: the default where a provider has no replacement (null object). Never called."""


class _Ended:
    """The end of a call whose providers are still open: its result, control value or error."""

    def __init__(self) -> None:
        self._result: Any = None
        self._wish: ControlFlow | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> None:
        """Begin the call."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Keep the error of the call, for the case that a provider hides it."""
        self._error = error

    def take(self, result: Any) -> None:
        """Keep the result; raise a control value, so that the providers see it."""
        self._result = result
        self._wish = find_control(result)
        if self._wish is not None:
            raise self._wish

    def check_returned(self, error: ControlFlow) -> None:
        """Raise a control value again, unless it was returned."""
        if error is not self._wish:
            raise error

    def outcome(self) -> Any:
        """Return the result, once the providers are closed; raise an error that one of them has hidden."""
        error, self._error = self._error, None
        if self._wish is not None:
            # A returned control value has no traceback.
            self._wish.__traceback__ = None
        elif error is not None:
            raise error
        return self._result


class Providers:
    """The dependencies of one app in this process.

    Used by the event loop of the worker only, except `overrides`, which tests write.
    """

    def __init__(self) -> None:
        self.overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        """Replacement of each overridden provider."""
        self._looked_at: dict[Callable[..., Any], _Provider] = {}
        self._worker: AsyncExitStack | None = None
        """Exit stack of the dependencies that live as long as the worker; None while no worker runs."""
        self._made: dict[Callable[..., Any], asyncio.Future[Any]] = {}
        """Dependencies of the worker by provider, including those that are being made."""

    def is_needed(self, function: Callable[..., Any], wanted: Iterable[Dependency]) -> bool:
        """Return whether any of these dependencies needs this provider function, directly or indirectly."""
        return any(
            function in (one.provider, self.overrides.get(one.provider))
            or self.is_needed(function, _inspect(one.provider).needs.values())
            or self.is_needed(function, _inspect(self.overrides.get(one.provider, _nothing)).needs.values())
            for one in wanted
        )

    @asynccontextmanager
    async def for_worker(self) -> AsyncIterator[None]:
        """Open the scope of a worker; at its end, close the worker's dependencies in reverse order."""
        async with AsyncExitStack() as stack:
            outer, self._worker, self._made = (self._worker, self._made), stack, {}
            try:
                yield
            finally:
                self._worker, self._made = outer

    async def call(
        self, function: Callable[[dict[str, Any]], Awaitable[Any]], wanted: Mapping[str, Dependency]
    ) -> Any:
        """Call a function with dependencies made by name, and return its result.

        Afterwards, close the attempt's own in reverse order. An error of the function, or a control value
        that it returns, is thrown into generators and context managers that are providers. It stays the
        outcome even if one of them hides it.
        """
        ended = _Ended()
        try:
            async with AsyncExitStack() as stack:
                made: dict[Callable[..., Any], Any] = {}
                values = {name: await self._get(one, stack, made) for name, one in wanted.items()}
                with ended:
                    ended.take(await function(values))
        except ControlFlow as error:
            ended.check_returned(error)
        return ended.outcome()

    def call_directly(
        self, function: Callable[[dict[str, Any]], Any], wanted: Mapping[str, Dependency]
    ) -> Any:
        """Call a plain handler, not in a worker; otherwise as `call`.

        Raises:
            ConfigurationError: for a provider that has to be awaited.
        """
        ended = _Ended()
        try:
            with ExitStack() as stack:
                made: dict[Callable[..., Any], Any] = {}
                values = {name: self._get_now(one, stack, made) for name, one in wanted.items()}
                with ended:
                    ended.take(function(values))
        except ControlFlow as error:
            ended.check_returned(error)
        return ended.outcome()

    async def _get(
        self, wanted: Dependency, stack: AsyncExitStack, made: dict[Callable[..., Any], Any]
    ) -> Any:
        function = self.overrides.get(wanted.provider, wanted.provider)
        if wanted.per == "worker" and self._worker is not None:
            return await self._get_shared(function)
        if function not in made:
            made[function] = await self._make(function, stack, made)
        return made[function]

    async def _get_shared(self, function: Callable[..., Any]) -> Any:
        """Return a dependency of the whole worker; concurrent attempts wait until the first has made it."""
        assert self._worker is not None  # noqa: S101 - checked by the caller
        known = self._made.get(function)
        if known is not None:
            return await asyncio.shield(known)
        future = self._made[function] = asyncio.get_running_loop().create_future()
        try:
            value = await self._make(function, self._worker, {})
        except BaseException as error:
            # The next attempt tries again.
            del self._made[function]
            future.set_exception(error if isinstance(error, Exception) else ConfigurationError("cancelled"))
            future.exception()
            raise
        future.set_result(value)
        return value

    async def _make(
        self, function: Callable[..., Any], stack: AsyncExitStack, made: dict[Callable[..., Any], Any]
    ) -> Any:
        provider = self._read(function)
        arguments = {name: await self._get(one, stack, made) for name, one in provider.needs.items()}
        arguments |= {name: context() for name in provider.context}
        value = provider.function(**arguments)
        is_entered = provider.is_entered or _is_of_contextlib(value)
        # An object may be both, as the requests of some HTTP clients are: entering it includes the wait.
        is_ready = is_entered and isinstance(value, AbstractAsyncContextManager)
        if inspect.isawaitable(value) and not is_ready:
            value = await value
        if not is_entered:
            return value
        with _naming(function):
            if isinstance(value, AbstractAsyncContextManager):
                entered = await value.__aenter__()
                stack.push_async_exit(partial(_leave_async, function, value))
                return entered
            return _enter(function, value, stack)

    def _get_now(self, wanted: Dependency, stack: ExitStack, made: dict[Callable[..., Any], Any]) -> Any:
        function = self.overrides.get(wanted.provider, wanted.provider)
        if function not in made:
            provider = self._read(function)
            arguments = {name: self._get_now(one, stack, made) for name, one in provider.needs.items()}
            arguments |= {name: context() for name in provider.context}
            value = provider.function(**arguments)
            is_entered = provider.is_entered or _is_of_contextlib(value)
            is_async = is_entered and not isinstance(value, AbstractContextManager)
            if is_async or (inspect.isawaitable(value) and not is_entered):
                if inspect.iscoroutine(value):
                    value.close()
                raise ConfigurationError(
                    f"the provider {describe_function(function)} has to be awaited: give the argument, "
                    "or run the task with a test kit"
                )
            made[function] = _enter(function, value, stack) if is_entered else value
        return made[function]

    def _read(self, function: Callable[..., Any]) -> _Provider:
        provider = self._looked_at.get(function)
        if provider is None:
            provider = self._looked_at[function] = _inspect(function)
        return provider
