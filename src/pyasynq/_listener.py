"""Listening sockets of probes, and of the commands that serve HTTP."""

from __future__ import annotations

import errno
import os
import socket
from typing import Final

from pyasynq._visible_text import visible
from pyasynq.errors import ConfigurationError

_BACKLOG: Final = 2_048
"""Listen backlog: maximum number of connections that wait to be accepted; the kernel may allow fewer."""


def open_listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0 chooses a free one.

    Raises:
        ConfigurationError: if the address is in use, or is not an address of this machine.
    """
    try:
        families = [info[0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        # `localhost` has addresses of both families: prefer IPv4.
        family = socket.AF_INET if socket.AF_INET in families else families[0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        address = format_url(host, port)
        number = error.errno
        if number == errno.EADDRINUSE:
            remedy = "another program listens there; stop it, or choose another port"
        elif number is None or isinstance(error, socket.gaierror):
            remedy = visible(error)
        else:
            remedy = os.strerror(number)  # the error's own text repeats the address
        raise ConfigurationError(f"{address} cannot be opened: {remedy}") from None


def format_url(host: str, port: int) -> str:
    """Return the address as a URL."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
