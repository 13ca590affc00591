"""The ports that tests give to servers."""

from __future__ import annotations

import socket
import subprocess
import sys

from tests.ports import HOST, free_port, free_ports


def test_two_processes_never_get_the_same_ports() -> None:
    """However often they ask: a Sentinel of one group must not answer for another."""
    own = {port for _ in range(100) for port in free_ports(3)}
    program = "from tests.ports import free_ports; print(*(free_ports(300)))"
    theirs = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert own.isdisjoint(map(int, theirs.stdout.split()))


def test_a_port_that_somebody_listens_at_is_left_out() -> None:
    """The port of the cluster bus is tested too."""
    taken = free_port()
    with socket.create_server((HOST, taken)):
        assert taken not in free_ports(200)
    with socket.create_server((HOST, taken + 10_000)):
        assert taken not in free_ports(200, offset=10_000)
