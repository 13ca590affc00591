from __future__ import annotations

import pytest

from pyasynq._redis.addresses import (
    Authority,
    format_address,
    parse_addresses,
    parse_authority,
    split_authority,
)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("h1", (("h1", 6379),)),
        ("h1,h2:7001", (("h1", 6379), ("h2", 7001))),
        ("h1:7000, h1:7000,h1:7001", (("h1", 7000), ("h1", 7001))),
        ("10.0.0.1:7000", (("10.0.0.1", 7000),)),
        ("[::1]:7000,[fe80::2]", (("::1", 7000), ("fe80::2", 6379))),
        ("H1:7000", (("h1", 7000),)),
    ],
)
def test_hosts_are_read_in_their_order_and_each_once(
    text: str, addresses: tuple[tuple[str, int], ...]
) -> None:
    """A port that is left out is the default one."""
    assert addresses == parse_addresses(text, 6379)


@pytest.mark.parametrize(
    "text", ["", ",", "h1,", "h1:x", "h1:0", "h1:65536", "h1:7:8", "[::1", "[::1]7", "h%1", "h 1", "h1:-1"]
)
def test_a_malformed_host_or_port_is_refused_without_being_shown(text: str) -> None:
    """What looks like a port may be a part of a password."""
    with pytest.raises(ValueError, match=r"^a (host without a name|port that|bracket that)") as caught:
        parse_addresses(text, 6379)
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "authority"),
    [
        ("h1,h2", Authority(None, None, (("h1", 1), ("h2", 1)))),
        (":pw@h1", Authority(None, "pw", (("h1", 1),))),
        ("bob:p%40w%2C@h1:2", Authority("bob", "p@w,", (("h1", 2),))),
        ("bob:a,b@c@h1", Authority("bob", "a,b@c", (("h1", 1),))),
    ],
)
def test_user_and_password_come_before_the_hosts(text: str, authority: Authority) -> None:
    """Only the last @ ends them."""
    assert authority == parse_authority(text, 1)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("redis-cluster://h1,h2", ("h1,h2", "")),
        ("redis-cluster://u:p@[::1]:1,[::2]:2/0?db=0#f", ("u:p@[::1]:1,[::2]:2", "/0?db=0#f")),
        ("redis-cluster://h1?db=0", ("h1", "?db=0")),
    ],
)
def test_the_hosts_end_where_path_or_parameters_begin(url: str, parts: tuple[str, str]) -> None:
    """Either may be missing."""
    assert parts == split_authority(url)


def test_an_address_is_shown_as_people_write_it() -> None:
    """An IPv6 address is in brackets."""
    assert format_address(("h1", 7000)) == "h1:7000"
    assert format_address(("::1", 7000)) == "[::1]:7000"
