"""Service layer below command line, dashboard and HTTP API: `Operator`, permissions, redaction, audit.

Public names are imported lazily, at first use, so that commands start quickly.
"""

from typing import TYPE_CHECKING, Final

from pyasynq import _lazy_exports

if TYPE_CHECKING:
    from .api_keys import SCOPES, ApiKey, IssuedApiKey
    from .attention import find_attention
    from .audit import AuditEntry, AuditFilters, AuditPage
    from .commands import (
        REPORTED_OUTPUT,
        CommandReport,
        HostedCommand,
        find_command,
        report_commands,
        require_running,
    )
    from .deliveries import (
        HIDDEN_VALUE,
        MOST_BODY,
        DeliveryReport,
        FailedExchange,
        HostDeliveries,
        add_counts,
        class_of_status,
        find_duration,
        judge_requests,
        make_delivery_id,
        report_deliveries,
    )
    from .doctoring import Examination
    from .finding import Attention, AttentionFinding, FindingAction
    from .host_gates import GateAnswer, HostGate
    from .importing import ImportReport, parse_task_line
    from .key_rates import KeyAllowance, spend_key_request
    from .lease_workers import (
        HeldTask,
        LeaseWorker,
        LeaseWorkerReport,
        make_worker_id,
        report_lease_workers,
    )
    from .limit_report import LimitReport, find_declared_max_run
    from .operation import (
        MAX_FOUND,
        STATES_OF_ACT,
        Act,
        OperationInfo,
        OperationOptions,
        OperationPreview,
        OperationState,
        Targets,
        needs_reason,
    )
    from .operator import Operator
    from .permissions import ROLES, Access, AnyPermission, Permission, ProgramPermission, User
    from .presentation import Node, Presentation, ShowHook, present
    from .redaction import MASK, RedactHook, Redactor, Withheld
    from .request_rate import RequestRate, parse_request_rate
    from .selection import Budget
    from .server_choice import choose_servers, needs_server_number
    from .service_doors import ServiceDoor, report_doors
    from .sign_outs import is_signed_out, record_sign_out
    from .thresholds import DEFAULT_THRESHOLDS, Thresholds
    from .type_configurations import TypeConfiguration, TypeVersion
    from .verbs import VERBS, Subject, Verb
    from .views import SavedView
    from .worker_lists import MAX_SHARDS, WorkerList, count_listening

_EXPORTS_BY_MODULE: Final = {
    "api_keys": "ApiKey IssuedApiKey SCOPES",
    "attention": "find_attention",
    "audit": "AuditEntry AuditFilters AuditPage",
    "commands": "CommandReport HostedCommand REPORTED_OUTPUT find_command report_commands require_running",
    "deliveries": (
        "DeliveryReport FailedExchange HIDDEN_VALUE HostDeliveries MOST_BODY add_counts class_of_status "
        "find_duration judge_requests make_delivery_id report_deliveries"
    ),
    "doctoring": "Examination",
    "finding": "Attention AttentionFinding FindingAction",
    "importing": "ImportReport parse_task_line",
    "host_gates": "GateAnswer HostGate",
    "key_rates": "KeyAllowance spend_key_request",
    "lease_workers": "HeldTask LeaseWorker LeaseWorkerReport make_worker_id report_lease_workers",
    "limit_report": "LimitReport find_declared_max_run",
    "operation": (
        "Act MAX_FOUND OperationInfo OperationOptions OperationPreview OperationState STATES_OF_ACT "
        "Targets needs_reason"
    ),
    "operator": "Operator",
    "permissions": "Access AnyPermission Permission ProgramPermission ROLES User",
    "presentation": "Node Presentation ShowHook present",
    "redaction": "MASK RedactHook Redactor Withheld",
    "request_rate": "RequestRate parse_request_rate",
    "selection": "Budget",
    "server_choice": "choose_servers needs_server_number",
    "service_doors": "ServiceDoor report_doors",
    "sign_outs": "is_signed_out record_sign_out",
    "thresholds": "DEFAULT_THRESHOLDS Thresholds",
    "type_configurations": "TypeConfiguration TypeVersion",
    "verbs": "Subject VERBS Verb",
    "views": "SavedView",
    "worker_lists": "MAX_SHARDS WorkerList count_listening",
}

__all__ = [
    "DEFAULT_THRESHOLDS",
    "HIDDEN_VALUE",
    "MASK",
    "MAX_FOUND",
    "MAX_SHARDS",
    "MOST_BODY",
    "REPORTED_OUTPUT",
    "ROLES",
    "SCOPES",
    "STATES_OF_ACT",
    "VERBS",
    "Access",
    "Act",
    "AnyPermission",
    "ApiKey",
    "Attention",
    "AttentionFinding",
    "AuditEntry",
    "AuditFilters",
    "AuditPage",
    "Budget",
    "CommandReport",
    "DeliveryReport",
    "Examination",
    "FailedExchange",
    "FindingAction",
    "GateAnswer",
    "HeldTask",
    "HostDeliveries",
    "HostGate",
    "HostedCommand",
    "ImportReport",
    "IssuedApiKey",
    "KeyAllowance",
    "LeaseWorker",
    "LeaseWorkerReport",
    "LimitReport",
    "Node",
    "OperationInfo",
    "OperationOptions",
    "OperationPreview",
    "OperationState",
    "Operator",
    "Permission",
    "Presentation",
    "ProgramPermission",
    "RedactHook",
    "Redactor",
    "RequestRate",
    "SavedView",
    "ServiceDoor",
    "ShowHook",
    "Subject",
    "Targets",
    "Thresholds",
    "TypeConfiguration",
    "TypeVersion",
    "User",
    "Verb",
    "Withheld",
    "WorkerList",
    "add_counts",
    "choose_servers",
    "class_of_status",
    "count_listening",
    "find_attention",
    "find_command",
    "find_declared_max_run",
    "find_duration",
    "is_signed_out",
    "judge_requests",
    "make_delivery_id",
    "make_worker_id",
    "needs_reason",
    "needs_server_number",
    "parse_request_rate",
    "parse_task_line",
    "present",
    "record_sign_out",
    "report_commands",
    "report_deliveries",
    "report_doors",
    "report_lease_workers",
    "require_running",
    "spend_key_request",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_exports.attach(__name__, _EXPORTS_BY_MODULE)
