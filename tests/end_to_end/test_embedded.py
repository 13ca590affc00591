"""The embedded server as processes: sharing, ending, surviving kills, and the errors of a start."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

import pyasynq
from pyasynq._embedded import folder as folders
from pyasynq.embedded import (
    DataFolderError,
    EmbeddedServer,
    EmbeddedServerError,
    ServerStartError,
    find_server_binary,
    open_embedded,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 20.0
SOURCE_FOLDER = str(Path(pyasynq.__file__).parents[1])

HOLD_A_SERVER = """
    import json, os, subprocess, sys
    from pyasynq.embedded import EmbeddedServer

    sys.stdin.readline()
    server = EmbeddedServer(sys.argv[1] or None).start()
    print(json.dumps({"url": server.url, "pid": server.pid}), flush=True)
    for line in sys.stdin:
        exec(line)
    server.stop()
"""


class User:
    """A process that holds an embedded server until it is told to leave, or killed."""

    def __init__(self, path: Path | str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(HOLD_A_SERVER), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": SOURCE_FOLDER},
            start_new_session=True,
        )

    def begin(self) -> None:
        """Let it start its server."""
        self.tell("")

    def tell(self, line: str) -> None:
        """Let it execute a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        """Wait for what it prints."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def leave(self) -> None:
        """Let it stop its hold and end."""
        self.process.communicate(timeout=PATIENCE)

    def kill(self) -> None:
        """Kill it, and everything in its session, with SIGKILL."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=PATIENCE)


@contextmanager
def using(*paths: Path | str) -> Iterator[list[User]]:
    """Run one user for each path; they have all started when the block begins."""
    users = [User(path) for path in paths]
    try:
        for user in users:
            user.begin()
        yield users
    finally:
        for user in users:
            if user.process.returncode is None:
                user.kill()


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    listed = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listed.stdout.strip() != "" and not listed.stdout.startswith("Z")


def await_end(pid: int) -> bool:
    """Wait until a process has ended; False if it has not within the patience of these tests."""
    return any(not is_running(pid) for _ in folders.poll_pauses(PATIENCE))


def call(url: str, *command: str) -> Any:
    """Send one command to a server."""
    with redis.Redis.from_url(url) as client:
        return client.execute_command(*command)


def guardian_of(server: EmbeddedServer) -> int:
    """The process id of the guardian."""
    assert server._running is not None
    return server._running.guardian_pid


@pytest.fixture(params=["found", "redis-server"])
def binary(request: pytest.FixtureRequest) -> str:
    """The program that is found here, and Redis where it is installed."""
    if request.param == "found":
        return str(find_server_binary().path)
    found = shutil.which("redis-server")
    if found is None:
        pytest.skip("no redis-server on PATH")
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder that does not exist yet."""
    return tmp_path / "data"


def test_a_server_in_memory_leaves_nothing_behind(binary: str) -> None:
    """Its folder, its socket and its processes go with it."""
    server = EmbeddedServer(binary=binary)
    with server:
        assert call(server.url, "SET", "key", "value") is True
        assert server.path is None
        [socket_file] = re.findall(r"unix://(.*)", server.url)
        [folder] = (Path(socket_file).parent).glob(f"{server._memory_name}*")
        pid, guardian = server.pid, guardian_of(server)
    assert not is_running(pid)
    assert await_end(guardian)
    assert not Path(socket_file).exists()
    assert not folder.exists()


def test_two_servers_in_memory_know_nothing_of_each_other() -> None:
    """Each object has its own."""
    with EmbeddedServer() as one, EmbeddedServer() as other:
        assert one.pid != other.pid
        call(one.url, "SET", "key", "value")
        assert call(other.url, "GET", "key") is None


def test_a_process_that_is_given_the_url_reaches_the_server_in_memory() -> None:
    """Worker processes are told the URL of the one that started them."""
    with EmbeddedServer() as server:
        program = "import redis, sys; redis.Redis.from_url(sys.argv[1]).set('key', 'from a child')"
        subprocess.run([sys.executable, "-c", program, server.url], check=True)
        assert b"from a child" == call(server.url, "GET", "key")


def test_a_process_shares_its_server_in_memory_with_itself() -> None:
    """All who open embedded:// get the same one, and it ends with the last."""
    one, other = open_embedded("embedded://"), open_embedded("embedded://")
    pid = one.pid
    assert pid == other.pid
    one.stop()
    assert call(other.url, "PING") is True
    other.stop()
    assert not is_running(pid)


