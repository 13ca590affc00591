"""A `redis.Redis` for a cluster, which tests read as they read a single server.

Redis-py's own cluster client answers many commands with a dictionary of nodes, and refuses some. This client
sends a command to the node of its key. A command without a key goes to every primary, and the replies are
merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import redis
from redis.crc import key_slot
from redis.exceptions import AskError, MovedError

from pyasynq._redis.url import parse_redis_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.invariants import RedisClient

_EVERYWHERE: Final = {
    "ACL", "CLIENT", "CONFIG", "DBSIZE", "FLUSHALL", "FLUSHDB", "KEYS", "SCRIPT", "SLOWLOG"
}  # fmt: skip
_ANYWHERE: Final = {"INFO", "PING", "PUBLISH", "TIME", "PUBSUB", "COMMAND"}
_SUMMED: Final = {"commandstats", "stats"}
_SPLIT: Final = {"DEL", "EXISTS", "MGET"}
_KEY_THIRD: Final = {"EVAL", "EVALSHA"}
_KEY_SECOND: Final = {"MEMORY", "OBJECT"}


class ClusterClient(redis.Redis):
    """Client that returns what a single server would answer."""

    def __init__(self, seeds: Sequence[tuple[str, int]]) -> None:
        super().__init__(host=seeds[0][0], port=seeds[0][1], driver_info=None)
        self._nodes: dict[tuple[str, int], RedisClient] = {}
        self._owners: list[tuple[str, int]] = []
        self._seeds = seeds

    def find_node(self, key: Any) -> RedisClient:
        """Return a client of the node that serves a key or a slot; of any node without both."""
        if not self._owners:
            self._learn()
        if key is None or isinstance(key, int):
            return self._client(self._owners[key or 0])
        name = key if isinstance(key, bytes) else str(key).encode("utf-8", "surrogateescape")
        return self._client(self._owners[key_slot(name)])

    def node_for(self, *command: Any) -> RedisClient:
        """Return a client of the node that is to get a command."""
        name = str(command[0]).upper()
        if name in _EVERYWHERE | _ANYWHERE:
            return self.primaries()[0]
        place = 3 if name in _KEY_THIRD else 2 if name in _KEY_SECOND else 1
        return self.find_node(command[place])

    def primaries(self) -> list[RedisClient]:
        """Return clients of all nodes that serve slots."""
        if not self._owners:
            self._learn()
        return [self._client(address) for address in dict.fromkeys(self._owners)]

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run a command on the nodes that it concerns."""
        name = str(args[0]).split()[0].upper()
        if name in _EVERYWHERE:
            answers = [node.execute_command(*args, **options) for node in self.primaries()]
            return _together(answers)
        if name == "INFO" and _SUMMED.intersection(args):
            return _sum([node.execute_command(*args, **options) for node in self.primaries()])
        if name in _ANYWHERE:
            return self.primaries()[0].execute_command(*args, **options)
        if name in _SPLIT and len(args) > 2:
            answers = [self.execute_command(args[0], key, **options) for key in args[1:]]
            return sum(answers) if name != "MGET" else [value for [value] in answers]
        if name == "MSET":
            for key, value in zip(args[1::2], args[2::2], strict=True):
                self.set(key, value)
            return True
        return self._follow(self.node_for(*args[0].split(), *args[1:]), args, options)

    def scan_iter(self, *args: Any, **options: Any) -> Iterator[Any]:
        """Iterate over the keys of all nodes."""
        for node in self.primaries():
            yield from node.scan_iter(*args, **options)

    def pipeline(self, transaction: Any = True, shard_hint: Any = None) -> Any:
        """Return a pipeline: commands of one node run as on one server, others one by one."""
        del shard_hint
        return _Batch(self, transaction)

    def pubsub(self, **options: Any) -> Any:
        """Return a listener on one node, which hears what is published on any."""
        return self.primaries()[0].pubsub(**options)

    def close(self) -> None:
        """Close all connections."""
        for node in self._nodes.values():
            node.close()
        super().close()

    def _follow(self, node: RedisClient, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        while True:
            try:
                return node.execute_command(*args, **options)
            except AskError as error:
                there = self._client((error.host, error.port))
                with there.pipeline(transaction=False) as both:
                    both.execute_command("ASKING")
                    both.execute_command(*args, **options)
                    return both.execute()[1]
            except MovedError as error:
                self._learn()
                node = self._client((error.host, error.port))

    def _learn(self) -> None:
        owners: list[tuple[str, int]] = [("", 0)] * 16_384
        for seed in [*self._nodes, *self._seeds]:
            try:
                slots = raw(self._client(seed), "CLUSTER", "SLOTS")
            except redis.ConnectionError:
                continue
            for first, last, (host, port, *_), *_ in slots:
                owners[first : last + 1] = [(host.decode(), port)] * (last + 1 - first)
            self._owners = owners
            return
        raise redis.ConnectionError("no node of the cluster answers")

    def _client(self, address: tuple[str, int]) -> RedisClient:
        if address not in self._nodes:
            self._nodes[address] = redis.Redis(host=address[0], port=address[1], driver_info=None)
        return self._nodes[address]


class _Batch(ClusterClient):
    """Buffered commands, which `execute` sends."""

    def __init__(self, client: ClusterClient, transaction: Any) -> None:
        super().__init__(client._seeds)
        self._whole = client
        self._transaction = transaction
        self._commands: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __len__(self) -> int:
        return len(self._commands)

    def __bool__(self) -> bool:
        return True

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self._commands.append((args, options))
        return self

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        commands, self._commands = self._commands, []
        if node := self._only_node([args for args, _ in commands]):
            with node.pipeline(transaction=self._transaction) as batch:
                for args, options in commands:
                    batch.execute_command(*args, **options)
                return list(batch.execute(raise_on_error))
        answers: list[Any] = []
        for args, options in commands:
            try:
                answers.append(self._whole.execute_command(*args, **options))
            except redis.ResponseError as error:
                if raise_on_error:
                    raise
                answers.append(error)
        return answers

    def _only_node(self, commands: list[tuple[Any, ...]]) -> RedisClient | None:
        """Return the node of all commands; None if they are for several nodes."""
        if any(_names_many(str(args[0]).upper(), len(args)) for args in commands):
            return None
        nodes = [self._whole.node_for(*str(args[0]).split(), *args[1:]) for args in commands]
        return nodes[0] if nodes and all(node is nodes[0] for node in nodes) else None


def _names_many(name: str, words: int) -> bool:
    return name in _EVERYWHERE or (name in _SPLIT | {"MSET"} and words > 2)


def raw(client: RedisClient, *command: Any) -> Any:
    """Run a command on one node, and return the reply without conversion."""
    connection = client.connection_pool.get_connection()
    try:
        connection.send_command(*command)
        return connection.read_response()
    finally:
        client.connection_pool.release(connection)


def _together(answers: list[Any]) -> Any:
    if all(isinstance(answer, list) for answer in answers):
        return [one for answer in answers for one in answer]
    if all(isinstance(answer, int) and not isinstance(answer, bool) for answer in answers):
        return sum(answers)
    return answers[0]


def _sum(answers: list[Any]) -> Any:
    """Add up the numbers of dictionaries, and of those inside them; of all else take the first."""
    if all(isinstance(answer, dict) for answer in answers):
        names = dict.fromkeys(name for answer in answers for name in answer)
        return {name: _sum([answer[name] for answer in answers if name in answer]) for name in names}
    return sum(answers) if all(isinstance(answer, int | float) for answer in answers) else answers[0]


def server_url_of(url: str) -> str:
    """Return the URL of the server that is the primary now, where Sentinels are named."""
    target = parse_redis_url(url)
    if target.sentinels is None:
        return url
    for host, port in target.sentinels.addresses:
        with redis.Redis(host=host, port=port) as sentinel:
            try:
                reply = raw(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.sentinels.primary)
            except redis.ConnectionError:
                continue
        return f"redis://{reply[0].decode()}:{int(reply[1])}/{target.database}"
    raise redis.ConnectionError("no Sentinel answers")


def client_of(url: str) -> redis.Redis:
    """Return a client of what a URL names: a server, a primary under Sentinel, or a cluster.

    It does not name itself to the server: its version costs a search of all installed packages each time.
    It waits for replies as long as the test may run: a busy machine is slow, a monitor may be told nothing.
    """
    target = parse_redis_url(url)
    if target.is_cluster:
        return ClusterClient(target.seeds)
    return redis.Redis.from_url(server_url_of(url), driver_info=None, socket_timeout=None)
