import os
import signal
from collections.abc import Generator

import hypothesis
import pytest


def _reset_signals() -> None:
    """Undo what the caller of the tests left ignored or blocked; children would inherit it.

    A shell starts `make test &` with SIGINT ignored, and nohup ignores SIGHUP.
    """
    for number in signal.valid_signals() - {signal.SIGPIPE, getattr(signal, "SIGXFSZ", signal.SIGPIPE)}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, ())


_reset_signals()

# How long an example takes says how busy the machine is, nothing else. `make properties` tries more examples.
EXAMPLES = int(os.environ.get("PYASYNQ_EXAMPLES") or 40)
hypothesis.settings.register_profile("pyasynq", deadline=None, max_examples=EXAMPLES)
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
    "tests.collection",
    "tests.sampling",
]


def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes share the tests: each waits most of its time for servers and children."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores * 2 + 1


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


_HANDLED = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))


@pytest.fixture(autouse=True)
def _signal_handlers() -> Generator[None, None, None]:
    """Fail a test that leaves other handlers of signals: children of later tests would inherit them."""
    before = [signal.getsignal(number) for number in _HANDLED]
    yield
    after = [signal.getsignal(number) for number in _HANDLED]
    for number, handler in zip(_HANDLED, before, strict=True):
        signal.signal(number, handler)
    assert before == after
