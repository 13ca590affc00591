"""Handlers of the versions of a task type: listing, and rollback to one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq.web.api.problem import ProblemError

from .answers import FormerTaskType, FormerTaskTypes
from .bodies import RollBackType
from .call import answer_json
from .task_types import find_stored, parse_fields, read_expected, store_configuration, type_not_found

if TYPE_CHECKING:
    from starlette.responses import Response

    from pyasynq.operations import TypeVersion

    from .call import ServiceCall


async def serve_list_versions(call: ServiceCall) -> Response:
    """Answer with the newest versions of a type, even of a deleted one."""
    versions = await _read_versions(call)
    items = [FormerTaskType(one.version, one.at, one.by, one.reason, _copy(one)) for one in versions]
    return answer_json(FormerTaskTypes(items))


async def serve_roll_back_type(call: ServiceCall) -> Response:
    """Store a former version again as a new one, if no newer version was stored since (compare-and-set)."""
    versions = await _read_versions(call)
    body: RollBackType = await call.body(RollBackType)
    content = next((_copy(one) for one in versions if one.version == body.version), None)
    if content is None:
        detail = "There is no such version, or it is a deletion."
        remedy = "GET .../versions lists the newest 20."
        raise ProblemError(404, "version_not_found", detail, remedy, field="version")
    stored = await find_stored(call)
    # Only the API restores versions, so the API manages the result, even if a file managed the former
    # version.
    configuration = parse_fields(call, {**content, "managed": "api"})
    expected = read_expected(call, stored)
    if expected is None:
        expected = 0 if stored is None else stored.version
    return await store_configuration(
        call, stored, configuration, expected, is_rehearsal=call.values["dry_run"], reason=body.reason
    )


async def _read_versions(call: ServiceCall) -> list[TypeVersion]:
    """Return the kept versions of the path's type. Raises `ProblemError` if it has none."""
    stored = await find_stored(call)
    versions = await call.operator.type_configuration_versions(call.names["name"])
    if stored is None and not versions:
        raise type_not_found(call, call.names["name"])
    return versions


def _copy(version: TypeVersion) -> dict[str, object] | None:
    return None if version.content is None else dict(version.content)
