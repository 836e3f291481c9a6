"""The Python client, unchanged, against a server: persistent subscriptions.

    python python_groups.py CONNECTION

CONNECTION is the client's connection string. Each case prints a line; the last line counts passed,
failed and skipped cases.
"""

import json
import sys
import time
from pathlib import Path
from uuid import uuid4

from kurrentdbclient import KurrentDBClient, NewEvent, StreamState
from kurrentdbclient.exceptions import (
    AlreadyExistsError,
    CancelledError,
    MaximumSubscriptionsReachedError,
    NotFoundError,
)

# An isolated interpreter does not look into the folder of the program.
sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from case_list import CaseList, expect, fails

case = CaseList()
SOON = {"min_checkpoint_count": 1, "max_checkpoint_count": 1, "checkpoint_after": 0.1}


def new_group(client, numbers, **settings):
    """Creates a stream of events with these numbers and a group on it."""
    stream = f"groups-{uuid4()}"
    append(client, stream, numbers)
    client.create_subscription_to_stream("group", stream, **{**SOON, **settings})
    return stream


def append(client, stream, numbers):
    events = [NewEvent(type="Counted", data=json.dumps({"n": n}).encode()) for n in numbers]
    client.append_to_stream(stream, current_version=StreamState.ANY, events=events)


def number(event):
    return json.loads(event.data)["n"]


def join(client, stream, **options):
    return client.read_subscription_to_stream("group", stream, **options)


def take(subscription, count, ack=True):
    events = []
    for event in subscription:
        events.append(event)
        if ack:
            subscription.ack(event)
        if len(events) == count:
            return events


def until(client, stream, is_so):
    for _ in range(200):
        info = client.get_subscription_info("group", stream)
        if is_so(info):
            return info
        time.sleep(0.05)
    raise AssertionError(f"condition not met in time: {info}")


@case
def share_the_events_of_a_stream(client):
    stream = new_group(client, range(5))
    subscription = join(client, stream)
    expect([number(event) for event in take(subscription, 5)], list(range(5)))
    append(client, stream, [5])
    expect([number(event) for event in take(subscription, 1)], [5])
    until(client, stream, lambda info: info.last_checkpointed_event_position == "5")
    subscription.stop()
    append(client, stream, [6])
    subscription = join(client, stream)
    expect([number(event) for event in take(subscription, 1)], [6])
    subscription.stop()


@case
def take_over_from_a_consumer_that_stops(client):
    stream = new_group(client, range(3))
    subscription = join(client, stream)
    take(subscription, 3, ack=False)
    subscription.stop()
    subscription = join(client, stream)
    events = take(subscription, 3)
    expect([number(event) for event in events], [0, 1, 2])
    expect([event.retry_count for event in events], [1, 1, 1])
    subscription.stop()


@case
def retry_skip_park_and_replay(client):
    stream = new_group(client, range(3))
    subscription = join(client, stream)
    events = take(subscription, 3, ack=False)
    subscription.nack(events[0], action="retry")
    subscription.nack(events[1], action="skip")
    subscription.nack(events[2], action="park")
    [again] = take(subscription, 1)
    expect((number(again), again.retry_count), (0, 1))
    until(client, stream, lambda info: info.parked_message_count == 1)
    client.replay_parked_events("group", stream)
    expect([number(event) for event in take(subscription, 1)], [2])
    until(client, stream, lambda info: info.parked_message_count == 0)
    subscription.stop()


@case
def share_all_events_with_a_filter(client):
    group, stream = f"group-{uuid4()}", f"groups-{uuid4()}"
    client.create_subscription_to_all(
        group, filter_include=[stream], filter_by_stream_name=True, **SOON
    )
    append(client, stream, range(3))
    subscription = client.read_subscription_to_all(group)
    expect([number(event) for event in take(subscription, 3)], [0, 1, 2])
    subscription.stop()
    client.delete_subscription(group)


@case
def share_a_category(client):
    category = f"groups{uuid4().hex}"
    append(client, f"{category}-1", range(2))
    view = f"$ce-{category}"
    client.create_subscription_to_stream("group", view, resolve_links=True, **SOON)
    subscription = join(client, view)
    expect([number(event) for event in take(subscription, 2)], [0, 1])
    until(client, view, lambda info: info.last_checkpointed_event_position == "1")
    subscription.stop()


@case
def change_and_delete_a_group(client):
    stream = new_group(client, [])
    fails(AlreadyExistsError, lambda: client.create_subscription_to_stream("group", stream))
    subscription = join(client, stream)
    client.update_subscription_to_stream("group", stream, max_subscriber_count=1)
    fails(CancelledError, lambda: next(subscription))
    expect(client.get_subscription_info("group", stream).max_subscriber_count, 1)
    subscription = join(client, stream)
    fails(MaximumSubscriptionsReachedError, lambda: join(client, stream))
    client.delete_subscription("group", stream)
    fails(CancelledError, lambda: next(subscription))
    fails(NotFoundError, lambda: client.delete_subscription("group", stream))


@case
def list_groups(client):
    stream = new_group(client, [])
    expect([info.group_name for info in client.list_subscriptions_to_stream(stream)], ["group"])
    assert stream in [info.event_source for info in client.list_subscriptions()]


@case
def report_a_missing_group(client):
    fails(NotFoundError, lambda: join(client, "groups-none"))
    fails(NotFoundError, lambda: client.get_subscription_info("group", "groups-none"))
    fails(NotFoundError, lambda: client.replay_parked_events("group", "groups-none"))
    fails(NotFoundError, lambda: client.update_subscription_to_stream("group", "groups-none"))


def main(connection):
    client = KurrentDBClient(uri=connection)
    outcome = case.run(client)
    client.close()
    return outcome


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
