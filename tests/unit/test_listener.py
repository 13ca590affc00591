"""Sockets at which commands answer HTTP."""

from __future__ import annotations

import socket

import pytest

from pyasynq._listener import format_url, open_listener
from pyasynq.errors import ConfigurationError


def test_a_port_that_another_program_has_is_told_without_an_error_number() -> None:
    """The reader learns what to do."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigurationError) as caught:
            open_listener("127.0.0.1", port)
    remedy = "another program listens there; stop it, or choose another port"
    assert f"http://127.0.0.1:{port} cannot be opened: {remedy}" == str(caught.value)


def test_an_address_of_another_machine_is_told() -> None:
    """192.0.2.0/24 is for documentation (RFC 5737)."""
    with pytest.raises(ConfigurationError, match=r"^http://192\.0\.2\.1:80 cannot be opened: [A-Z][a-z ]+$"):
        open_listener("192.0.2.1", 80)


def test_localhost_is_the_address_that_programs_try_first() -> None:
    """Many resolve it to 127.0.0.1 only."""
    with open_listener("localhost", 0) as listener:
        assert "127.0.0.1" == listener.getsockname()[0]


@pytest.mark.parametrize(("host", "url"), [("127.0.0.1", "http://127.0.0.1:80"), ("::1", "http://[::1]:80")])
def test_an_address_is_shown_as_a_url(host: str, url: str) -> None:
    """IPv6 needs brackets (RFC 3986)."""
    assert url == format_url(host, 80)
