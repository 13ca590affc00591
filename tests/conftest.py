import os
from collections.abc import Generator

import hypothesis
import pytest

# How long an example takes says how busy the machine is, nothing else.
hypothesis.settings.register_profile("pyasynq", deadline=None)
hypothesis.settings.load_profile("pyasynq")

pytest_plugins = [
    "tests.fix_server",
    "tests.fix_broker",
    "tests.fix_cluster",
    "tests.fix_drivers",
    "tests.fix_proxy",
    "tests.fix_sentinel",
    "tests.fix_replica",
    "tests.fix_tls",
    "tests.fix_worker",
    "tests.fix_children",
]


def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes share the tests: each waits half of its time for servers and children."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + 2


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep to UTF-8 what was logged: some handlers under test fail with text that is none.

    The processes that share the tests send one another their reports as UTF-8.
    """
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report
