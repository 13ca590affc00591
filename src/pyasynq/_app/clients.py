"""The app's clients: one for coroutines, one for blocking code, opened when first used."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyasynq._app.client_middleware import blocking_middleware

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq import sync
    from pyasynq._app.client_middleware import ClientMiddleware
    from pyasynq.client import Client


class Clients:
    """Opens a client of either kind at its first use, and again after `close`.

    Args:
        url: returns the connection URL; called at each opening.
        middleware: client middleware, outermost first.
        max_payload: the largest payload in bytes.
        timeout: seconds that one exchange may take.
    """

    def __init__(
        self,
        url: Callable[[], str],
        middleware: list[ClientMiddleware],
        max_payload: int,
        timeout: float,
    ) -> None:
        self._url = url
        self._middleware = middleware
        self._max_payload = max_payload
        self._timeout = timeout
        self._client: Client | None = None
        self._blocking: sync.Client | None = None
        self._opening = threading.Lock()

    def use(self, middleware: ClientMiddleware) -> None:
        """Add client middleware, also to clients that are open."""
        self._middleware.append(middleware)
        if self._client is not None:
            self._client.use(middleware)
        if self._blocking is not None:
            self._blocking.use(blocking_middleware(middleware))

    def asynchronous(self) -> Client:
        """Return the client for coroutines."""
        if self._client is None:
            from pyasynq.client import Client

            self._client = Client(
                self._url(),
                max_payload=self._max_payload,
                timeout=self._timeout,
                middleware=tuple(self._middleware),
            )
        return self._client

    def blocking(self) -> sync.Client:
        """Return the client for blocking code, which all threads share."""
        with self._opening:
            if self._blocking is None:
                from pyasynq import sync

                self._blocking = sync.Client(
                    self._url(),
                    max_payload=self._max_payload,
                    timeout=self._timeout,
                    middleware=tuple(map(blocking_middleware, self._middleware)),
                )
            return self._blocking

    async def close(self) -> None:
        """Close both clients."""
        self.close_sync()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def close_sync(self) -> None:
        """Close the blocking client."""
        with self._opening:
            blocking, self._blocking = self._blocking, None
        if blocking is not None:
            blocking.close()