def test_a_url_with_a_relative_path_names_a_folder_here(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same server as by the absolute path."""
    monkeypatch.chdir(data.parent)
    with open_embedded("embedded://./data") as one, open_embedded(f"embedded://{data}") as other:
        assert one.pid == other.pid
        assert data == one.path


def test_data_survives_a_restart(data: Path, binary: str) -> None:
    """A server with a folder writes an append-only file."""
    with EmbeddedServer(data, binary=binary) as server:
        call(server.url, "SET", "key", "value")
    with EmbeddedServer(data, binary=binary) as server:
        assert b"value" == call(server.url, "GET", "key")
        assert find_server_binary(binary).version == server.version
        assert find_server_binary(binary).name == server.name


def test_an_object_can_be_started_and_stopped_again(data: Path) -> None:
    """Each start after a stop is a new hold; repeated stops are harmless."""
    server = EmbeddedServer(data)
    server.stop()
    first = server.start().pid
    assert first == server.start().pid
    server.stop()
    server.stop()
    assert first != server.start().pid
    server.stop()


def test_two_processes_share_one_folder_and_the_last_one_stops_the_server(data: Path) -> None:
    """The first one to leave leaves it to the other."""
    with using(data, data) as (one, other):
        server = one.hear()
        assert server == other.hear()
        one.leave()
        assert call(server["url"], "PING") is True
        other.leave()
    assert not is_running(server["pid"])


def test_joining_needs_no_server_program(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first one starts it."""
    with EmbeddedServer(data) as server:
        monkeypatch.setenv("PYASYNQ_EMBEDDED_BINARY", "/nowhere/valkey-server")
        with EmbeddedServer(data) as joined:
            assert server.pid == joined.pid
            assert server.version == joined.version


def test_the_server_outlives_the_process_that_started_it(data: Path) -> None:
    """Even if that one is killed, as long as another one uses the folder."""
    with using(data) as [starter]:
        server = starter.hear()
        with EmbeddedServer(data) as joined:
            assert server["pid"] == joined.pid
            starter.kill()
            call(joined.url, "SET", "key", "value")
            assert b"value" == call(joined.start().url, "GET", "key")
            assert server["pid"] == joined.pid


@pytest.mark.parametrize("where", ["a folder", "memory"])
def test_killing_every_user_leaves_no_process_and_no_socket(data: Path, where: str) -> None:
    """The kernel frees their locks, and the guardian sees it."""
    path = data if where == "a folder" else ""
    with using(path, path) as users:
        servers = [user.hear() for user in users]
        for user in users:
            user.kill()
        for server in servers:
            assert await_end(server["pid"])
            assert any(
                not Path(server["url"].removeprefix("unix://")).exists()
                for _ in folders.poll_pauses(PATIENCE)
            )


def test_what_was_written_before_the_kill_of_every_user_is_kept(data: Path) -> None:
    """The guardian stops the server in an orderly way."""
    with using(data) as [user]:
        call(user.hear()["url"], "SET", "key", "value")
        user.kill()
    with EmbeddedServer(data) as server:
        assert b"value" == call(server.url, "GET", "key")


def test_five_processes_that_start_at_once_get_one_server(data: Path) -> None:
    """One of them starts it, the others join."""
    with using(*[data] * 5) as users:
        assert 1 == len({user.hear()["pid"] for user in users})


@pytest.mark.long
def test_a_start_while_the_last_user_leaves_gets_a_server(data: Path) -> None:
    """Neither one that is ending nor none at all, however two processes that come and go meet."""
    with using(data) as [user]:
        user.hear()
        user.tell("import redis; ping = lambda: redis.Redis.from_url(server.url).ping()")
        user.tell(
            "print(json.dumps([(server.stop(), server.start(), ping())[2] for _ in range(20)]), flush=True)"
        )
        for _ in range(20):
            with EmbeddedServer(data) as server:
                assert call(server.url, "PING") is True
        assert [True] * 20 == user.hear()


def test_a_killed_server_is_started_again_by_the_next_start(data: Path) -> None:
    """Data that it had passed to the operating system is restored."""
    with EmbeddedServer(data) as server:
        call(server.url, "SET", "key", "value")
        killed, guardian = server.pid, guardian_of(server)
        os.kill(killed, signal.SIGKILL)
        assert await_end(guardian)
        assert killed != server.start().pid
        assert b"value" == call(server.url, "GET", "key")


def test_a_killed_server_in_memory_is_started_again_empty() -> None:
    """The folder of an object in memory stays as long as the object holds it."""
    with EmbeddedServer() as server:
        call(server.url, "SET", "key", "value")
        guardian = guardian_of(server)
        os.kill(server.pid, signal.SIGKILL)
        assert await_end(guardian)
        assert 0 == call(server.start().url, "DBSIZE")


def test_a_killed_guardian_takes_its_server_along(data: Path) -> None:
    """Linux tells the server; elsewhere the next start ends it."""
    with EmbeddedServer(data) as server:
        call(server.url, "SET", "key", "value")
        orphan = server.pid
        os.kill(guardian_of(server), signal.SIGKILL)
        if sys.platform == "linux":
            assert await_end(orphan)
        assert orphan != server.start().pid
        assert not is_running(orphan)
        assert b"value" == call(server.url, "GET", "key")


def test_killing_guardian_and_server_leaves_a_folder_that_starts_again(data: Path) -> None:
    """A stale socket and a stale state file do no harm."""
    with EmbeddedServer(data) as server:
        guardian = guardian_of(server)
        os.kill(guardian, signal.SIGSTOP)
        os.kill(server.pid, signal.SIGKILL)
        os.kill(guardian, signal.SIGKILL)
        assert call(server.start().url, "PING") is True


def test_a_server_without_a_guardian_is_ended_before_another_one_starts(data: Path) -> None:
    """Two servers never write in one folder; the orphan still holds the log's lock, and is asked to end."""
    with EmbeddedServer(data) as server:
        binary, url = find_server_binary(), server.url
    state = json.loads((data / "server.json").read_text())
    socket_file = url.removeprefix("unix://")
    with (data / "server.log").open("a") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        orphan = subprocess.Popen(
            [binary.path, "--port", "0", "--unixsocket", socket_file, "--appendonly", "yes", "--dir", data],
            stdout=log,
        )
    assert any(Path(socket_file).exists() for _ in folders.poll_pauses(PATIENCE))
    assert state["socket"] == socket_file
    with EmbeddedServer(data) as server:
        assert 0 == orphan.wait(PATIENCE)
        assert orphan.pid != server.pid
        assert call(server.url, "PING") is True


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(data: Path) -> None:
    """Users finish their work first: server and guardian live in a session of their own."""
    with EmbeddedServer(data) as server:
        for process in (server.pid, guardian_of(server)):
            assert os.getsid(0) != os.getsid(process)
            assert os.getpgid(0) != os.getpgid(process)


def test_terminating_the_guardian_stops_the_server(data: Path) -> None:
    """As a service manager does with every process of a service."""
    with EmbeddedServer(data) as server:
        pid, guardian = server.pid, guardian_of(server)
        os.kill(guardian, signal.SIGTERM)
        assert await_end(pid)
        assert await_end(guardian)


def test_a_forked_child_holds_the_server_too(data: Path) -> None:
    """The hold belongs to both: the child's stop leaves the parent's, and the parent's end the child's."""
    fork = (
        "pid = os.fork(); "
        "pid or server.stop(); "  # the child lets go
        "pid or print(json.dumps('let go'), flush=True); "
        "pid or os.read(0, 0) or os._exit(0)"
    )
    with using(data) as [user]:
        server = user.hear()
        user.tell(fork)
        assert "let go" == user.hear()
        assert call(server["url"], "PING") is True
        user.tell("os.fork() and os.kill(os.getpid(), 9)")  # the child goes on reading lines, the parent dies
        assert -signal.SIGKILL == user.process.wait(PATIENCE)
        assert call(server["url"], "PING") is True
        user.tell("server.start(); print(json.dumps(server.pid), flush=True)")
        assert server["pid"] == user.hear()
        user.process.communicate(timeout=PATIENCE)  # end of input: the child stops its hold
        assert await_end(server["pid"])


def test_a_program_started_by_a_user_does_not_hold_the_server(data: Path) -> None:
    """The lock is not passed on to other programs, not even to those that inherit open files."""
    with using(data) as [user]:
        server = user.hear()
        user.tell("child = subprocess.Popen(['sleep', '60'], close_fds=False); print(child.pid, flush=True)")
        child = user.hear()
        user.process.kill()
        assert await_end(server["pid"])
        assert is_running(child)
        os.kill(child, signal.SIGKILL)
        user.process.communicate(timeout=PATIENCE)


def test_a_script_that_waited_for_a_result_ends_without_a_word(data: Path) -> None:
    """The thread that waited lets go of the server while the interpreter ends: without any executor."""
    program = textwrap.dedent("""
        import sys
        from pyasynq import App
        app = App(sys.argv[1])
        app.enqueue_sync("quiet", task_id="one", retention=60)
        try:
            app.result_sync("default", "one", timeout=0.05)
        except TimeoutError:
            print("timed out")
    """)
    ended = subprocess.run(
        [sys.executable, "-c", program, f"embedded://{data}"],
        env=os.environ | {"PYTHONPATH": SOURCE_FOLDER},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert ("timed out\n", "", 0) == (ended.stdout, ended.stderr, ended.returncode)


def test_a_tcp_port_refuses_who_does_not_know_the_password() -> None:
    """It is opened only when asked for, on the loopback address, and the URL holds the password."""
    with EmbeddedServer(port=0) as server:
        assert call(server.url, "PING") is True
        [password, port] = re.findall(r"redis://:(.{43})@127\.0\.0\.1:(\d+)", server.url)[0]
        for url in (f"redis://127.0.0.1:{port}", f"redis://:wrong@127.0.0.1:{port}"):
            with pytest.raises(redis.AuthenticationError):
                call(url, "PING")
        commands = subprocess.run(
            ["ps", "-A", "-ww", "-o", "command="], capture_output=True, check=True
        ).stdout
        assert password.encode() not in commands
        assert password not in repr(server) + repr(server._running)


def test_without_a_wanted_port_there_is_none() -> None:
    """The unix socket is all."""
    with EmbeddedServer() as server:
        assert {b"port": b"0"} == call(server.url, "CONFIG", "GET", "port")


def test_joining_uses_the_existing_port(data: Path) -> None:
    """And an error if it is not the one that was asked for."""
    with EmbeddedServer(data, port=0) as server:
        port = int(server.url.rpartition(":")[2])
        for wanted in (None, 0, port):
            with EmbeddedServer(data, port=wanted) as joined:
                assert server.url == joined.url
        with pytest.raises(EmbeddedServerError, match=f"listens on port {port}, so port 1 is impossible"):
            EmbeddedServer(data, port=1).start()
    with EmbeddedServer(data), pytest.raises(EmbeddedServerError, match="listens on a unix socket only"):
        EmbeddedServer(data, port=0).start()


def test_a_port_that_is_taken_is_an_error_that_quotes_the_server(data: Path) -> None:
    """The server's own words name the port."""
    with EmbeddedServer(port=0) as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(ServerStartError, match=r"(?s)did not start:.*Address already in use") as caught:
            EmbeddedServer(data, port=port).start()
    assert data == caught.value.folder
    assert "Address already in use" in caught.value.log


@pytest.mark.parametrize("name", ["deep/" * 40 + "data", "a b 'c' \"d\" é\n%", "~", "-data"])
def test_any_path_will_do(tmp_path: Path, name: str) -> None:
    """Long ones, and ones with characters that mean something elsewhere."""
    for _ in range(2):
        with EmbeddedServer(tmp_path / name) as server:
            assert call(server.url, "INCR", "starts") in {1, 2}
    assert (tmp_path / name / "pyasynq-embedded.json").exists()


def test_a_damaged_append_only_file_is_an_error_with_the_command_that_repairs_it(
    data: Path, binary: str
) -> None:
    """The command that the error quotes does repair it."""
    with EmbeddedServer(data, binary=binary) as server:
        call(server.url, "SET", "before", "value")
    [file] = data.glob("appendonlydir/*.incr.aof")
    with file.open("ab") as appended:
        appended.write(b"this is not a command\r\n")
    with pytest.raises(ServerStartError, match="append-only file is damaged") as caught:
        EmbeddedServer(data, binary=binary).start()
    assert "Bad file format" in caught.value.log
    assert binary in str(caught.value)
    command = str(caught.value).partition("then type: ")[2].splitlines()[0]
    repaired = subprocess.run(command, shell=True, input="y\n", text=True, capture_output=True, check=False)
    assert 0 == repaired.returncode, repaired
    with EmbeddedServer(data, binary=binary) as server:
        assert b"value" == call(server.url, "GET", "before")


def test_a_failed_start_leaves_no_process_and_a_second_one_fails_the_same_way(data: Path) -> None:
    """Nothing holds the folder after an error."""
    with EmbeddedServer(data):
        pass
    [manifest] = data.glob("appendonlydir/*.manifest")
    manifest.write_text("rubbish")
    for _ in range(2):
        with pytest.raises(ServerStartError, match="did not start"):
            EmbeddedServer(data).start()
    assert not folders.is_locked(data / "server.log")


def test_another_program_than_last_time_is_named_when_it_cannot_start(data: Path) -> None:
    """An older server cannot read what a newer one wrote, and says so in words that few know."""
    with EmbeddedServer(data):
        pass
    (data / "server.json").write_text(json.dumps({"name": "Valkey", "version": "99.1.2"}))
    [manifest] = data.glob("appendonlydir/*.manifest")
    manifest.write_text("rubbish")
    for _ in range(2):
        with pytest.raises(ServerStartError, match=r"last used by Valkey 99\.1\.2.*PYASYNQ_EMBEDDED_BINARY"):
            EmbeddedServer(data).start()


@pytest.mark.parametrize(
    "state",
    [
        '{"version": 1}',
        '{"name": "Valkey"}',
        '{"name": 1, "version": {"a": []}, "socket": 7, "password": [], "last_server": 3}',
        "[]",
        "null",
        "{",
        "\\u0000",
    ],
)
def test_whatever_the_state_file_holds_the_folder_can_be_started(data: Path, state: str) -> None:
    """A crash may have cut it off, and another program may have written it. (D29)"""
    with EmbeddedServer(data):
        pass
    (data / "server.json").write_text(state)
    with EmbeddedServer(data) as server:
        assert server.url.startswith("unix://")


@pytest.fixture
def silent_program(tmp_path: Path) -> Path:
    """A program that says it is a server, writes down its process id, and never answers."""
    program = tmp_path / "silent-server"
    program.write_text(
        f"#!/bin/sh\n[ $1 = --version ] && echo 'Redis server v=7.0.0 sha' && exit\n"
        f"echo $$ > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid\nexec sleep 1000\n"
    )
    program.chmod(0o755)
    return program


def test_a_server_that_does_not_answer_is_an_error_and_is_ended(silent_program: Path, data: Path) -> None:
    """Waiting is bounded by start_timeout."""
    with pytest.raises(ServerStartError, match=r"was not ready within 0\.5 s \(start_timeout=\)"):
        EmbeddedServer(data, binary=silent_program, start_timeout=0.5).start()
    assert not is_running(int((silent_program.parent / "pid").read_text()))


def test_killing_who_starts_a_server_ends_it_before_it_is_ready(
    silent_program: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guardian watches from the first moment."""
    monkeypatch.setenv("PYASYNQ_EMBEDDED_BINARY", str(silent_program))
    pid_file = silent_program.parent / "pid"
    with using(data) as [user]:
        assert any(pid_file.exists() for _ in folders.poll_pauses(PATIENCE))
        user.kill()
    assert await_end(int(pid_file.read_text()))


def test_a_folder_that_is_held_out_of_reach_is_an_error_in_the_end(data: Path) -> None:
    """As by a container that shares the folder and not the socket."""
    with EmbeddedServer(data):
        pass
    with (data / "server.json").open("r+") as state:
        fcntl.flock(state, fcntl.LOCK_EX)
        with pytest.raises(DataFolderError, match=r"did not answer within 0\.1 s.*another host or container"):
            EmbeddedServer(data, start_timeout=0.1).start()


def test_a_hold_that_is_forgotten_warns_and_ends(data: Path) -> None:
    """A server that is deleted without `stop` warns like an unclosed file, and its process ends."""
    server = EmbeddedServer(data).start()
    pid = server.pid
    with pytest.warns(ResourceWarning, match="was never stopped"):
        del server
    assert await_end(pid)


def test_a_deleted_folder_is_made_again(data: Path) -> None:
    """Its old server ends with its old users and does not take away the new one's socket."""
    with using(data) as [user]:
        old = user.hear()["pid"]
        shutil.rmtree(data)
        with EmbeddedServer(data) as server:
            assert old != server.pid
            user.leave()
            assert await_end(old)
            assert call(server.url, "PING") is True


def test_starting_takes_well_under_a_second_and_stopping_too() -> None:
    """It is used once in every test of many projects."""

    def seconds_of_both() -> float:
        begin = time.monotonic()
        with EmbeddedServer():
            pass
        return time.monotonic() - begin

    # The fastest of several: other work may slow some of them down.
    assert 3.0 > min(seconds_of_both() for _ in range(5))


def test_the_module_can_be_imported_where_there_are_no_file_locks() -> None:
    """On Windows the client works, and only starting an embedded server is an error."""
    program = """
        import sys
        sys.modules["fcntl"] = None
        from pyasynq.embedded import EmbeddedServer, EmbeddedServerError
        sys.platform = "win32"
        try:
            EmbeddedServer().start()
        except EmbeddedServerError as error:
            print(error)
    """
    environment = {**os.environ, "PYTHONPATH": SOURCE_FOLDER}
    words = subprocess.check_output(
        [sys.executable, "-c", textwrap.dedent(program)], env=environment, text=True
    )
    assert "not on Windows" in words
