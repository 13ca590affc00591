"""Encoding of a handler's return value as the bytes of the task's result."""

from __future__ import annotations

import collections.abc
import types
import typing
from typing import TYPE_CHECKING, Any, Final

from pyasynq._payload.compiler import NO_CODECS, Compiler, UnsupportedTypeError
from pyasynq._payload.converter import Mismatch
from pyasynq._payload.text import from_bytes, to_bytes
from pyasynq.control import ControlFlow
from pyasynq.errors import ConfigurationError, PayloadDecodingError, PayloadEncodingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq._payload.converter import Converter

_AWAITABLES: Final = {collections.abc.Awaitable, collections.abc.Coroutine}


class ResultCodec:
    """Codec between one handler's return value and JSON, made from the return annotation.

    Control values in the annotation, such as Snooze, are not results. If the function returns an awaitable,
    the annotation of the awaited value counts.

    Raises:
        ConfigurationError: for a return type that JSON cannot carry, or that contains a `Secret`.
    """

    __slots__ = ("_converter", "_owner")

    def __init__(self, annotation: Any, *, owner: str, codecs: Mapping[type, Converter] = NO_CODECS) -> None:
        self._owner = owner
        try:
            compiler = Compiler(codecs, with_secrets=False)
            self._converter = compiler.compile(_without_control(_find_awaited_type(annotation)))
        except UnsupportedTypeError as error:
            raise ConfigurationError(
                f"{owner}, return annotation: {error}; write None if there is no result to keep"
            ) from None

    def encode(self, value: Any) -> bytes:
        """Return the result's bytes.

        Raises:
            PayloadEncodingError: for a value that does not fit the annotation or JSON.
        """
        try:
            return to_bytes(self._converter.encode(value))
        except RecursionError:
            raise PayloadEncodingError(f"the result of {self._owner} is nested too deeply for JSON") from None
        except Mismatch as mismatch:
            raise PayloadEncodingError(
                f"the result{mismatch.path} of {self._owner}: {mismatch.message}",
            ) from mismatch.__cause__

    def decode(self, data: bytes) -> Any:
        """Return the value that the bytes hold.

        Raises:
            PayloadDecodingError: for bytes that are not JSON, or do not fit the annotation.
        """
        try:
            return self._converter.decode(from_bytes(data))
        except Mismatch as mismatch:
            raise PayloadDecodingError(
                f"the result{mismatch.path} of {self._owner}: {mismatch.message}",
            ) from mismatch.__cause__


def _find_awaited_type(annotation: Any) -> Any:
    """Return the type that awaiting the value gives, or the annotation itself; None for `NoReturn`."""
    while typing.get_origin(annotation) in _AWAITABLES:
        annotation = typing.get_args(annotation)[-1]
    return None if annotation in (typing.NoReturn, typing.Never) else annotation


def _without_control(annotation: Any) -> Any:
    """Return the annotation without control classes: `str` for `str | Snooze`, None for only `Snooze`."""
    is_union = typing.get_origin(annotation) in {typing.Union, types.UnionType}
    members = typing.get_args(annotation) if is_union else (annotation,)
    kept = [one for one in members if not _is_control(one)]
    return annotation if len(kept) == len(members) else typing.Union[(*kept,)] if kept else None


def _is_control(annotation: Any) -> bool:
    """Return whether an annotation is a control class, or `type[...]` of one."""
    if typing.get_origin(annotation) is type:
        (annotation,) = typing.get_args(annotation)
    return isinstance(annotation, type) and issubclass(annotation, ControlFlow)
