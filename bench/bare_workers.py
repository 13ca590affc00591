"""Minimal workers on plain sockets: `python -m bench.bare_workers PORT KEY NUMBER [COMMAND...]`.

NUMBER connections subscribe to the next change of KEY (`CLIENT TRACKING`), and then read the key again. With
COMMAND, one more connection runs the command at each notification, and the time of its reply is printed.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from typing import Any

import hiredis


def connect(port: str) -> socket.socket:
    """Open a connection that sends without delay (TCP_NODELAY)."""
    opened = socket.create_connection(("127.0.0.1", int(port)))
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def pack(*words: Any) -> bytes:
    """Encode a command for the Redis protocol."""
    packed: bytes = hiredis.pack_command(words)
    return packed


def main(port: str, key: str, number: str, *command: str) -> None:
    """Run until the process is killed."""
    read = pack("EXISTS", key)
    take = pack(*command) if command else b""
    taker = connect(port) if command else None
    told = {}
    poll = select.poll()
    for _ in range(int(number)):
        connection = connect(port)
        for setting in (("HELLO", "3"), ("CLIENT", "TRACKING", "ON"), ("EXISTS", key)):
            connection.sendall(pack(*setting))
            connection.recv(1 << 16)
        told[connection.fileno()] = connection
        poll.register(connection, select.POLLIN)
    print("ready", flush=True)
    while True:
        for descriptor, _ in poll.poll():
            if b"invalidate" not in told[descriptor].recv(1 << 16):
                continue
            if taker is not None:
                taker.sendall(take)
                taker.recv(1 << 16)
                print(time.time_ns(), flush=True)
            told[descriptor].sendall(read)


if __name__ == "__main__":
    main(*sys.argv[1:])
