"""The generated message classes are current, and do not meddle with other packages."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from pyasynq._wire import asynq_pb2

TOOL = Path(__file__).parents[3] / "tools" / "generate_wire.py"


def test_the_generated_files_are_current() -> None:
    """The checked-in file is the output of the tool for the .proto file."""
    pytest.importorskip("grpc_tools", reason="grpcio-tools (a development dependency) is not installed")
    assert [] == runpy.run_path(str(TOOL))["outdated_files"]()


def test_another_asynq_proto_in_the_process_does_no_harm() -> None:
    """Our classes live in a pool of their own, so a different file of the same name may be registered."""
    other = FileDescriptorProto(name="asynq.proto", package="asynq")
    other.message_type.add(name="TaskMessage").field.add(name="colour", number=1, type=5, label=1)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(other.SerializeToString())
    assert "colour" in pool.FindMessageTypeByName("asynq.TaskMessage").fields_by_name
    assert "colour" not in asynq_pb2.TaskMessage.DESCRIPTOR.fields_by_name
