"""Sessions of hosts that tasks of the kind `http` call."""

from __future__ import annotations

import asyncio
import ssl
import threading
from typing import TYPE_CHECKING

from pyasynq.gateway.configurations import HostRule
from pyasynq.gateway.hosted.http import delivery
from tests.run_async import run_async

if TYPE_CHECKING:
    import pytest


@run_async
async def test_hosts_share_the_settings_of_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's certificates are read once, in a thread, so a hundred hosts do not hold up the loop."""
    files: list[str] = []

    def make(file: str) -> ssl.SSLContext:
        assert threading.current_thread() is not threading.main_thread()
        files.append(file)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    monkeypatch.setattr(delivery, "_make_tls", make)
    rules = {name: HostRule(name, ca_file="own.pem" if name == "c" else "") for name in "abc"}
    deliveries = delivery.Deliveries(rules)
    try:
        sessions = await asyncio.gather(*(deliveries._session_of(rules[name]) for name in "aabbc"))
        assert ["", "own.pem"] == files
        assert 3 == len(set(sessions))
        assert sessions[0] is await deliveries._session_of(rules["a"])
    finally:
        await deliveries.close()
