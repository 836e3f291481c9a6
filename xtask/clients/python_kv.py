"""Keys and values from Python, with plain gRPC and the server's reflection.

    python python_kv.py CONNECTION

CONNECTION is a connection string of event store clients: kurrentdb://HOST:PORT?tls=false. No code
is generated from the definition: reflection returns it. Each case prints a line; the last line
counts passed, failed and skipped cases.
"""

import sys
import threading
from pathlib import Path

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# An isolated interpreter does not look into the folder of the program.
sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from case_list import CaseList

SERVICE = "umbel.kv.v1.KeyValue"
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
case = CaseList()


def fields(data):
    """Decodes the length-delimited fields of a message: pairs of a field number and bytes."""

    def varint(at):
        value = shift = 0
        while True:
            byte = data[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at

    at = 0
    while at < len(data):
        key, at = varint(at)
        value, at = varint(at)
        if key & 7 == 2:
            yield key >> 3, data[at : at + value]
            at += value


class KeyValue:
    """The service, with each call by its name."""

    def __init__(self, channel):
        # ServerReflectionRequest.file_containing_symbol is field 4.
        question = bytes([0x22, len(SERVICE)]) + SERVICE.encode()
        ask = channel.stream_stream(REFLECTION)
        (answer,) = list(ask(iter([question]), timeout=10))
        # file_descriptor_response is field 4, and in it file_descriptor_proto field 1.
        (files,) = [value for number, value in fields(answer) if number == 4]
        (file,) = [value for number, value in fields(files) if number == 1]
        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(file)
        self.channel, self.pool = channel, pool
        self.service = pool.FindServiceByName(SERVICE)
        self.comments = bool(descriptor_pb2.FileDescriptorProto.FromString(file).source_code_info.location)

    def message(self, name):
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName("umbel.kv.v1." + name))

    def __getattr__(self, name):
        method = self.service.FindMethodByName(name)
        request_class = message_factory.GetMessageClass(method.input_type)
        answer = message_factory.GetMessageClass(method.output_type)
        make = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
        call = make(f"/{SERVICE}/{name}", request_class.SerializeToString, answer.FromString)
        return lambda timeout=10, **said: call(request_class(**said), timeout=timeout)


def fails(code, work):
    try:
        work()
    except grpc.RpcError as error:
        assert error.code() == code, error
        return error.details()
    raise AssertionError("it did not fail")


@case
def discover_the_service_by_reflection(kv):
    names = {method.name for method in kv.service.methods}
    assert {"Get", "Put", "Delete", "Batch", "Scan", "Watch"} <= names, names
    assert kv.comments, "the definition comes with its comments"


@case
def put_get_and_delete_a_key(kv):
    first = kv.Put(key=b"ada", value=b"1815").sequence
    found = kv.Get(key=b"ada")
    assert found.HasField("value") and found.value == b"1815"
    assert kv.Delete(key=b"ada").sequence > first
    assert not kv.Get(key=b"ada").HasField("value")
    assert "empty" in fails(grpc.StatusCode.INVALID_ARGUMENT, lambda: kv.Get(key=b""))


@case
def write_a_batch_if_its_conditions_hold(kv):
    kv.CreateKeyspace(name="users")
    operation, entry = kv.message("Operation"), kv.message("Entry")
    put = operation(keyspace="users", put=entry(key=b"lock", value=b"ada"))
    absent = kv.message("Condition")(keyspace="users", key=b"lock")
    kv.Batch(operations=[operation(keyspace="users", delete=b"lock")])
    kv.Batch(operations=[put], conditions=[absent])
    work = lambda: kv.Batch(operations=[put], conditions=[absent])
    assert "lock" in fails(grpc.StatusCode.ABORTED, work)
    assert "users" in kv.ListKeyspaces().names


@case
def scan_a_prefix_both_ways(kv):
    for number in range(10):
        kv.Put(key=b"scan-%d" % number, value=b"v")
    scan = lambda **said: [e.key for page in kv.Scan(prefix=b"scan-", **said) for e in page.entries]
    assert scan() == [b"scan-%d" % number for number in range(10)]
    assert scan(reverse=True, limit=2) == [b"scan-9", b"scan-8"]
    assert scan(start=b"scan-3", end=b"scan-5", keys_only=True) == [b"scan-3", b"scan-4"]


@case
def watch_existing_and_new_changes(kv):
    kv.Put(key=b"watch-1", value=b"old")
    watch = kv.Watch(prefix=b"watch-", with_entries=True)
    first, second = next(watch), next(watch)
    assert [entry.value for entry in first.entries.entries] == [b"old"]
    assert second.WhichOneof("event") == "started"
    writer = threading.Thread(target=lambda: kv.Put(key=b"watch-1", value=b"new"))
    writer.start()
    received = next(watch).changes
    writer.join()
    assert received.sequence > second.started.sequence
    assert [change.put.value for change in received.changes] == [b"new"]
    watch.cancel()


def main(connection):
    address = connection.split("://")[1].split("?")[0]
    with grpc.insecure_channel(address) as channel:
        return case.run(KeyValue(channel))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
