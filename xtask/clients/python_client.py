"""The Python client, unchanged, against a server.

    python python_client.py CONNECTION FILE [again]

CONNECTION is the client's connection string. FILE keeps state for the cases of "again", which run
after a restart of the server. Each case prints a line; the last line counts passed, failed and
skipped cases.
"""

import json
import sys
import threading
from pathlib import Path
from uuid import uuid4

from kurrentdbclient import CaughtUp, Checkpoint, KurrentDBClient, NewEvent, StreamState
from kurrentdbclient.exceptions import (
    FailedPreconditionError,
    GrpcDeadlineExceededError,
    KurrentDBClientError,
    MaximumAppendSizeExceededError,
    NotFoundError,
    StreamIsDeletedError,
    WrongCurrentVersionError,
)

# An isolated interpreter does not look into the folder of the program.
sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from case_list import CaseList, expect, fails

ANY, NO_STREAM, EXISTS = StreamState.ANY, StreamState.NO_STREAM, StreamState.EXISTS
case = CaseList()
again = CaseList()
KEPT = None


def new_stream():
    return f"python-{uuid4()}"


def counted(numbers):
    return [NewEvent(type="Counted", data=json.dumps({"n": n}).encode()) for n in numbers]


def number(event):
    return json.loads(event.data)["n"]


def numbers(events):
    return [number(event) for event in events]


@case
def append_one_event_and_read_it_back(client):
    stream = new_stream()
    event = NewEvent(
        type="Opened",
        data=b'{"by": "ada"}',
        metadata=b'{"trace": "7"}',
        content_type="application/json",
        id=uuid4(),
    )
    position = client.append_to_stream(stream, events=event, current_version=NO_STREAM)
    [read] = client.get_stream(stream)
    expect(
        (read.id, read.type, read.data, read.metadata, read.content_type),
        (event.id, event.type, event.data, event.metadata, event.content_type),
    )
    expect((read.stream_name, read.stream_position, read.commit_position), (stream, 0, position))
    assert read.recorded_at is not None


@case
def append_a_batch(client):
    stream = new_stream()
    client.append_to_stream(stream, events=counted(range(250)), current_version=NO_STREAM)
    client.append_to_stream(stream, events=counted(range(250, 300)), current_version=249)
    expect(numbers(client.get_stream(stream)), list(range(300)))
    expect(client.get_current_version(stream), 299)


@case
def append_bytes(client):
    stream = new_stream()
    event = NewEvent(type="Blob", data=bytes(range(256)), content_type="application/octet-stream")
    client.append_to_stream(stream, events=[event], current_version=ANY)
    [read] = client.get_stream(stream)
    expect((read.data, read.content_type), (event.data, "application/octet-stream"))


@case
def append_four_megabytes(client):
    stream = new_stream()
    event = NewEvent(type="Blob", data=b"x" * (4 << 20), content_type="application/octet-stream")
    client.append_to_stream(stream, events=event, current_version=ANY)
    expect(len(client.get_stream(stream)[0].data), 4 << 20)


@case
def reject_an_append_over_the_limit(client):
    # As one message it is just below the limit of the server.
    sizes = [8_000_000, 8_000_000, 1_000_000]
    events = [NewEvent(type="Blob", data=b"x" * size) for size in sizes]
    work = lambda: client.append_to_stream(new_stream(), events=events, current_version=ANY)
    fails(MaximumAppendSizeExceededError, work)


@case
def append_the_same_events_again(client):
    stream, events = new_stream(), counted(range(3))
    first = client.append_to_stream(stream, events=events, current_version=NO_STREAM)
    again = client.append_to_stream(stream, events=events, current_version=NO_STREAM)
    expect(again, first)
    anyhow = client.append_to_stream(stream, events=events, current_version=ANY)
    expect(anyhow, first)
    expect(numbers(client.get_stream(stream)), [0, 1, 2])


