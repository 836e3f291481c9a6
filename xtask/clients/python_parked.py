"""Appends events with the Python client, parks two of them and tombstones a stream, as data for the console.

    python python_parked.py CONNECTION
"""

import json
import sys

from kurrentdbclient import KurrentDBClient, NewEvent, StreamState

client = KurrentDBClient(uri=sys.argv[1])
events = [NewEvent(type="Counted", data=json.dumps({"n": n}).encode()) for n in range(5)]
client.append_to_stream("parked-1", current_version=StreamState.NO_STREAM, events=events)
client.create_subscription_to_stream("billing", "parked-1")
with client.read_subscription_to_stream("billing", "parked-1") as subscription:
    for number, event in enumerate(subscription):
        if number < 2:
            subscription.nack(event, "park")
        else:
            subscription.ack(event)
        if number == 4:
            break
client.append_to_stream("tombstoned-1", current_version=StreamState.NO_STREAM, events=events[:1])
client.tombstone_stream("tombstoned-1", current_version=StreamState.EXISTS)
client.close()
