"""The Python client, unchanged, against a server: multi-stream appends and projections.

    python python_sessions_and_projections.py CONNECTION

CONNECTION is the client's connection string. Each case prints a line; the last line counts passed,
failed and skipped cases.
"""

import json
import sys
from pathlib import Path
from uuid import uuid4

from kurrentdbclient import (
    KurrentDBClient,
    NewEvent,
    NewEvents,
    NewRecord,
    StreamState,
    StreamStateCheck,
)
from kurrentdbclient.exceptions import (
    AlreadyExistsError,
    ConsistencyChecksFailedError,
    FailedPreconditionError,
    KurrentDBClientError,
    MultiAppendToSameStreamError,
    NotFoundError,
    RecordMaxSizeExceededError,
    StreamTombstonedError,
    TransactionMaxSizeExceededError,
    WrongCurrentVersionError,
)

# An isolated interpreter does not look into the folder of the program.
sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from case_list import CaseList, expect, fails

ANY, NO_STREAM, EXISTS = StreamState.ANY, StreamState.NO_STREAM, StreamState.EXISTS
case = CaseList()


def new_stream():
    return f"second-{uuid4()}"


def counted(numbers):
    return [NewEvent(type="Counted", data=json.dumps({"n": n}).encode()) for n in numbers]


def record(stream, n, **others):
    return NewRecord(stream, type="Counted", data=json.dumps({"n": n}).encode(), **others)


def numbers(events):
    return [json.loads(event.data)["n"] for event in events]


@case
def append_to_several_streams_in_one_session(client):
    one, two = new_stream(), new_stream()
    client.append_to_stream(two, events=counted([0, 1]), current_version=NO_STREAM)
    event = NewEvent(
        type="Opened", data=b'{"n": 7}', metadata=b'{"trace": "5"}', content_type="application/json"
    )
    position = client.multi_append_to_stream(
        [NewEvents(one, [event], NO_STREAM), NewEvents(two, counted([2, 3]), 1)]
    )
    [read] = client.get_stream(one)
    expect((read.id, read.type, read.data), (event.id, event.type, event.data))
    expect(read.content_type, "application/json")
    metadata = {"trace": "5", "$schema.name": "Opened", "$schema.format": "Json"}
    expect(json.loads(read.metadata), metadata)
    expect(numbers(client.get_stream(two)), [0, 1, 2, 3])
    expect(client.get_stream(two)[-1].commit_position, position)


@case
def append_bytes_in_a_session(client):
    stream = new_stream()
    event = NewEvent(type="Blob", data=bytes(range(256)), content_type="application/octet-stream")
    client.multi_append_to_stream(NewEvents(stream, [event], ANY))
    [read] = client.get_stream(stream)
    expect((read.data, read.content_type), (event.data, "application/octet-stream"))


@case
def send_a_session_again(client):
    one, two = new_stream(), new_stream()
    events = [NewEvents(one, counted([0]), NO_STREAM), NewEvents(two, counted([1]), ANY)]
    first = client.multi_append_to_stream(events)
    expect(client.multi_append_to_stream(events), first)
    expect(numbers(client.get_stream(one)), [0])


@case
def see_a_wrong_version_in_a_session(client):
    one, two = new_stream(), new_stream()
    client.append_to_stream(one, events=counted([0, 1]), current_version=NO_STREAM)
    for version in [NO_STREAM, 0, 7]:
        events = [NewEvents(two, counted([9]), ANY), NewEvents(one, counted([9]), version)]
        error = fails(WrongCurrentVersionError, lambda: client.multi_append_to_stream(events))
        expect((error.stream_name, error.actual_version), (one, 1))
        expect(error.expected_version, version)
    missing = NewEvents(new_stream(), counted([9]), EXISTS)
    error = fails(WrongCurrentVersionError, lambda: client.multi_append_to_stream(missing))
    expect(error.actual_version, NO_STREAM)
    fails(NotFoundError, lambda: client.get_stream(two))


@case
def see_a_tombstone_in_a_session(client):
    stream = new_stream()
    client.append_to_stream(stream, events=counted([0]), current_version=ANY)
    client.tombstone_stream(stream, current_version=ANY)
    events = NewEvents(stream, counted([9]), ANY)
    error = fails(StreamTombstonedError, lambda: client.multi_append_to_stream(events))
    expect(error.stream_name, stream)


@case
def see_a_stream_twice_in_a_session(client):
    stream = new_stream()
    for again in [stream, stream.upper()]:
        events = [NewEvents(name, counted([9]), ANY) for name in [stream, again]]
        fails(MultiAppendToSameStreamError, lambda: client.multi_append_to_stream(events))
    fails(KurrentDBClientError, lambda: client.multi_append_to_stream([]))


