"""Configurations of the service and of its task types: read from a file or a request, and checked."""

from __future__ import annotations

from .command_rules import CommandRules
from .command_settings import CommandLimits, CommandSettings
from .follower import ConfigurationFollower
from .gearman_settings import GearmanSettings
from .host_rule import HostRule, find_host_rule, parse_host_rules
from .service_file import ServiceFile, ServiceSettings, parse_service_file, read_service_file
from .store import ConfigurationStore
from .task_configuration import TaskConfiguration, parse_task_configuration

__all__ = [
    "CommandLimits",
    "CommandRules",
    "CommandSettings",
    "ConfigurationFollower",
    "ConfigurationStore",
    "GearmanSettings",
    "HostRule",
    "ServiceFile",
    "ServiceSettings",
    "TaskConfiguration",
    "find_host_rule",
    "parse_host_rules",
    "parse_service_file",
    "parse_task_configuration",
    "read_service_file",
]
