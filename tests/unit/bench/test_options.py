from __future__ import annotations

import pytest

from bench.contestants import DRAINING, MAIN, PLAIN, VALKEY, Length, choose
from bench.environments import ALL_PEERS, PEERS, PYTHON_PEERS
from bench.measurements import MEASUREMENTS
from bench.run import chosen_measurements, chosen_peers, length_of, parser


def test_measurements_are_run_in_their_order() -> None:
    """However they are named."""
    options = parser().parse_args(["--only", "enqueue, drain"])

    assert ["drain", "enqueue"] == [measurement.key for measurement in chosen_measurements(options)]


@pytest.mark.parametrize("length", [["--long"], ["--smoke"]])
def test_long_and_smoke_runs_leave_no_measurement_out(length: list[str]) -> None:
    """The one measures everything, the other sees that everything works."""
    assert list(MEASUREMENTS) == chosen_measurements(parser().parse_args(length))


def test_the_default_run_is_the_short_one() -> None:
    """Recovery alone takes minutes a round."""
    keys = {measurement.key for measurement in chosen_measurements(parser().parse_args([]))}

    assert not {"recovery", "payload"} & keys


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--peers", "go,celery"], ["pyasynq", "asynq", "celery"]),
        (["--peers", "none"], ["pyasynq"]),
        (["--peers", "pyasynq,huey"], ["pyasynq", "huey"]),
        (["--smoke"], ["pyasynq", "asynq", "huey"]),
        ([], list(ALL_PEERS)),
    ],
)
def test_pyasynq_always_takes_part(arguments: list[str], expected: list[str]) -> None:
    """The measured systems are pyasynq and those that are named, or all."""
    assert expected == chosen_peers(parser().parse_args(arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "drian"], "--only: there is no drian; there are drain, enqueue"),
        (["--peers", "sidekiq"], "--peers: there is no sidekiq; there are pyasynq, asynq"),
        (["--rounds", "0"], "0 is less than 1"),
        (["--tasks", "many"], "invalid"),
        (["--long", "--smoke"], "not allowed with"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message lists the names that exist."""
    with pytest.raises(SystemExit) as exit_info:
        _choose(arguments)

    assert 2 == exit_info.value.code
    assert message in capsys.readouterr().err


def _choose(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)
    chosen_measurements(options)
    chosen_peers(options)


def test_longer_runs_have_all_contestants_of_shorter_ones() -> None:
    """Both runs then have figures that can be compared."""
    servers = (MAIN, VALKEY)
    smoke, default, long = (
        {contestant.key for contestant in choose(DRAINING, peers=ALL_PEERS, servers=servers, length=length)}
        for length in Length
    )

    assert smoke < default < long
    assert len(DRAINING) == len(long)
    assert length_of(parser().parse_args([])) is Length.DEFAULT


def test_without_valkey_no_peer_claims_to_run_on_it() -> None:
    """It may be the main server, which has its rows already."""
    chosen = choose(DRAINING, peers=ALL_PEERS, servers=(MAIN,), length=Length.LONG)

    assert not [contestant.key for contestant in chosen if "valkey" in contestant.key]


def test_slow_contestants_get_fewer_tasks_and_never_none() -> None:
    """Each gets what it runs in about a second."""
    counts = {contestant.key: contestant.count(50_000) for contestant in DRAINING}

    assert 50_000 == counts["pyasynq"]
    assert 400 == counts["rq"]
    assert 20 == PLAIN.count(1)


def test_keys_of_contestants_are_unique() -> None:
    """Rows are kept by key."""
    keys = [contestant.key for contestant in DRAINING]

    assert sorted(set(keys)) == sorted(keys)


def test_each_peer_in_python_has_its_module_and_its_pins() -> None:
    """Every requirement is pinned, or a run of next year measures something else."""
    assert PYTHON_PEERS
    for name in PYTHON_PEERS:
        lines = (PEERS / f"{name}.txt").read_text().splitlines()
        assert (PEERS / f"{name}.py").exists()
        assert all("==" in line for line in lines if not line.startswith("#"))
