# Generated from src/pyasynq/operations/operator/_admission.py by tools/unasync.py; change that file and run `make sync`.
"""Authorization of calls: checks a user's permissions for the queues that a call concerns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq.errors import OperationNotFoundError, QueueNotFoundError
from pyasynq.operations.guard import (
    OperatorCall,
    denied,
    require_everywhere,
    require_for_queue,
    require_somewhere,
)
from pyasynq.operations.operation import Act
from pyasynq.operations.server_choice import choose_servers
from pyasynq.operations.shown import queue_of_entry
from pyasynq.operations.verbs import Subject

if TYPE_CHECKING:
    from pyasynq.operations.permissions import Access

    from ._operator_inspector import OperatorInspector


class Admission:
    """Authorizes the calls of one user.

    Args:
        access: permissions of the user.
        inspector: reads the queues of servers, schedules and operations.
    """

    def __init__(self, access: Access, inspector: OperatorInspector) -> None:
        self._access = access
        self._inspector = inspector

    def admit(self, call: OperatorCall) -> None:
        """Check that the user may make this call; replace `queues=None` by all queues that the user sees.

        Raises:
            PermissionDeniedError: the user lacks a permission.
            QueueNotFoundError: the user does not see the queue.
        """
        if call.verb.changes and self._access.read_only:
            raise denied(self._access, call.verb, "")
        match call.verb.subject:
            case Subject.QUEUE:
                require_for_queue(self._access, call.verb, call.queue)
            case Subject.QUEUES:
                self._check_queues(call)
            case Subject.SHOWN:
                require_somewhere(self._access, call.verb)
            case Subject.SERVER | Subject.SERVERS:
                self._check_servers(call)
            case Subject.ENTRY:
                self._check_entry(call)
            case Subject.TARGETS:
                self._check_targets(call)
            case Subject.OPERATION:
                self._check_operation(call)
            case Subject.EVERYTHING:
                require_everywhere(self._access, call.verb)

    def _check_queues(self, call: OperatorCall) -> None:
        if call.queues is not None:
            for queue in call.queues:
                require_for_queue(self._access, call.verb, queue)
            return
        require_somewhere(self._access, call.verb)
        if not all(map(self._access.may_everywhere, call.verb.needed)):
            names = self._inspector.queues()
            call.queues = [name for name in names if call.is_allowed(self._access, name)]

    def _check_servers(self, call: OperatorCall) -> None:
        require_somewhere(self._access, call.verb)
        is_one = call.verb.subject is Subject.SERVER
        servers = self._inspector.servers()
        found = choose_servers(
            [server for server in servers if any(map(self._access.sees, server.queues))],
            [str(call.argument("server_id"))] if is_one else call.argument("server_ids"),
            version=call.argument("version") or "",
            engine_version=call.argument("engine_version") or "",
        )
        call.concerns = tuple(sorted({queue for server in found for queue in server.queues}))
        # The error does not name a queue that the user does not see.
        for queue in sorted(call.concerns, key=self._access.sees):
            if not call.is_allowed(self._access, queue):
                raise denied(self._access, call.verb, queue if self._access.sees(queue) else "")
        if not is_one:
            call.name_servers([server.id for server in found])

    def _check_targets(self, call: OperatorCall) -> None:
        act, options = Act(call.argument("act")), call.argument("options")
        call.add_act(act)
        target = [options.queue] if act is Act.MOVE and options is not None and options.queue else []
        named = tuple(call.argument("targets").ids)
        for queue in (*named, *target):
            require_for_queue(self._access, call.verb, queue, call.needed)
        # With a query, the queues are known only from the result.
        call.concerns = (*named, *target) if named else ()
        require_somewhere(self._access, call.verb, call.needed)

    def _check_operation(self, call: OperatorCall) -> None:
        operation_id = str(call.argument("operation_id"))
        require_somewhere(self._access, call.verb, call.needed)
        operation = self._inspector.operation(operation_id)
        if not all(map(self._access.sees, operation.concerns)):
            raise OperationNotFoundError(operation_id)
        if call.verb.changes:
            call.add_act(operation.act)
        call.concerns = operation.concerns
        for queue in call.concerns:
            require_for_queue(self._access, call.verb, queue, call.needed)

    def _check_entry(self, call: OperatorCall) -> None:
        require_somewhere(self._access, call.verb)
        entry_id = call.argument("entry_id")
        for entry in self._inspector.scheduler_entries():
            if entry.id == entry_id:
                call.concerns = (queue_of_entry(entry),)
                require_for_queue(self._access, call.verb, queue_of_entry(entry))
                return
        # A schedule that has ended has no queue any more; its history is only for users who may see every
        # queue.
        if not self._access.may_everywhere(call.verb.permission):
            raise QueueNotFoundError(str(entry_id))
