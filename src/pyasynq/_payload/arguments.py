"""Codec of a handler's arguments: one JSON object, in the order of the handler's parameters."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

from pyasynq._payload.compiler import NO_CODECS, Compiler, UnsupportedTypeError
from pyasynq._payload.converter import Converter, Json, Mismatch, as_is
from pyasynq._payload.text import from_bytes, to_bytes
from pyasynq.dependencies import Dependency
from pyasynq.errors import (
    ArgumentsError,
    ConfigurationError,
    PayloadDecodingError,
    PayloadEncodingError,
    nearest,
)
from pyasynq.options import OPTION_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyasynq._payload.schema import Schema

_NO_ARGUMENTS = b"{}"
_MOST_SHAPES = 64
_MARKERS_ELSEWHERE = frozenset({"Dependant", "Depends", "Security"})
"""Names of classes by which FastAPI and FastDepends mark dependencies."""
_REFUSED_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only and payloads carry names; remove the '/'",
    inspect.Parameter.VAR_POSITIONAL: "collects positional arguments; take one list instead",
    inspect.Parameter.VAR_KEYWORD: "collects keyword arguments; take one dict instead",
}


_Shape: TypeAlias = tuple[tuple[str, ...], tuple[type, ...]]
"""Shape of a call or payload: the arguments' names in their order, and the types of their values."""
_Conversion: TypeAlias = "tuple[str, Callable[[Any], Any]]"
"""An argument's name, and the function that converts its value."""


class _Encoding(NamedTuple):
    """Steps to encode the calls of one shape.

    `is_bound` means that such calls pass every argument by name, in the order of the parameters.
    """

    conversions: list[_Conversion]
    is_bound: bool


class _Argument(NamedTuple):
    name: str
    plain: frozenset[type]
    convert: Callable[[Any], Any]


