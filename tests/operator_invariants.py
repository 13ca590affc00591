"""Invariants of the keys that operators write; a part of `tests/invariants.py`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyasynq._broker.operating.api_keys import MAX_API_KEYS
from pyasynq._broker.operating.configurations import MAX_CONFIGURATIONS
from pyasynq._broker.operating.instance_reports import MAX_REPORT_BYTES
from pyasynq._broker.operating.snoozes import MAX_SNOOZES, decode_snooze
from pyasynq._broker.operating.views import MAX_VIEWS
from pyasynq._wire.keys import (
    API_KEYS_KEY,
    AUDIT_KEY,
    COMMANDS_KEY,
    CONFIGURATIONS_KEY,
    DELIVERIES_KEY,
    DOORS_KEY,
    LEASE_WORKERS_KEY,
    REFUSED_KEY,
    SIGNED_OUT_KEY,
    SNOOZED_KEY,
    VIEWS_KEY,
)
from pyasynq.operations.api_keys import decode_api_key
from pyasynq.operations.audit import decode_entry
from pyasynq.operations.commands import decode_command
from pyasynq.operations.deliveries import decode_delivery_report
from pyasynq.operations.lease_workers import decode_report
from pyasynq.operations.service_doors import decode_door
from pyasynq.operations.type_configurations import decode_content
from pyasynq.operations.views import decode_view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.invariants import RedisClient

_FIELDS = {AUDIT_KEY: [b"nonce", b"entry"], REFUSED_KEY: [b"who", b"more", b"entry"]}
_LENGTHS = {AUDIT_KEY: 100_000, REFUSED_KEY: 10_000}
_NODE = 100
"""Number of entries above the maximum that Redis may keep with approximate trimming."""


def operator_violations(client: RedisClient) -> Iterator[str]:
    """Yield what is wrong with the audit and with saved views, as sentences."""
    yield from _view_violations(client)
    yield from _snooze_violations(client)
    yield from _signed_out_violations(client)
    yield from _configuration_violations(client)
    yield from _api_key_violations(client)
    yield from _lease_worker_violations(client)
    yield from _delivery_violations(client)
    yield from _door_violations(client)
    yield from _command_violations(client)
    for key, names in _FIELDS.items():
        if client.type(key) != b"stream":
            continue
        if client.xlen(key) > _LENGTHS[key] + _NODE:
            yield f"{key} has {client.xlen(key)} entries"
        for position, fields in client.xrange(key):
            if names != list(fields):
                yield f"{key} has the fields {list(fields)} at {position.decode()}"
            elif decode_entry("", fields[b"entry"]) is None:
                yield f"{key} says {fields[b'entry']!r}"


def _snooze_violations(client: RedisClient) -> Iterator[str]:
    if client.type(SNOOZED_KEY) != b"zset":
        return
    snoozes = client.zrange(SNOOZED_KEY, 0, -1)
    if len(snoozes) > MAX_SNOOZES:
        yield f"{SNOOZED_KEY} has {len(snoozes)} snoozes"
    for data in snoozes:
        if decode_snooze(data) is None:
            yield f"{SNOOZED_KEY} says {data!r}"


def _signed_out_violations(client: RedisClient) -> Iterator[str]:
    if client.type(SIGNED_OUT_KEY) != b"zset":
        return
    if client.ttl(SIGNED_OUT_KEY) < 0:
        yield f"{SIGNED_OUT_KEY} never expires"
    for digest in client.zrange(SIGNED_OUT_KEY, 0, -1):
        if not re.fullmatch(b"[0-9a-f]{32}", digest):
            yield f"{SIGNED_OUT_KEY} says {digest!r}"


def _configuration_violations(client: RedisClient) -> Iterator[str]:
    if client.type(CONFIGURATIONS_KEY) != b"hash":
        return
    found = client.hgetall(CONFIGURATIONS_KEY)
    newest = int(found.pop(b"", b"0"))
    if len(found) > MAX_CONFIGURATIONS:
        yield f"{CONFIGURATIONS_KEY} has {len(found)} configurations"
    for name, value in found.items():
        version, _, content = value.partition(b" ")
        if not version.isdigit() or int(version) > newest or decode_content(content) is None:
            yield f"{CONFIGURATIONS_KEY} says {value!r} of {name!r}"


def _api_key_violations(client: RedisClient) -> Iterator[str]:
    if client.type(API_KEYS_KEY) != b"hash":
        return
    found = client.hgetall(API_KEYS_KEY)
    if len(found) > MAX_API_KEYS:
        yield f"{API_KEYS_KEY} has {len(found)} keys"
    for key_id, value in found.items():
        if decode_api_key(key_id.decode(), value) is None:
            yield f"{API_KEYS_KEY} says {value!r} of {key_id!r}"


def _lease_worker_violations(client: RedisClient) -> Iterator[str]:
    if client.type(LEASE_WORKERS_KEY) != b"hash":
        return
    if client.ttl(LEASE_WORKERS_KEY) < 0:
        yield f"{LEASE_WORKERS_KEY} never expires"
    for name, value in client.hgetall(LEASE_WORKERS_KEY).items():
        second, _, report = value.partition(b" ")
        read = decode_report(name.decode().partition(".")[0], report)
        if not second.isdigit() or read is None or len(report) > MAX_REPORT_BYTES:
            yield f"{LEASE_WORKERS_KEY} says {value!r} of {name!r}"


def _delivery_violations(client: RedisClient) -> Iterator[str]:
    if client.type(DELIVERIES_KEY) != b"hash":
        return
    if client.ttl(DELIVERIES_KEY) < 0:
        yield f"{DELIVERIES_KEY} never expires"
    for name, value in client.hgetall(DELIVERIES_KEY).items():
        second, _, report = value.partition(b" ")
        read = decode_delivery_report(report)
        if not second.isdigit() or read is None or len(report) > MAX_REPORT_BYTES:
            yield f"{DELIVERIES_KEY} says {value!r} of {name!r}"


def _command_violations(client: RedisClient) -> Iterator[str]:
    if client.type(COMMANDS_KEY) != b"hash":
        return
    if client.ttl(COMMANDS_KEY) < 0:
        yield f"{COMMANDS_KEY} never expires"
    for name, value in client.hgetall(COMMANDS_KEY).items():
        second, _, report = value.partition(b" ")
        if not second.isdigit() or decode_command(report) is None or len(report) > MAX_REPORT_BYTES:
            yield f"{COMMANDS_KEY} says {value!r} of {name!r}"


def _door_violations(client: RedisClient) -> Iterator[str]:
    if client.type(DOORS_KEY) != b"hash":
        return
    if client.ttl(DOORS_KEY) < 0:
        yield f"{DOORS_KEY} never expires"
    for name, value in client.hgetall(DOORS_KEY).items():
        second, _, report = value.partition(b" ")
        if not second.isdigit() or decode_door(report) is None or len(report) > MAX_REPORT_BYTES:
            yield f"{DOORS_KEY} says {value!r} of {name!r}"


def _view_violations(client: RedisClient) -> Iterator[str]:
    if client.type(VIEWS_KEY) != b"hash":
        return
    views = client.hgetall(VIEWS_KEY)
    if len(views) > MAX_VIEWS:
        yield f"{VIEWS_KEY} has {len(views)} views"
    for name, data in views.items():
        if decode_view(name.decode(), data) is None:
            yield f"{VIEWS_KEY} says {data!r}"