@case
def read_a_stream_forwards_and_backwards(client):
    stream = new_stream()
    client.append_to_stream(stream, events=counted(range(100)), current_version=ANY)
    expect(numbers(client.get_stream(stream, stream_position=40, limit=3)), [40, 41, 42])
    expect(numbers(client.get_stream(stream, backwards=True, limit=2)), [99, 98])
    expect(
        numbers(client.get_stream(stream, stream_position=5, backwards=True)), [5, 4, 3, 2, 1, 0]
    )
    expect(numbers(client.read_stream(stream)), list(range(100)))


@case
def read_all_forwards_and_backwards(client):
    stream = new_stream()
    before = client.get_commit_position(filter_exclude=())
    client.append_to_stream(stream, events=counted(range(5)), current_version=ANY)
    after = list(client.read_all(commit_position=before, filter_exclude=()))
    expect(numbers(event for event in after if event.stream_name == stream), [0, 1, 2, 3, 4])
    backwards = client.read_all(backwards=True, limit=5, filter_exclude=())
    expect(numbers(backwards), [4, 3, 2, 1, 0])
    positions = [event.commit_position for event in client.read_all(filter_exclude=())]
    expect(positions, sorted(set(positions)))


@case
def see_a_wrong_expected_version(client):
    stream = new_stream()
    client.append_to_stream(stream, events=counted([0, 1]), current_version=NO_STREAM)
    for events in [counted([9])[0], counted([9])]:
        for version in [NO_STREAM, 0, 7]:
            work = lambda: client.append_to_stream(stream, events=events, current_version=version)
            fails(WrongCurrentVersionError, work)
        for version in [0, EXISTS]:
            work = lambda: client.append_to_stream(
                new_stream(), events=events, current_version=version
            )
            fails((WrongCurrentVersionError, NotFoundError), work)
    expect(numbers(client.get_stream(stream)), [0, 1])


@case
def report_a_missing_stream(client):
    stream = new_stream()
    fails(NotFoundError, lambda: client.get_stream(stream))
    expect(client.get_current_version(stream), NO_STREAM)
    fails(NotFoundError, lambda: client.delete_stream(stream, current_version=ANY))


@case
def delete_a_stream_and_create_it_again(client):
    stream = new_stream()
    client.append_to_stream(stream, events=counted([0, 1]), current_version=ANY)
    fails(WrongCurrentVersionError, lambda: client.delete_stream(stream, current_version=5))
    client.delete_stream(stream, current_version=1)
    fails(NotFoundError, lambda: client.get_stream(stream))
    client.append_to_stream(stream, events=counted([2]), current_version=NO_STREAM)
    [read] = client.get_stream(stream)
    expect((number(read), read.stream_position), (2, 2))


@case
def tombstone_a_stream(client):
    stream = new_stream()
    client.append_to_stream(stream, events=counted([0]), current_version=ANY)
    client.tombstone_stream(stream, current_version=0)
    fails(StreamIsDeletedError, lambda: client.get_stream(stream))
    work = lambda: client.append_to_stream(stream, events=counted([9]), current_version=ANY)
    fails(StreamIsDeletedError, work)
    work = lambda: client.append_to_stream(stream, events=counted([9])[0], current_version=ANY)
    assert "is deleted" in str(fails(FailedPreconditionError, work))
    fails(StreamIsDeletedError, lambda: client.delete_stream(stream, current_version=ANY))


def append_meanwhile(client, stream, all_numbers):
    def work():
        for n in all_numbers:
            client.append_to_stream(stream, events=counted([n])[0], current_version=ANY)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@case
def subscribe_to_a_stream_and_catch_up_and_go_live(client):
    stream = new_stream()
    client.append_to_stream(stream, events=counted(range(120)), current_version=ANY)
    subscription = client.subscribe_to_stream(stream, include_caught_up=True)
    thread = append_meanwhile(client, stream, range(120, 170))
    seen, caught_up = [], 0
    for event in subscription:
        if isinstance(event, CaughtUp):
            caught_up += 1
        else:
            seen.append(number(event))
        if len(seen) == 170 and caught_up:
            break
    subscription.stop()
    thread.join()
    expect((seen, caught_up), (list(range(170)), 1))


