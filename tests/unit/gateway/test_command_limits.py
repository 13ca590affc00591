"""Resource limits of a command, in a process that has limits itself."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only on Linux: others run no commands")

_PROGRAM = """
import json, resource, sys
from pyasynq.gateway.hosted.cmd.launcher import sandbox
kind, own, order = json.loads(sys.argv[1])
resource.setrlimit(kind, (own, own))
order |= {"cwd": "/", "umask": 0o77, "user": None}
sandbox._limit(order, None, [""])
print(json.dumps(resource.getrlimit(kind)))
"""


def _limits_of(kind: int, own: int, limits: dict[str, int]) -> list[int]:
    """Return soft and hard limit of a command whose service has a limit of its own."""
    order: dict[str, Any] = {"limits": limits}
    command = [sys.executable, "-c", _PROGRAM, json.dumps([kind, own, order])]
    return list(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))


@pytest.mark.parametrize(("cpu", "found"), [(10, [10, 11]), (60, [60, 60]), (100, [60, 60])])
def test_a_cpu_limit_is_at_most_that_of_the_service(cpu: int, found: list[int]) -> None:
    """Without root, a higher one would be refused, and the command would not start."""
    import resource  # noqa: PLC0415 - not there on Windows

    assert found == _limits_of(resource.RLIMIT_CPU, 60, {"cpu": cpu})


def test_the_number_of_open_files_is_at_most_that_of_the_service() -> None:
    """The same for the other limits."""
    import resource  # noqa: PLC0415 - not there on Windows

    assert [200, 200] == _limits_of(resource.RLIMIT_NOFILE, 200, {"files": 500})
