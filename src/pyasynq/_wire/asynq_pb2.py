"""Message classes of `asynq.proto`. Written by tools/generate_wire.py: change the .proto, not this."""

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

# A pool of our own: message names of other packages in the process cannot collide with these.
_pool = DescriptorPool()
_pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
_pool.AddSerializedFile(
    b'\n\x0basynq.proto\x12\x05asynq\x1a\x1fgo'
    b'ogle/protobuf/timestamp.'
    b'proto"\xfe\x03\n\x0bTaskMessage\x12\x12\n'
    b'\x04type\x18\x01 \x01(\tR\x04type\x12\x18\n\x07pay'
    b'load\x18\x02 \x01(\x0cR\x07payload\x12\x0e\n\x02i'
    b'd\x18\x03 \x01(\tR\x02id\x12\x14\n\x05queue\x18\x04 \x01'
    b'(\tR\x05queue\x12\x14\n\x05retry\x18\x05 \x01(\x05'
    b'R\x05retry\x12\x18\n\x07retried\x18\x06 \x01(\x05'
    b'R\x07retried\x12\x1b\n\terror_msg\x18\x07'
    b' \x01(\tR\x08errorMsg\x12\x18\n\x07timeou'
    b't\x18\x08 \x01(\x03R\x07timeout\x12\x1a\n\x08dead'
    b'line\x18\t \x01(\x03R\x08deadline\x12\x1d\n\n'
    b'unique_key\x18\n \x01(\tR\tunique'
    b'Key\x12$\n\x0elast_failed_at\x18\x0b '
    b'\x01(\x03R\x0clastFailedAt\x12\x1c\n\tret'
    b'ention\x18\x0c \x01(\x03R\tretention\x12'
    b'!\n\x0ccompleted_at\x18\r \x01(\x03R\x0bc'
    b'ompletedAt\x12\x1b\n\tgroup_key\x18'
    b'\x0e \x01(\tR\x08groupKey\x129\n\x07heade'
    b'rs\x18\x0f \x03(\x0b2\x1f.asynq.TaskMes'
    b'sage.HeadersEntryR\x07heade'
    b'rs\x1a:\n\x0cHeadersEntry\x12\x10\n\x03ke'
    b'y\x18\x01 \x01(\tR\x03key\x12\x14\n\x05value\x18\x02 '
    b'\x01(\tR\x05value:\x028\x01"\xa8\x03\n\nServe'
    b'rInfo\x12\x12\n\x04host\x18\x01 \x01(\tR\x04hos'
    b't\x12\x10\n\x03pid\x18\x02 \x01(\x05R\x03pid\x12\x1b\n\ts'
    b'erver_id\x18\x03 \x01(\tR\x08serverId'
    b'\x12 \n\x0bconcurrency\x18\x04 \x01(\x05R\x0bc'
    b'oncurrency\x125\n\x06queues\x18\x05 \x03'
    b'(\x0b2\x1d.asynq.ServerInfo.Qu'
    b"euesEntryR\x06queues\x12'\n\x0fstr"
    b'ict_priority\x18\x06 \x01(\x08R\x0estri'
    b'ctPriority\x12\x16\n\x06status\x18\x07 \x01'
    b'(\tR\x06status\x129\n\nstart_time'
    b'\x18\x08 \x01(\x0b2\x1a.google.protobuf'
    b'.TimestampR\tstartTime\x12.\n'
    b'\x13active_worker_count\x18\t \x01'
    b'(\x05R\x11activeWorkerCount\x12\x17\n'
    b'\x06engine\x18\xe9\x07 \x01(\tR\x06engine\x1a9'
    b'\n\x0bQueuesEntry\x12\x10\n\x03key\x18\x01 \x01'
    b'(\tR\x03key\x12\x14\n\x05value\x18\x02 \x01(\x05R\x05'
    b'value:\x028\x01"\xb1\x02\n\nWorkerInfo'
    b'\x12\x12\n\x04host\x18\x01 \x01(\tR\x04host\x12\x10\n\x03'
    b'pid\x18\x02 \x01(\x05R\x03pid\x12\x1b\n\tserver'
    b'_id\x18\x03 \x01(\tR\x08serverId\x12\x17\n\x07t'
    b'ask_id\x18\x04 \x01(\tR\x06taskId\x12\x1b\n\t'
    b'task_type\x18\x05 \x01(\tR\x08taskTyp'
    b'e\x12!\n\x0ctask_payload\x18\x06 \x01(\x0cR'
    b'\x0btaskPayload\x12\x14\n\x05queue\x18\x07 '
    b'\x01(\tR\x05queue\x129\n\nstart_time'
    b'\x18\x08 \x01(\x0b2\x1a.google.protobuf'
    b'.TimestampR\tstartTime\x126\n'
    b'\x08deadline\x18\t \x01(\x0b2\x1a.google'
    b'.protobuf.TimestampR\x08dea'
    b'dline"\xad\x02\n\x0eSchedulerEntry'
    b'\x12\x0e\n\x02id\x18\x01 \x01(\tR\x02id\x12\x12\n\x04spec'
    b'\x18\x02 \x01(\tR\x04spec\x12\x1b\n\ttask_typ'
    b'e\x18\x03 \x01(\tR\x08taskType\x12!\n\x0ctas'
    b'k_payload\x18\x04 \x01(\x0cR\x0btaskPay'
    b"load\x12'\n\x0fenqueue_options\x18"
    b'\x05 \x03(\tR\x0eenqueueOptions\x12F\n'
    b'\x11next_enqueue_time\x18\x06 \x01(\x0b'
    b'2\x1a.google.protobuf.Times'
    b'tampR\x0fnextEnqueueTime\x12F\n'
    b'\x11prev_enqueue_time\x18\x07 \x01(\x0b'
    b'2\x1a.google.protobuf.Times'
    b'tampR\x0fprevEnqueueTime"o\n'
    b'\x15SchedulerEnqueueEvent\x12\x17'
    b'\n\x07task_id\x18\x01 \x01(\tR\x06taskId\x12'
    b'=\n\x0cenqueue_time\x18\x02 \x01(\x0b2\x1a.'
    b'google.protobuf.Timestam'
    b'pR\x0benqueueTimeb\x06proto3'
)

DESCRIPTOR = _pool.FindFileByName("asynq.proto")
TaskMessage = GetMessageClass(_pool.FindMessageTypeByName("asynq.TaskMessage"))
ServerInfo = GetMessageClass(_pool.FindMessageTypeByName("asynq.ServerInfo"))
WorkerInfo = GetMessageClass(_pool.FindMessageTypeByName("asynq.WorkerInfo"))
SchedulerEntry = GetMessageClass(_pool.FindMessageTypeByName("asynq.SchedulerEntry"))
SchedulerEnqueueEvent = GetMessageClass(_pool.FindMessageTypeByName("asynq.SchedulerEnqueueEvent"))