@case
def subscribe_after_an_event_and_from_the_end(client):
    stream = new_stream()
    client.append_to_stream(stream, events=counted(range(5)), current_version=ANY)
    behind = client.subscribe_to_stream(stream, stream_position=2)
    live = client.subscribe_to_stream(stream, from_end=True, include_caught_up=True)
    assert isinstance(next(live), CaughtUp)
    client.append_to_stream(stream, events=counted([5]), current_version=ANY)
    expect([number(next(behind)) for _ in range(3)], [3, 4, 5])
    expect(number(next(live)), 5)
    behind.stop()
    live.stop()


@case
def subscribe_to_a_missing_stream(client):
    stream = new_stream()
    subscription = client.subscribe_to_stream(stream)
    client.append_to_stream(stream, events=counted([7]), current_version=NO_STREAM)
    expect(number(next(subscription)), 7)
    subscription.stop()


@case
def subscribe_to_all(client):
    stream = new_stream()
    client.append_to_stream(stream, events=counted(range(3)), current_version=ANY)
    position = client.get_stream(stream)[0].commit_position
    subscription = client.subscribe_to_all(commit_position=position, filter_exclude=())
    thread = append_meanwhile(client, stream, range(3, 20))
    expect([number(next(subscription)) for _ in range(19)], list(range(1, 20)))
    subscription.stop()
    thread.join()


@case
def observe_a_deadline(client):
    subscription = client.subscribe_to_stream(new_stream(), timeout=0.3)
    fails(GrpcDeadlineExceededError, lambda: next(subscription))


@case
def reject_an_append_to_all(client):
    for events in [counted([0])[0], counted([0])]:
        work = lambda: client.append_to_stream("$all", events=events, current_version=ANY)
        assert "'$all' accepts no appends" in str(fails(KurrentDBClientError, work))


@case
def set_and_get_the_metadata_of_a_stream(client):
    stream = new_stream()
    client.append_to_stream(stream, events=counted(range(5)), current_version=ANY)
    client.set_stream_metadata(stream, metadata={"$maxCount": 2}, current_version=NO_STREAM)
    metadata, version = client.get_stream_metadata(stream)
    expect((metadata, version), ({"$maxCount": 2}, 0))
    expect(numbers(client.get_stream(stream)), [3, 4])


@case
def find_the_leader_by_gossip(client):
    [member] = client.read_gossip()
    expect(member.state, "NODE_STATE_LEADER")
    address = f"{member.address}:{member.port}"
    stream = new_stream()
    found = KurrentDBClient(uri=f"kurrentdb+discover://{address}?tls=false")
    try:
        found.append_to_stream(stream, events=counted([1]), current_version=NO_STREAM)
        expect(numbers(found.get_stream(stream)), [1])
    finally:
        found.close()


def mixed(client):
    """Appends alternately to two streams with a unique name, events of two types."""
    name = f"python-{uuid4()}"
    before = client.get_commit_position(filter_exclude=())
    for n in range(20):
        kind = "Opened" if n % 4 < 2 else "Closed"
        event = NewEvent(type=f"{name}-{kind}", data=json.dumps({"n": n}).encode())
        stream = f"{name}-{'cart' if n % 2 else 'order'}"
        client.append_to_stream(stream, events=event, current_version=ANY)
    return name, before


@case
def read_all_by_prefixes_and_expressions(client):
    name, before = mixed(client)
    read = lambda **filters: numbers(client.read_all(commit_position=before, **filters))
    odd, even = list(range(1, 20, 2)), list(range(0, 20, 2))
    opened = [n for n in range(20) if n % 4 < 2]
    by_stream = dict(filter_by_stream_name=True)
    expect(read(filter_include=[f"{name}-cart"], filter_by_prefix=True, **by_stream), odd)
    expect(read(filter_include=[f"{name}-order.*"], **by_stream), even)
    expect(read(filter_include=[f"{name}-Opened"]), opened)
    expect(read(filter_include=[f"{name}-O", f"{name}-X"], filter_by_prefix=True), opened)
    expect(read(filter_include=["absent"]), [])
    backwards = client.read_all(filter_include=[f"{name}-Opened"], backwards=True, limit=3)
    expect(numbers(backwards), opened[::-1][:3])


