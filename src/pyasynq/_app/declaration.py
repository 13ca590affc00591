"""One declared handler: its task type, function, codecs and rules."""

from __future__ import annotations

import inspect
import typing
from functools import cached_property, partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from pyasynq._app.providers import find_dependencies
from pyasynq._call_shape import first_doc_line
from pyasynq._engine.handlers.routes import NO_RULES, HandlerRules, is_coroutine_handler
from pyasynq._payload import ArgumentsCodec, ResultCodec
from pyasynq._payload.compiler import NO_CODECS
from pyasynq.errors import ConfigurationError, UnknownAnnotationError
from pyasynq.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from pyasynq._engine.handlers.middleware import Middleware
    from pyasynq._payload.converter import Converter
    from pyasynq.options import EnqueueOptions

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")


class Declaration:
    """A declared handler: its task type, function, codecs and rules.

    Its annotations are compiled into codecs at the declaration. If an annotation names something that the
    module defines only later, it is compiled at the first use.

    Args:
        function: the handler.
        name: the task type; None makes the type from module and function name.
        rules: rules of this handler, such as `retry_delay`.
        middleware: middleware around this handler alone, the first one outermost.
        codecs: the app's converters to and from JSON, by class.

    Raises:
        ConfigurationError: for a function that cannot be a handler; the message says why.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None,
        rules: HandlerRules = NO_RULES,
        middleware: tuple[Middleware, ...] = (),
        codecs: Mapping[type, Converter] = NO_CODECS,
    ) -> None:
        _check_callable(function)
        self.function = function
        self.type = _default_name(function) if name is None else name
        self.rules = rules
        self.middleware = middleware
        self._type_codecs = codecs
        self.is_coroutine = is_coroutine_handler(function)
        _check_kind(function, self.owner)
        self.dependencies = find_dependencies(function)
        try:
            self.compile()
        except UnknownAnnotationError:
            # The module may define the name further down; `compile` is called again when all modules are
            # imported.
            return

    @property
    def owner(self) -> str:
        """Name of the handler for error messages."""
        return f"task {self.type!r}"

    @property
    def place(self) -> str:
        """Name, file and line of the function, for errors about two handlers of one type."""
        function = _unwrap_partial(self.function)
        code = getattr(function, "__code__", None)
        name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
        return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring; empty without one."""
        return first_doc_line(self.function)

    @cached_property
    def positional_names(self) -> tuple[str, ...]:
        """Names of the handler's parameters that callers may give by position."""
        parameters = inspect.signature(self.function).parameters.values()
        return tuple(one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD)

    @property
    def arguments(self) -> ArgumentsCodec:
        """Codec of the arguments. The first use raises what `compile` raises."""
        return self._codecs[0]

    @property
    def result(self) -> ResultCodec:
        """Codec of the return value. The first use raises what `compile` raises."""
        return self._codecs[1]

    def compile(self) -> None:
        """Make the codecs, so that the first task does not wait for them.

        Raises:
            ConfigurationError: for a parameter whose type JSON cannot encode, or an unknown annotation.
        """
        _ = self._codecs

    @cached_property
    def _codecs(self) -> tuple[ArgumentsCodec, ResultCodec]:
        function = _unwrap_partial(self.function)
        annotated = function if inspect.isroutine(function) else type(function).__call__
        try:
            hints = typing.get_type_hints(annotated, include_extras=True)
            return (
                ArgumentsCodec(self.function, hints, owner=self.owner, codecs=self._type_codecs),
                ResultCodec(hints.get("return", Any), owner=self.owner, codecs=self._type_codecs),
            )
        except NameError as error:
            raise UnknownAnnotationError(
                f"{self.owner}: an annotation of {self.place} names {error.name!r}, which its module does "
                "not define; if it is imported under `if TYPE_CHECKING:`, import it outside of that",
            ) from None


class TypedCall(Task, Generic[_P, _R]):
    """A `Task` made by a typed task (`deliver.task(...)`); it can decode its arguments.

    Aggregators and middleware of a typed task get its tasks in this form.
    """

    __slots__ = ("_declaration",)
    _declaration: Declaration

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name, with their defaults, decoded at each access.

        Raises:
            PayloadDecodingError: for a payload that does not fit the handler.
        """
        return self._declaration.arguments.decode(self.payload or b"")

    def apply(self, function: Callable[_P, _T]) -> _T:
        """Call a function with the decoded arguments, and return its result. Type checkers check the types.

        `call.apply(lambda user_id, template: template)`. The function has the parameters of the handler, with
        defaults where the handler has them. Dependencies are not passed.

        Raises:
            PayloadDecodingError: for a payload that does not fit the handler.
        """
        arguments = self.arguments
        names = takewhile(arguments.__contains__, self._declaration.positional_names)
        positional = [arguments.pop(name) for name in [*names]]
        call = cast("Callable[..., _T]", function)
        return call(*positional, **arguments)

    def _copy(self, options: EnqueueOptions) -> Self:
        call = super()._copy(options)
        call._declaration = self._declaration  # noqa: SLF001 - of this class
        return call


def make_typed_call(declaration: Declaration, payload: bytes | None, options: EnqueueOptions) -> Any:
    """Make a `TypedCall` without checks, from checked or stored values."""
    call: TypedCall[..., Any] = TypedCall.__new__(TypedCall)
    call.type = declaration.type
    call.payload = payload
    call.options = options
    call._declaration = declaration  # noqa: SLF001 - made here
    return call


def _unwrap_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, partial):
        function = function.func
    return function


def _default_name(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if name is None or module is None or "<" in name:
        raise ConfigurationError(
            f"{name or function!r} has no name that other processes could find it by: "
            'give the task one, as in @app.task("email:deliver")',
        )
    if module == "__main__":
        raise ConfigurationError(
            f"the module of {name!r} is '__main__' here and has another name in the worker: "
            f'give the task a name of its own, as in @app.task("{name}")',
        )
    return f"{module}.{name}"


def _check_callable(function: object) -> None:
    if isinstance(function, classmethod | property):
        name = getattr(function, "__qualname__", "") or getattr(function, "__name__", "")
        raise ConfigurationError(
            f"{name or function!r} is a {type(function).__name__}, which cannot be a task: declare a "
            "function of the module, or a @staticmethod"
        )
    if not callable(function):
        raise ConfigurationError(
            f"a task is a function, and this is a {type(function).__name__}: write @app.task, "
            '@app.task("type") or @app.task(queue="name") above the function'
        )


def _check_kind(function: Callable[..., Any], owner: str) -> None:
    plain = _unwrap_partial(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise ConfigurationError(
            f"{owner}: {plain.__qualname__} is a generator, and a handler has one result"
        )
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is not None and first.name in {"self", "cls"} and first.annotation is inspect.Parameter.empty:
        raise ConfigurationError(
            f"{owner}: {plain.__qualname__} is a method, and a payload cannot carry its {first.name!r}: "
            "declare a function",
        )
