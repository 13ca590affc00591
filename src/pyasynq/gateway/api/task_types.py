"""Handlers of `/v1/task-types`: configurations that are changed at run time, by compare-and-set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from pyasynq._visible_text import visible
from pyasynq.errors import ConfigurationChangedError
from pyasynq.gateway.configurations import parse_task_configuration
from pyasynq.gateway.configurations.field_names import to_snake_case
from pyasynq.gateway.leases.access import may_use
from pyasynq.operations import count_listening
from pyasynq.web.api.call import changed_meanwhile
from pyasynq.web.api.json_body import decode_body
from pyasynq.web.api.problem import ProblemError

from .call import answer_json

if TYPE_CHECKING:
    from pyasynq.gateway.configurations import TaskConfiguration
    from pyasynq.operations import TypeConfiguration

    from .call import ServiceCall

_TRIES: Final = 5
"""Number of tries of a change without If-Match, if other clients keep changing the same type."""


async def serve_list_types(call: ServiceCall) -> Response:
    """Answer with the configurations of all types that the key may use, by name."""
    found = await call.operator.type_configurations()
    return answer_json({"items": [_describe(one) for one in found if may_use(call.key, one.name)]})


async def serve_get_type(call: ServiceCall) -> Response:
    """Answer with the configuration of a type; 304 if the client has this version.

    For the kind `list`, it also tells how many workers listen now.
    """
    stored = await _read(call)
    tag = _make_tag(stored.version)
    if _names_tag(call.request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers={"ETag": tag})
    content = _describe(stored)
    shards = content.get("shards")
    if content.get("kind") == "list" and isinstance(shards, int):
        content["listening"] = await count_listening(call.operator, stored.name, shards)
    return answer_json(content, headers={"ETag": tag})


async def serve_put_type(call: ServiceCall) -> Response:
    """Store a configuration, in place of the version in If-Match; `If-None-Match: *` makes new types only."""
    is_rehearsal = call.values["dry_run"]
    content = await _read_object(call)
    stored = await find_stored(call)
    configuration = parse_fields(call, content)
    expected = read_expected(call, stored)
    return await store_configuration(call, stored, configuration, expected, is_rehearsal=is_rehearsal)


async def serve_patch_type(call: ServiceCall) -> Response:
    """Change some fields of a configuration, each as a whole; null unsets a field."""
    is_rehearsal = call.values["dry_run"]
    changes = await _read_object(call)
    for tries_left in reversed(range(_TRIES)):
        stored = await _read(call)
        configuration = parse_fields(call, _merge(dict(stored.content), changes))
        if call.request.headers.get("if-match"):
            read_expected(call, stored)
        try:
            return await store_configuration(
                call, stored, configuration, stored.version, is_rehearsal=is_rehearsal
            )
        except ConfigurationChangedError:
            if not tries_left or call.request.headers.get("if-match"):
                raise
    raise AssertionError  # pragma: no cover - the last try raises


async def serve_delete_type(call: ServiceCall) -> Response:
    """Delete a configuration: the service accepts no more tasks of the type.

    Waiting tasks stay, without the type's limits. A type that the service's file defines comes back at the
    next start.
    """
    is_rehearsal = call.values["dry_run"]
    stored = await _read(call)
    expected = read_expected(call, stored)
    if not is_rehearsal:
        await call.operator.delete_type_configuration(stored.name, expected=expected)
        await call.parts.follower.refresh()
        await call.parts.follower.clear_limits(stored)
    return Response(status_code=204)


async def store_configuration(
    call: ServiceCall,
    stored: TypeConfiguration | None,
    configuration: TaskConfiguration,
    expected: int | None,
    *,
    is_rehearsal: bool,
    reason: str = "",
) -> Response:
    """Store a configuration, or check it only (dry run); return the answer.

    Raises:
        ProblemError: the service's file manages the type.
        ConfigurationChangedError: another version than the expected one is stored.
    """
    _check_manager(stored, configuration)
    content = configuration.to_json()
    if is_rehearsal:
        before = None if stored is None else dict(stored.content)
        return answer_json({"dry_run": True, "before": before, "after": content})
    new = await call.operator.set_type_configuration(
        configuration.name, content, expected=expected, reason=reason
    )
    await call.parts.follower.refresh()
    headers = {"ETag": _make_tag(new.version)}
    if stored is None:
        headers["Location"] = call.address("task-types", new.name)
    return answer_json(_describe(new), 200 if stored else 201, headers)


def _check_manager(stored: TypeConfiguration | None, new: TaskConfiguration) -> None:
    """Refuse a change that the next start of the service would undo.

    Raises:
        ProblemError: the service's file manages the type.
    """
    owner = None if stored is None else stored.content.get("managed", "file")
    if owner == "file" or new.managed != "api":
        detail = "The service's file manages this task type: its next start would undo the change."
        remedy = 'Change the file, or write managed = "api" there, which gives the type to the API.'
        raise ProblemError(409, "managed_by_file", detail, remedy, field="managed")


async def find_stored(call: ServiceCall) -> TypeConfiguration | None:
    """Return the stored configuration of the path's type; None if there is none.

    Raises:
        ProblemError: the key may not use the type.
    """
    name = call.names["name"]
    if not may_use(call.key, name):
        raise type_not_found(call, name)
    return await call.operator.type_configuration(name)


async def _read(call: ServiceCall) -> TypeConfiguration:
    """Return the stored configuration of the path's type. Raises `ProblemError` if there is none."""
    stored = await find_stored(call)
    if stored is None:
        raise type_not_found(call, call.names["name"])
    return stored


