"""TLS in front of a server: test certificates, and a proxy that terminates TLS and forwards the bytes.

    with TlsFront(redis_url, certificates) as front:
        client = Client(front.url(ssl_ca_certs=certificates.authority))

One event loop in a thread of its own serves all connections: two threads may not use one TLS socket at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

import pytest
import trustme

from pyasynq._redis.url import parse_redis_url
from tests.cluster_client import server_url_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

_PIECE = 65_536


class Certificates:
    """An authority, what it has signed, and another authority that has signed none of it; all as files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        signer = trustme.CA()
        self.authority = self._write("authority.pem", signer.cert_pem.bytes())
        self.stranger = self._write("stranger.pem", trustme.CA().cert_pem.bytes())
        self.server = self._signed(signer, "server", "127.0.0.1", "localhost")
        self.elsewhere = self._signed(signer, "elsewhere", "redis.example")
        self.client = self._signed(signer, "client", "worker.example")

    def _signed(self, signer: trustme.CA, name: str, *identities: str) -> tuple[str, str]:
        """Return the paths of a certificate for these names and of its key."""
        made = signer.issue_cert(*identities)
        chain = b"".join(blob.bytes() for blob in made.cert_chain_pems)
        return self._write(f"{name}.pem", chain), self._write(f"{name}.key", made.private_key_pem.bytes())

    def _write(self, name: str, content: bytes) -> str:
        path = self._folder / name
        path.write_bytes(content)
        return str(path)


class TlsFront:
    """Proxy that terminates TLS on a loopback port, and forwards the bytes to the server of a URL.

    Args:
        url: the server behind it.
        certificate: paths of its certificate and key.
        client_authority: path of the authority that must have signed clients' certificates; None requires no
            certificate.
    """

    def __init__(self, url: str, certificate: tuple[str, str], client_authority: str | None = None) -> None:
        self._target = parse_redis_url(server_url_of(url))
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_authority)
        self._context.load_cert_chain(*certificate)
        if client_authority is not None:
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.port = 0

    def url(self, *, host: str = "127.0.0.1", **options: str) -> str:
        """Return the URL of the front, with parameters such as `ssl_ca_certs`."""
        parameters = "&".join(f"{name}={quote(value, safe='')}" for name, value in options.items())
        return f"rediss://{host}:{self.port}/{self._target.database}?{parameters}"

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._links)

    def cut_all(self) -> None:
        """Cut all open connections."""
        self._loop.call_soon_threadsafe(self._cut_all)

    def __enter__(self) -> Self:
        self._thread.start()
        self._listening.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Many tests expect failed handshakes.
        self._loop.set_exception_handler(lambda loop, details: None)
        self._over = asyncio.Event()
        self._links: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._over.wait()
        server.close()
        self._cut_all()
        if self._links:
            await asyncio.wait(self._links)

    def _cut_all(self) -> None:
        for link in self._links:
            link.cancel()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.ensure_future(self._pass_on(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened = [writer]
        try:
            if self._target.path is None:
                behind = await asyncio.open_connection(self._target.host, self._target.port)
            else:
                behind = await asyncio.open_unix_connection(self._target.path)
            opened.append(behind[1])
            ways = [
                asyncio.ensure_future(_pump(reader, behind[1])),
                asyncio.ensure_future(_pump(behind[0], writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.wait(ways)
        finally:
            for one in opened:
                one.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates, made once."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def tls(redis_url: str, certificates: Certificates) -> Iterator[TlsFront]:
    """TLS before the empty server under test."""
    with TlsFront(redis_url, certificates.server) as front:
        yield front