@case
def read_all_with_and_without_system_events(client):
    name, before = mixed(client)
    client.set_stream_metadata(f"{name}-cart", metadata={"$maxAge": 1000}, current_version=ANY)
    read = lambda **filters: [
        event.type
        for event in client.read_all(commit_position=before, **filters)
        if name in event.stream_name
    ]
    by_default = read()
    expect(len(by_default), 20)
    assert not any(kind.startswith("$") for kind in by_default)
    expect(read(filter_exclude=()).count("$metadata"), 1)
    expect(len(read(filter_exclude=[f"{name}-Opened"])), 11)


@case
def reject_a_broken_expression(client):
    work = lambda: list(client.read_all(filter_include=["a(b"]))
    assert "broken at character" in str(fails(KurrentDBClientError, work))


def carts(client, name, **options):
    return client.subscribe_to_all(
        filter_include=[f"{name}-cart"],
        filter_by_prefix=True,
        filter_by_stream_name=True,
        include_checkpoints=True,
        **options,
    )


@case
def subscribe_with_a_filter_and_keep_a_checkpoint(client):
    name, before = mixed(client)
    subscription = carts(
        client, name, commit_position=before, window_size=3, checkpoint_interval_multiplier=1,
        include_caught_up=True,
    )
    seen, places = [], []
    for event in subscription:
        if isinstance(event, CaughtUp):
            break
        if isinstance(event, Checkpoint):
            places.append(event.commit_position)
        else:
            seen.append(number(event))
    subscription.stop()
    expect(seen, list(range(1, 20, 2)))
    assert len(places) >= 6 and places == sorted(places), places
    expect(places[-1], client.get_commit_position(filter_exclude=()))
    with open(KEPT, "w") as file:
        json.dump({"name": name, "place": places[-1]}, file)


@again
def resume_at_a_checkpoint_after_a_restart(client):
    with open(KEPT) as file:
        kept = json.load(file)
    name = kept["name"]
    for n in range(20, 26):
        stream = f"{name}-{'cart' if n % 2 else 'order'}"
        client.append_to_stream(stream, events=counted([n]), current_version=ANY)
    subscription = carts(client, name, commit_position=kept["place"])
    seen = []
    for event in subscription:
        if not isinstance(event, Checkpoint):
            seen.append(number(event))
        if len(seen) == 3:
            break
    subscription.stop()
    expect(seen, [21, 23, 25])


@case
def receive_checkpoints_although_nothing_passes(client):
    stream = new_stream()
    subscription = carts(client, "absent", from_end=True)
    first = next(subscription)
    assert isinstance(first, Checkpoint), first
    client.append_to_stream(stream, events=counted([1]), current_version=ANY)
    last = client.get_stream(stream)[0].commit_position
    while (told := next(subscription)).commit_position < last:
        assert isinstance(told, Checkpoint), told
    subscription.stop()


@case
def resolve_links(client):
    stream, links = new_stream(), new_stream()
    client.append_to_stream(stream, events=counted([7, 8]), current_version=ANY)
    for data in [f"1@{stream}", f"0@{stream}"]:
        link = NewEvent(type="$>", data=data.encode(), content_type="application/octet-stream")
        client.append_to_stream(links, events=[link], current_version=ANY)
    as_they_are = client.get_stream(links)
    expect([event.type for event in as_they_are], ["$>", "$>"])
    resolved = client.get_stream(links, resolve_links=True)
    expect(numbers(resolved), [8, 7])
    expect([event.stream_name for event in resolved], [stream, stream])
    expect([event.link.stream_position for event in resolved], [0, 1])
    subscription = client.subscribe_to_stream(links, resolve_links=True)
    expect([number(next(subscription)) for _ in range(2)], [8, 7])
    subscription.stop()


def main(connection, kept, turn=None):
    global KEPT
    KEPT = kept
    client = KurrentDBClient(uri=connection)
    outcome = (again if turn == "again" else case).run(client)
    client.close()
    return outcome


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
