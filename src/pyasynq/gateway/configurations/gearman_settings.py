"""Settings of the Gearman server: the address on which it listens, and the networks that it admits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq.errors import InvalidOptionError

from .field_names import join_path, read_table
from .host_rule import parse_networks
from .listen_address import is_loopback_host, parse_listen

if TYPE_CHECKING:
    from .host_rule import Network

_DEFAULT_LISTEN: Final = "127.0.0.1:4730"


@dataclass(frozen=True, slots=True)
class GearmanSettings:
    """Settings of the Gearman server, a protocol gateway (door).

    Attributes:
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        networks: networks that are admitted; empty for all that reach the address.
    """

    host: str
    port: int
    networks: tuple[Network, ...] = ()


def parse_gearman_settings(path: str, value: object) -> GearmanSettings:
    """Parse the settings of the Gearman server from their table in the service's file.

    Raises:
        InvalidOptionError: for an invalid field; the message names the field and the remedy.
    """
    fields = read_table(path, value, ("listen", "networks"))
    host, port = parse_listen(join_path(path, "listen"), fields.get("listen", _DEFAULT_LISTEN))
    networks = parse_networks(join_path(path, "networks"), fields.get("networks", []))
    if not networks and not is_loopback_host(host):
        remedy = "other machines reach this address, and Gearman has no keys: list the networks to admit"
        raise InvalidOptionError(join_path(path, "networks"), list, remedy)
    return GearmanSettings(host, port, networks)
