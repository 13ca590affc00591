from __future__ import annotations

import os
import signal

from pyasynq._redis.endpoint import RedisEndpoint
from pyasynq._redis.url import parse_redis_url


def test_a_fork_while_a_thread_starts_the_server_does_not_block_the_child() -> None:
    """The child inherits the lock and not the thread that would give it back."""
    location = RedisEndpoint(parse_redis_url("embedded://"))
    with location._lock:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(5)
            location.release()
            os._exit(0)
    assert 0 == os.waitpid(child, 0)[1]
