"""Handlers of reports by task service instances: requests to hosts, commands, protocol gateways (doors)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._face_records.service_reports import describe_delivery, describe_door, describe_hosted_command
from pyasynq.errors import ReportNotFoundError
from pyasynq.operations import VERBS, find_command, make_delivery_id, require_running

from .call import Listing
from .records import describe_cancel

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record
    from pyasynq.operations import HostedCommand

    from .call import ApiCall


async def handle_list_deliveries(call: ApiCall) -> Listing:
    """Return the counts and durations of requests to hosts in the last hour, by host and task type."""
    return Listing([describe_delivery(one) for one in await call.operator.deliveries()])


async def handle_get_delivery(call: ApiCall) -> Record:
    """Return a type's requests to a host, with the newest one whose attempt failed."""
    wanted = call.names["delivery"]
    for one in await call.operator.deliveries():
        if make_delivery_id(one.host, one.queue) == wanted:
            return describe_delivery(one)
    raise ReportNotFoundError("delivery", wanted)


async def handle_list_commands(call: ApiCall) -> Listing:
    """Return the running commands, and those that ended within 10 minutes."""
    commands = await call.operator.commands()
    return Listing([describe_hosted_command(one, call.ask.now) for one in commands])


async def handle_get_command(call: ApiCall) -> Record:
    """Return a command with the end of its output."""
    return describe_hosted_command(await _find_command(call), call.ask.now)


async def handle_kill_command(call: ApiCall) -> Record:
    """Request the cancellation of a running command's task, which kills the command's processes."""
    command, body = await _find_command(call), call.body
    require_running(command)
    return describe_cancel(
        await call.operator.cancel_task(command.queue, command.task_id, body.outcome, reason=body.reason)
    )


async def rehearse_kill(call: ApiCall) -> Record:
    """Check that a command may be killed (dry run)."""
    verb = VERBS["cancel_task"]
    command = await _find_command(call)
    require_running(command)
    call.ask.require(verb.name, command.queue)
    return {"dry_run": True, "verb": verb.name, "summary": verb.summary}


async def handle_list_doors(call: ApiCall) -> Listing:
    """Return the protocol gateways (doors) that were open within 10 minutes, with their functions."""
    return Listing([describe_door(one) for one in await call.operator.service_doors()])


async def _find_command(call: ApiCall) -> HostedCommand:
    return find_command(await call.operator.commands(), call.names["command"])