class ArgumentsCodec:
    """Codec between the arguments of one handler and JSON payloads.

    Args:
        function: the handler.
        hints: its annotations, resolved.
        owner: how errors name the handler, such as `task 'email:deliver'`.
        codecs: converters of types that the app has given codecs.

    Raises:
        ConfigurationError: for a parameter that a payload cannot carry; it names the parameter.
    """

    __slots__ = (
        "_converters",
        "_decoders",
        "_decodings",
        "_defaults",
        "_dependencies",
        "_encoders",
        "_encodings",
        "_owner",
        "_parameters",
        "_signature",
        "_unbound",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        hints: Mapping[str, Any],
        *,
        owner: str,
        codecs: Mapping[type, Converter] = NO_CODECS,
    ) -> None:
        self._owner = owner
        signature = inspect.signature(function)
        # Dependencies are made by the worker; payloads do not carry them.
        own = [one for one in signature.parameters.values() if not isinstance(one.default, Dependency)]
        self._dependencies = [name for name in signature.parameters if name not in {one.name for one in own}]
        self._signature = signature.replace(parameters=own)
        parameters = self._signature.parameters
        self._parameters = parameters.keys()
        compiler = Compiler(codecs)
        self._converters = {
            name: self._compile(parameter, hints.get(name, Any), compiler)
            for name, parameter in parameters.items()
        }
        self._defaults = {
            name: parameter.default
            for name, parameter in parameters.items()
            if parameter.default is not inspect.Parameter.empty
        }
        self._encoders = [_Argument(name, one.plain, one.encode) for name, one in self._converters.items()]
        self._decoders = [
            _Argument(name, one.plain | one.kept, one.decode)
            for name, one in self._converters.items()
            if one.decode is not as_is
        ]
        self._unbound = {name: self._defaults.get(name) for name in parameters}
        """Defaults by parameter, in the order of the parameters; None for a parameter without a default."""
        self._encodings: dict[tuple[tuple[type, ...], _Shape], _Encoding] = {}
        """Encodings by the shape of a call: calls from one line of code nearly always have the same shape."""
        self._decodings: dict[_Shape, list[_Conversion]] = {}
        """Conversions to decode payloads, by the shape of a payload."""
        self._check_defaults()

    def _compile(self, parameter: inspect.Parameter, hint: Any, compiler: Compiler) -> Converter:
        if parameter.kind in _REFUSED_KINDS:
            raise ConfigurationError(
                f"{self._owner}: parameter {parameter.name!r} {_REFUSED_KINDS[parameter.kind]}",
            )
        if any(map(_is_foreign_marker, (parameter.default, *getattr(hint, "__metadata__", ())))):
            raise ConfigurationError(
                f"{self._owner}: parameter {parameter.name!r} is a dependency of another library: "
                "write pyasynq.depends(provider) as its default"
            )
        try:
            return compiler.compile(hint)
        except UnsupportedTypeError as error:
            raise ConfigurationError(f"{self._owner}, parameter {parameter.name!r}: {error}") from None

    def _check_defaults(self) -> None:
        for name, default in self._defaults.items():
            try:
                to_bytes(self._converters[name].encode(default))
            except Mismatch as mismatch:
                raise ConfigurationError(
                    f"{self._owner}, default of parameter {name!r}{mismatch.path}: {mismatch.message}",
                ) from mismatch.__cause__

    def schema(self, title: str, description: str) -> Schema:
        """Return the JSON Schema of payloads, with the defaults of arguments that are not secret."""
        from pyasynq._payload.schema import DIALECT, Definitions, secret_paths  # noqa: PLC0415 - few need it

        definitions = Definitions()
        properties = {}
        for name, one in self._converters.items():
            properties[name] = schema = one.describe(definitions)
            if name in self._defaults and not secret_paths(schema | {"$defs": definitions.schemas}):
                schema["default"] = one.encode(self._defaults[name])
        required = [name for name in properties if name not in self._defaults]
        return {
            "$schema": DIALECT,
            "title": title,
            **({"description": description} if description else {}),
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": False,
            **({"$defs": definitions.schemas} if definitions.schemas else {}),
        }

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Return the payload of a call: compact JSON, with defaults filled in. Equal calls give equal bytes.

        Raises:
            ArgumentsError: for missing, unknown or surplus arguments.
            PayloadEncodingError: for an argument that JSON cannot carry; it names the argument.
        """
        shape = tuple(map(type, args)), _find_shape(kwargs)
        encoding = self._encodings.get(shape)
        if encoding is None:
            bound = self._bind(args, kwargs)
            encoding = self._find_encoding(bound, kwargs)
            if len(self._encodings) < _MOST_SHAPES:
                self._encodings[shape] = encoding
        elif encoding.is_bound:
            bound = dict(kwargs)
        else:
            # The names are known to fit: bind the arguments to the parameters without further checks.
            bound = self._unbound.copy()
            bound.update(zip(self._unbound, args, strict=False))
            bound.update(kwargs)
        for name, convert in encoding.conversions:
            try:
                bound[name] = convert(bound[name])
            except Mismatch as mismatch:
                self._refuse_argument(name, mismatch)
            except RecursionError:
                self._refuse_argument(name, Mismatch("nested too deeply for JSON"))
        try:
            return to_bytes(bound)
        except Mismatch as mismatch:
            self._blame(bound, mismatch)

    def _find_encoding(self, bound: Mapping[str, Any], kwargs: Mapping[str, Any]) -> _Encoding:
        conversions = [
            (name, convert) for name, plain, convert in self._encoders if type(bound[name]) not in plain
        ]
        return _Encoding(conversions, is_bound=[*kwargs] == [*bound])

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        for name in kwargs:
            if name not in self._parameters:
                if name in self._dependencies:
                    raise ArgumentsError(f"{self._owner}: {self._describe_dependencies([name])}", name)
                hint = nearest(name, self._parameters)
                if not hint and name in OPTION_NAMES:
                    hint = f"; it is an option: write .options({name}=...).enqueue(...)"
                raise ArgumentsError(f"{self._owner} has no argument {name!r}{hint}", name)
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            is_surplus = self._dependencies and len(args) > len(self._parameters)
            hint = f": {self._describe_dependencies(self._dependencies)}" if is_surplus else ""
            raise ArgumentsError(f"{self._owner}: {error}{hint}", None) from None
        return self._unbound | given

    @staticmethod
    def _describe_dependencies(names: list[str]) -> str:
        quoted = " and ".join(map(repr, names))
        if len(names) > 1:
            return f"{quoted} are dependencies, which the worker passes; leave them out"
        return f"{quoted} is a dependency, which the worker passes; leave it out"

    def _blame(self, bound: Mapping[str, Json], mismatch: Mismatch) -> NoReturn:
        for name, value in bound.items():
            try:
                to_bytes(value)
            except Mismatch as of_this_one:
                self._refuse_argument(name, of_this_one)
        raise PayloadEncodingError(f"{self._owner}: {mismatch.message}")

    def _refuse_argument(self, name: str, mismatch: Mismatch) -> NoReturn:
        raise PayloadEncodingError(
            f"{self._owner}, argument {name}{mismatch.path}: {mismatch.message}",
        ) from mismatch.__cause__

    def decode(self, payload: bytes) -> dict[str, Any]:
        """Return the keyword arguments for the handler. An empty payload is a call without arguments.

        Raises:
            PayloadDecodingError: for a payload that is not a JSON object, for missing and unknown arguments,
                and for a value that does not fit its annotation. It names the argument, never the value.
        """
        try:
            values: dict[str, Any] = from_bytes(payload or _NO_ARGUMENTS)
        except Mismatch as mismatch:
            raise PayloadDecodingError(
                f"{self._owner}: the payload is unusable: {mismatch.message}"
            ) from None
        if type(values) is not dict:
            raise PayloadDecodingError(f"{self._owner}: the payload is not a JSON object with arguments")
        shape = _find_shape(values)
        conversions = self._decodings.get(shape)
        if conversions is None:
            conversions = self._learn(shape, values)
        for name, convert in conversions:
            try:
                values[name] = convert(values[name])
            except Mismatch as mismatch:
                raise PayloadDecodingError(
                    f"{self._owner}, argument {name}{mismatch.path}: {mismatch.message}",
                ) from mismatch.__cause__
        return values

    def _learn(self, shape: _Shape, values: dict[str, Json]) -> list[_Conversion]:
        """Return and cache the converters for payloads of a shape; raise if its names do not fit."""
        if values.keys() != self._parameters:
            self._check_names(values)
        conversions = [
            (name, convert)
            for name, plain, convert in self._decoders
            if name in values and type(values[name]) not in plain
        ]
        if len(self._decodings) < _MOST_SHAPES:
            self._decodings[shape] = conversions
        return conversions

    def _check_names(self, values: dict[str, Json]) -> None:
        missing = [name for name in self._parameters if name not in values and name not in self._defaults]
        unknown = [name for name in values if name not in self._parameters]
        problems = []
        if missing:
            problems.append(f"missing {', '.join(map(repr, missing))}")
        if unknown:
            problems.append(f"unknown {', '.join(map(repr, unknown))}")
        if problems:
            raise PayloadDecodingError(
                f"{self._owner}: the payload does not fit the arguments: {'; '.join(problems)}",
            )


def _is_foreign_marker(value: object) -> bool:
    """Return whether a default or annotation marks a dependency of another library, such as FastAPI."""
    return type(value).__name__ in _MARKERS_ELSEWHERE


def _find_shape(arguments: Mapping[str, Any]) -> _Shape:
    return tuple(arguments), tuple(map(type, arguments.values()))
