"""A database with two teams' queues and secrets in it, and how each verb of `Operator` is called there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyasynq._broker.attempt_counts import count_attempts
from pyasynq._broker.operating.api_keys import write_api_key
from pyasynq._broker.operating.configurations import write_configuration
from pyasynq._broker.operating.instance_reports import (
    COMMAND_REPORTS,
    DELIVERY_REPORTS,
    DOOR_REPORTS,
    LEASE_WORKER_REPORTS,
    write_reports,
)
from pyasynq._broker.operating.operations import create_operation, write_tasks
from pyasynq._broker.operating.views import write_view
from pyasynq._broker.servers import write_server_state
from pyasynq._wire.keys import ALL_QUEUES
from pyasynq._wire.messages import ServerInfo, WorkerInfo
from pyasynq.operations import Act, OperationOptions, Targets, User
from pyasynq.operations.api_keys import encode_api_key, make_api_key
from pyasynq.operations.commands import HostedCommand, encode_command
from pyasynq.operations.deliveries import DeliveryReport, FailedExchange, encode_delivery_report
from pyasynq.operations.lease_workers import HeldTask, LeaseWorkerReport, encode_report
from pyasynq.operations.operation import Scope
from pyasynq.operations.operation_record import encode_operation, encode_tasks
from pyasynq.operations.service_doors import ServiceDoor, encode_door
from pyasynq.operations.views import encode_view, make_view, view_id
from pyasynq.task import Task, TaskState
from tests.contract.test_inspect_schedulers import announce, entry
from tests.factories import NOW, Tasks

if TYPE_CHECKING:
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

MINE = "team-mail"
THEIRS = "payments"
QUEUES = (MINE, THEIRS)
SECRET = "hunter2-of-the-night"
PAYLOAD = f'{{"user":42,"password":"{SECRET}"}}'.encode()
KEY = make_api_key("walk", ["work"], ["*"], by="root", expires_in=None, now=NOW.to_datetime())
ERROR = f"ValueError: no login with {SECRET} at db://app:{SECRET}@host"


def fill(client: RedisClient, perform: Perform) -> None:
    """Put tasks of each state into both queues; servers of both and of each, and a schedule of each."""
    for queue in QUEUES:
        tasks = Tasks(client, queue)
        client.sadd(ALL_QUEUES, queue)
        fields: dict[str, Any] = {"payload": PAYLOAD, "headers": {"authorization": SECRET, "tenant": "a"}}
        failed: dict[str, Any] = {**fields, "error_msg": ERROR, "last_failed_at": NOW.seconds - 60}
        own = {"x:trace": f"Traceback: password={SECRET!r}", "result": PAYLOAD}
        tasks.pending(f"waits-in-{queue}", type=f"type-of-{queue}", **fields)
        tasks.active(f"runs-in-{queue}", **fields)
        tasks.put(TaskState.SCHEDULED, f"due-in-{queue}", **fields)
        tasks.put(TaskState.RETRY, f"fails-in-{queue}", **failed)
        tasks.put(TaskState.ARCHIVED, f"failed-in-{queue}", extra=own, **failed)
        perform(count_attempts(queue, {f"type-of-{queue}": [1]}, now=NOW))
        tasks.put(TaskState.AGGREGATING, f"grouped-in-{queue}", group=f"group-of-{queue}", **fields)
    workers = {
        queue: WorkerInfo(
            host="h",
            pid=7,
            server_id="s",
            task_id=f"runs-in-{queue}",
            task_type="t",
            task_payload=PAYLOAD,
            queue=queue,
            start_time=NOW.to_datetime(),
            deadline=NOW.to_datetime(),
        )
        for queue in QUEUES
    }
    for server_id, queues in {"s": QUEUES, **{f"only-{queue}": (queue,) for queue in QUEUES}}.items():
        info = ServerInfo(
            host="h",
            pid=7,
            server_id=server_id,
            concurrency=4,
            queues=dict.fromkeys(queues, 1),
            strict_priority=False,
            status="active",
            start_time=NOW.to_datetime(),
            active_worker_count=2,
            engine="pyasynq",
        )
        running = list(workers.values()) if server_id == "s" else []
        perform(write_server_state(info, running, now=NOW))
    for queue in QUEUES:
        fields = encode_operation(
            Act.DELETE,
            Scope((queue,), 1),
            OperationOptions(),
            user=User("root"),
            reason="",
            now=NOW.to_datetime(),
        )
        perform(create_operation(f"op-of-{queue}", {**fields, "state": "running"}, now=NOW))
        perform(write_tasks(f"op-of-{queue}", 0, encode_tasks([(queue, f"failed-in-{queue}", "")])))
        view = make_view(
            f"view of {queue}",
            owner="root",
            page="tasks",
            query=f"-queue:{queue}",
            columns=(),
            queue="",
            is_shared=True,
            now=NOW.to_datetime(),
        )
        perform(write_configuration(queue, b'{"max_run":1}', None, NOW))
        perform(write_view(view.view, encode_view(view)))
        report = LeaseWorkerReport(
            f"w{QUEUES.index(queue)}", key_id=KEY.key.id, queues=QUEUES, seen=NOW.seconds
        )
        report.hold(HeldTask(queue, f"runs-in-{queue}", NOW.seconds + 60))
        exchange = FailedExchange(
            queue,
            f"fails-in-{queue}",
            1,
            NOW.to_datetime(),
            0.1,
            "POST",
            "https://a.example/",
            (("Authorization", SECRET),),
            500,
            ERROR,
            (("Set-Cookie", SECRET),),
            PAYLOAD,
        )
        called = DeliveryReport("a.example", queue, seen=NOW.seconds, failed=exchange)
        called.note(500, 0.1, NOW.seconds)
        perform(write_reports(DELIVERY_REPORTS, [(f"{called.id}.one", encode_delivery_report(called))], NOW))
        command = HostedCommand(
            f"run-in-{queue}",
            queue,
            f"fails-in-{queue}",
            1,
            "/bin/x",
            "h",
            "retried",
            NOW.to_datetime(),
            reason=f"exit code 1: password={SECRET}",
            out=PAYLOAD,
            err=PAYLOAD,
        )
        perform(write_reports(COMMAND_REPORTS, [(f"1.{queue}", encode_command(command))], NOW))
        perform(write_reports(LEASE_WORKER_REPORTS, [(f"{report.id}.one", encode_report(report))], NOW))
    door = ServiceDoor(
        "d", "gearman", "h:4730", "h", "open", NOW.to_datetime(), functions={MINE: 1, THEIRS: 2}
    )
    perform(write_reports(DOOR_REPORTS, [("gearman.one", encode_door(door))], NOW))
    perform(write_api_key(KEY.key.id, b"", encode_api_key(KEY.key)))
    texts = [entry(f"entry-of-{queue}", f'Queue("{queue}")', payload=PAYLOAD) for queue in QUEUES]
    announce(client, "scheduler", *texts, lapses=NOW.seconds + 60)


def arguments(verb: str, queue: str) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return how a verb is called for a queue; None for one that this table does not know."""
    failed = (queue, f"failed-in-{queue}")
    calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "queues": ((), {}),
        "attention": ((), {}),
        "snooze_finding": (("poison", queue), {"duration": 3_600, "reason": "test"}),
        "unsnooze_finding": (("poison", queue), {}),
        "type_configurations": ((), {}),
        "type_configurations_version": ((), {}),
        "type_configuration": ((queue,), {}),
        "type_configuration_versions": ((queue,), {}),
        "set_type_configuration": ((queue, {"max_run": 2}), {}),
        "delete_type_configuration": ((queue,), {}),
        "api_keys": ((), {}),
        "lease_workers": ((), {}),
        "deliveries": ((), {}),
        "commands": ((), {}),
        "service_doors": ((), {}),
        "api_key": ((KEY.key.id,), {}),
        "make_api_key": (("billing", ["tasks:write"]), {}),
        "rotate_api_key": ((KEY.key.id,), {}),
        "delete_api_key": ((KEY.key.id,), {}),
        "set_wait_objective": ((queue, 30), {}),
        "queue": ((queue,), {}),
        "queue_infos": ((), {}),
        "audit": ((), {}),
        "refusals": ((), {}),
        "history": ((queue, 2), {}),
        "groups": ((queue,), {}),
        "pause_queue": ((queue,), {"reason": "test"}),
        "resume_queue": ((queue,), {}),
        "set_queue_limits": ((queue,), {"max_run": 3}),
        "delete_queue": ((queue,), {"force": True}),
        "tasks": ((queue, "archived"), {}),
        "walk_tasks": ((queue, "archived"), {}),
        "find_tasks": ((["a", failed[1]],), {}),
        "task": (failed, {}),
        "errors": ((queue,), {}),
        "error_reports": ((), {}),
        "state_counts": (("archived",), {}),
        "types": ((queue,), {}),
        "search": (("",), {"limit": 1_000}),
        "export": (("",), {"limit": 100}),
        "explain_search": (("type:email:*",), {}),
        "complete_query": (("queue:", 6), {}),
        "run_task": (failed, {}),
        "cancel_task": ((queue, f"runs-in-{queue}"), {}),
        "archive_task": ((queue, f"fails-in-{queue}"), {}),
        "delete_task": (failed, {}),
        "reschedule_task": ((queue, f"due-in-{queue}", NOW.to_datetime()), {}),
        "edit_payload": ((*failed, b"{}"), {}),
        "enqueue": ((queue, Task("t", b"{}")), {}),
        "import_tasks": ((queue, [Task("t", b"{}", task_id="imported")]), {}),
        "run_tasks": ((queue, [f"failed-in-{queue}"]), {}),
        "cancel_tasks": ((queue, [f"runs-in-{queue}"]), {}),
        "archive_tasks": ((queue, [f"fails-in-{queue}"]), {}),
        "delete_tasks": ((queue, [f"failed-in-{queue}"]), {}),
        "run_all_tasks": ((queue, "archived"), {}),
        "archive_all_tasks": ((queue, "retry"), {}),
        "delete_all_tasks": ((queue, "archived"), {}),
        "preview_operation": (("run", Targets({queue: [f"failed-in-{queue}"]})), {}),
        "start_operation": (("run", Targets({queue: [f"failed-in-{queue}"]})), {"reason": "why"}),
        "run_operation": ((f"op-of-{queue}",), {}),
        "pause_operation": ((f"op-of-{queue}",), {}),
        "resume_operation": ((f"op-of-{queue}",), {}),
        "stop_operation": ((f"op-of-{queue}",), {}),
        "undo_operation": ((f"op-of-{queue}",), {}),
        "operation": ((f"op-of-{queue}",), {}),
        "operations": ((), {}),
        "servers": ((), {}),
        "schedules": ((), {}),
        "quiet_server": (("only-" + queue,), {}),
        "quiet_servers": ((["only-" + queue],), {}),
        "stop_servers": ((["only-" + queue],), {}),
        "stop_server": (("only-" + queue,), {}),
        "task_types": ((), {}),
        "schedule_events": ((f"entry-of-{queue}",), {}),
        "recent_events": ((), {}),
        "follow": ((), {"seconds": 0}),
        "redis_info": ((), {}),
        "redis_texts": ((), {}),
        "queue_locations": ((), {}),
        "redis_report": ((), {}),
        "attempt_series": ((), {"since": NOW.to_datetime()}),
        "marks": ((NOW.to_datetime(),), {}),
        "add_mark": (("deploy",), {}),
        "remove_mark": (("none",), {}),
        "views": ((), {}),
        "group_page": ((queue,), {}),
        "queue_limits": ((queue,), {}),
        "queue_nodes": ((queue,), {}),
        "wait_task": ((*failed, 0), {}),
        "enqueue_copy": (failed, {}),
        "pause_schedule": ((f"entry-of-{queue}",), {}),
        "resume_schedule": ((f"entry-of-{queue}",), {}),
        "run_schedule": ((f"entry-of-{queue}",), {}),
        "examine": ((), {"pause": 0}),
        "repair": ((), {"pause": 0}),
        "replicas": ((), {}),
        "save_view": (("mine", "tasks", f"queue:{queue}"), {}),
        "share_view": (("ours", "tasks", f"queue:{queue}"), {}),
        "delete_view": (("none",), {}),
        "delete_shared_view": ((view_id("root", f"view of {queue}"),), {}),
    }
    return calls.get(verb)
