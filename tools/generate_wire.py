"""Write the message classes of `pyasynq/_wire/asynq.proto`: `asynq_pb2.py` and its stub `asynq_pb2.pyi`.

    python tools/generate_wire.py            write both files
    python tools/generate_wire.py --check    write nothing; exit 1 when a file is not current

protoc's own Python output refuses to load with an older protobuf runtime than the protoc that wrote it,
which would tie users to our development tools. So only the file descriptor is taken from protoc, and the
generated module builds the classes from it, in a descriptor pool of its own: another package that ships
some `asynq.proto` cannot collide with ours.

Needs `grpcio-tools`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import resources
from pathlib import Path

WIRE_FOLDER = Path(__file__).resolve().parent.parent / "src" / "pyasynq" / "_wire"
PROTO_NAME = "asynq.proto"
MODULE_NAME = "asynq_pb2.py"
STUB_NAME = "asynq_pb2.pyi"

_BYTES_PER_LINE = 24

_MODULE_HEAD = f'''\
"""Message classes of `{PROTO_NAME}`. Written by tools/generate_wire.py: change the .proto, not this."""

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

# A pool of our own: message names of other packages in the process cannot collide with these.
_pool = DescriptorPool()
_pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
_pool.AddSerializedFile(
'''

_STUB_HEAD = f"# Types of the classes of `{PROTO_NAME}`. Written by tools/generate_wire.py.\n\n"

# A Timestamp of protobuf's default pool is not one of our pool, and only newer runtimes take a datetime:
# what every supported runtime takes for such a field is a mapping.
_TIMESTAMP_ARGUMENT = "_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]"
_STUB_CHANGES = (
    (_TIMESTAMP_ARGUMENT, "_Mapping[str, int]"),
    ("import datetime\n\n", ""),
    (", Union as _Union", ""),
)


class GenerationError(Exception):
    """Error: protoc refused the .proto file, or wrote output that this tool does not support."""


def generate() -> dict[str, str]:
    """Return file name and current text of both generated files.

    Raises GenerationError, and ImportError when grpcio-tools is not installed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        descriptor_set = folder / "descriptors"
        _run_protoc(f"--descriptor_set_out={descriptor_set}", f"--pyi_out={folder}")
        return {
            MODULE_NAME: _module_text(descriptor_set.read_bytes()),
            STUB_NAME: _stub_text((folder / STUB_NAME).read_text()),
        }


def outdated_files() -> list[Path]:
    """Return the checked-in files that differ from what `generate` returns."""
    return [
        WIRE_FOLDER / name
        for name, text in generate().items()
        if not (WIRE_FOLDER / name).is_file() or text != (WIRE_FOLDER / name).read_text()
    ]


def _run_protoc(*outputs: str) -> None:
    # Imported late: importing this module must work without the tool, so that a test can say what is missing.
    from grpc_tools import protoc  # noqa: PLC0415

    well_known_types = resources.files("grpc_tools") / "_proto"
    exit_code = protoc.main(
        ["protoc", f"-I{WIRE_FOLDER}", f"-I{well_known_types}", *outputs, str(WIRE_FOLDER / PROTO_NAME)]
    )
    if exit_code != 0:
        message = f"protoc ended with {exit_code}; its complaint about {PROTO_NAME} is above"
        raise GenerationError(message)


def _module_text(descriptor_set: bytes) -> str:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415

    (file,) = FileDescriptorSet.FromString(descriptor_set).file
    descriptor = file.SerializeToString(deterministic=True)
    lines = [
        f"    {descriptor[start : start + _BYTES_PER_LINE]!r}\n"
        for start in range(0, len(descriptor), _BYTES_PER_LINE)
    ]
    file_line = f'DESCRIPTOR = _pool.FindFileByName("{PROTO_NAME}")\n'
    class_lines = [
        f'{message.name} = GetMessageClass(_pool.FindMessageTypeByName("{file.package}.{message.name}"))\n'
        for message in file.message_type
    ]
    return "".join([_MODULE_HEAD, *lines, ")\n\n", file_line, *class_lines])


def _stub_text(text: str) -> str:
    for old, new in _STUB_CHANGES:
        if old not in text:
            message = f"protoc's stub no longer contains {old!r}: look at it and adjust _STUB_CHANGES"
            raise GenerationError(message)
        text = text.replace(old, new)
    return _STUB_HEAD + text


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Write the message classes of asynq.proto.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when not current")
    if parser.parse_args().check:
        outdated = outdated_files()
        for path in outdated:
            sys.stderr.write(f"not current: {path} (run: python tools/generate_wire.py)\n")
        return 1 if outdated else 0
    for name, text in generate().items():
        (WIRE_FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