@case
def check_the_limits_of_a_session(client):
    def blob(size):
        data = b"x" * size
        return NewEvent(type="Blob", data=data, content_type="application/octet-stream")

    large = blob(9_000_000)
    events = NewEvents(new_stream(), [large], ANY)
    error = fails(RecordMaxSizeExceededError, lambda: client.multi_append_to_stream(events))
    expect((error.event_id, error.max_size), (large.id, 8_388_608))
    parts = [NewEvents(new_stream(), [blob(6_000_000)], ANY) for _ in range(3)]
    error = fails(TransactionMaxSizeExceededError, lambda: client.multi_append_to_stream(parts))
    expect(error.max_size, 16_777_216)


@case
def append_records_of_several_streams(client):
    one, two = new_stream(), new_stream()
    records = [record(stream, n) for n, stream in enumerate([one, two, one, two, one])]
    done = client.append_records(records)
    streams = [(said.stream_name, said.stream_position) for said in done.stream_positions]
    expect(streams, [(one, 2), (two, 1)])
    expect(numbers(client.get_stream(one)), [0, 2, 4])
    expect(numbers(client.get_stream(two)), [1, 3])
    expect(client.append_records(records), done)


@case
def append_records_if_checks_hold(client):
    one, other = new_stream(), new_stream()
    client.append_to_stream(other, events=counted([0, 1]), current_version=NO_STREAM)
    checks = [
        StreamStateCheck(one, NO_STREAM),
        StreamStateCheck(other, 1),
        StreamStateCheck(other, EXISTS),
        StreamStateCheck(new_stream(), NO_STREAM),
    ]
    done = client.append_records(record(one, 0), checks)
    expect(done.stream_positions[0].stream_position, 0)


@case
def report_every_failed_check(client):
    one, other, gone = new_stream(), new_stream(), new_stream()
    client.append_to_stream(other, events=counted([0, 1]), current_version=NO_STREAM)
    client.append_to_stream(gone, events=counted([0]), current_version=NO_STREAM)
    client.delete_stream(gone, current_version=ANY)
    checks = [
        StreamStateCheck(other, 7),
        StreamStateCheck(other, 1),
        StreamStateCheck(one, EXISTS),
        StreamStateCheck(gone, EXISTS),
    ]
    error = fails(ConsistencyChecksFailedError, lambda: client.append_records(record(one, 0), checks))
    failed_checks = [
        (
            failure.check_index,
            failure.stream_state_failure.stream_name,
            failure.stream_state_failure.actual_state,
        )
        for failure in error.failures
    ]
    expect(failed_checks, [(0, other, 1), (2, one, -1), (3, gone, -5)])
    fails(NotFoundError, lambda: client.get_stream(one))


@case
def reject_records_for_a_tombstone(client):
    stream = new_stream()
    client.tombstone_stream(stream, current_version=ANY)
    fails(StreamTombstonedError, lambda: client.append_records(record(stream, 0)))


BUILT_IN = {
    "$streams": "Running",
    "$stream_by_category": "Stopped",
    "$by_category": "Running",
    "$by_event_type": "Running",
    "$by_correlation_id": "Stopped",
}


@case
def list_the_built_in_projections(client):
    for listed in [
        client.list_all_projection_statistics(),
        client.list_continuous_projection_statistics(),
    ]:
        expect({one.name: one.status for one in listed}, BUILT_IN)


@case
def stop_start_and_reset_a_projection(client):
    name = "$by_event_type"
    client.disable_projection(name)
    stopped = client.get_projection_statistics(name)
    expect((stopped.status, stopped.mode), ("Stopped", "Continuous"))
    client.append_to_stream(new_stream(), events=counted([1]), current_version=ANY)
    expect(client.get_projection_statistics(name).position, stopped.position)
    client.reset_projection(name)
    expect(client.get_projection_statistics(name).position, "C:0/P:0")
    client.enable_projection(name)
    running = client.get_projection_statistics(name)
    expect((running.status, running.progress), ("Running", 100.0))
    client.abort_projection(name)
    expect(client.get_projection_statistics(name).status, "Stopped")
    client.enable_projection(name)
    client.restart_projections_subsystem()


@case
def get_the_state_of_a_projection(client):
    expect(client.get_projection_state("$by_category").value, {})


@case
def report_a_missing_projection(client):
    for work in [
        client.get_projection_statistics,
        client.enable_projection,
        client.disable_projection,
        client.reset_projection,
        client.delete_projection,
        client.get_projection_state,
        lambda name: client.update_projection(name, query="fromAll()"),
    ]:
        fails(NotFoundError, lambda: work("mine"))


@case
def reject_projection_programs(client):
    work = lambda: client.create_projection(name="mine", query="fromAll().when({})")
    assert "JavaScript are not run here" in str(fails(KurrentDBClientError, work))
    work = lambda: client.create_projection(name="$by_category", query="fromAll()")
    fails(AlreadyExistsError, work)
    fails(FailedPreconditionError, lambda: client.delete_projection("$by_category"))
    work = lambda: client.enable_projection("$by_correlation_id")
    assert "is not kept by this server" in str(fails(KurrentDBClientError, work))


def main(connection):
    client = KurrentDBClient(uri=connection)
    outcome = case.run(client)
    client.close()
    return outcome


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