def type_not_found(call: ServiceCall, name: str) -> ProblemError:
    """Return the problem of a type that does not exist for the key."""
    detail = f"There is no task type {visible(name)} for this key."
    return ProblemError(404, "task_type_not_found", detail, call.nearest_type(name))


async def _read_object(call: ServiceCall) -> dict[str, Any]:
    content: dict[str, Any] = decode_body(call.request, await call.content(), dict[str, Any])
    return content


def parse_fields(call: ServiceCall, content: dict[str, Any]) -> TaskConfiguration:
    """Return the configuration in a body; the API manages it, unless the body says otherwise.

    Raises:
        InvalidOptionError: for an invalid field; the message names it.
    """
    return parse_task_configuration("", {"managed": "api", **content}, name=call.names["name"])


def _merge(target: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with some fields replaced; a field that is changed to null is removed."""
    named = {to_snake_case(name): value for name, value in changes.items()}
    return {name: value for name, value in {**target, **named}.items() if value is not None}


def read_expected(call: ServiceCall, stored: TypeConfiguration | None) -> int | None:
    """Return the version that a change may replace (compare-and-set).

    The headers If-Match and If-None-Match require it. The version is 0 if no configuration may be stored yet,
    and None if any version may be replaced.

    Raises:
        ProblemError: the stored version does not satisfy these headers.
    """
    headers = call.request.headers
    version = 0 if stored is None else stored.version
    if wanted := headers.get("if-match", ""):
        if stored is None or not _names_tag(wanted, _make_tag(version)):
            raise changed_meanwhile()
        return version
    if unwanted := headers.get("if-none-match", ""):
        if stored is not None and _names_tag(unwanted, _make_tag(version)):
            remedy = "Leave If-None-Match out to replace it."
            raise ProblemError(
                412, "exists_already", "There is such a task type.", remedy, field="If-None-Match"
            )
        return version
    return None


def _make_tag(version: int) -> str:
    return f'"{version}"'


def _names_tag(header: str, tag: str) -> bool:
    named = {one.strip().removeprefix("W/") for one in header.split(",")}
    return "*" in named or tag in named


def _describe(stored: TypeConfiguration) -> dict[str, Any]:
    return {**stored.content, "name": stored.name, "version": stored.version}
