"""Kills a server repeatedly while the Python client appends, subscribes and consumes.

    python python_kills.py PROGRAM FOLDER ROUNDS [SEED]

PROGRAM is `umbel`, FOLDER gets the store. After each kill the server starts again on the store. At
the end every acknowledged event must be at its revision. A resumed subscription must have received
each event once and in order, and a consumer group each event at least once. Each case prints a
line; the last line counts passed, failed and skipped cases.
"""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from kurrentdbclient import KurrentDBClient, NewEvent, StreamState
from kurrentdbclient.exceptions import AlreadyExistsError, KurrentDBClientError

PROGRAM, FOLDER, ROUNDS = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
SEED = int(sys.argv[4]) if len(sys.argv) > 4 else 1
WRITERS = 3
TIMEOUT_SECONDS = 60


class Server:
    def __init__(self):
        command = [PROGRAM, "--db", str(FOLDER / "events"), "serve", "--insecure", "--listen", "127.0.0.1:0", "--durability", "buffered"]
        began = time.monotonic()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.connection = self.process.stdout.readline().strip()
        self.took = time.monotonic() - began
        assert self.connection, "the server did not start again"

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Writer:
    """Appends numbers to a stream of its own, one to three at a time."""

    def __init__(self, number):
        self.stream = f"kills-{number}"
        self.next = 0
        self.acknowledged = set()

    def work(self, client, stop):
        while not stop.is_set():
            numbers = list(range(self.next, self.next + 1 + self.next % 3))
            events = [NewEvent(type="Counted", data=json.dumps({"n": n}).encode()) for n in numbers]
            # An unacknowledged append may exist or not: its numbers are not used again.
            self.next += len(numbers)
            client.append_to_stream(self.stream, current_version=StreamState.ANY, events=events)
            self.acknowledged.update(numbers)


class Follower:
    """Subscribes to all streams and resumes where it was."""

    def __init__(self):
        self.position = None
        self.seen = []

    def work(self, client, stop):
        with client.subscribe_to_all(commit_position=self.position) as subscription:
            for event in subscription:
                self.seen.append((event.stream_name, event.stream_position, number(event)))
                self.position = event.commit_position


class Consumer:
    """Consumes the events of one stream in a consumer group."""

    def __init__(self):
        self.given = set()

    def work(self, client, stop):
        subscription = client.read_subscription_to_stream("group", "kills-0")
        for event in subscription:
            self.given.add(number(event))
            subscription.ack(event)


def number(event):
    return json.loads(event.data)["n"]


def guarded(work, client, stop, broken):
    try:
        work(client, stop)
    except KurrentDBClientError:
        # The server was killed, as expected.
        pass
    except Exception as error:
        if not stop.is_set():
            broken.append(error)


def round_of(workers, seconds, broken, is_last=None):
    """Lets the clients work until the server is killed or they have done enough."""
    server = Server()
    stop = threading.Event()
    clients, threads = [], []
    for worker in workers:
        client = KurrentDBClient(uri=server.connection)
        clients.append(client)
        arguments = (worker.work, client, stop, broken)
        threads.append(threading.Thread(target=guarded, args=arguments, daemon=True))
    for thread in threads:
        thread.start()
    if is_last:
        is_last(clients[0])
    else:
        time.sleep(seconds)
    stop.set()
    server.kill()
    for client in clients:
        # This client needs half a minute to stop a consumer whose server is dead.
        threading.Thread(target=client.close, daemon=True).start()
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
        assert not thread.is_alive(), "a client hangs"
    return server.took


def main():
    chance = random.Random(SEED)
    writers = [Writer(n) for n in range(WRITERS)]
    follower, consumer, broken = Follower(), Consumer(), []
    server = Server()
    client = KurrentDBClient(uri=server.connection)
    settings = {"min_checkpoint_count": 1, "checkpoint_after": 0.1}
    try:
        client.create_subscription_to_stream("group", "kills-0", **settings)
    except AlreadyExistsError:
        pass
    client.close()
    server.kill()
    took = [round_of([*writers, follower, consumer], chance.uniform(0.05, 0.6), broken) for _ in range(ROUNDS)]
    stored = {}

    def last(client):
        for writer in writers:
            stored[writer.stream] = [number(event) for event in client.get_stream(writer.stream)]
        wanted = sum(len(numbers) for numbers in stored.values())
        until = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < until:
            if len(follower.seen) >= wanted and consumer.given >= set(stored["kills-0"]):
                break
            time.sleep(0.1)
        # No event may come twice after it.
        time.sleep(1)

    round_of([follower, consumer], 0, broken, is_last=last)
    took.sort()
    acknowledged = sum(len(writer.acknowledged) for writer in writers)
    lost = [(w.stream, n) for w in writers for n in w.acknowledged - set(stored[w.stream])]
    twice = [stream for stream, numbers in stored.items() if len(numbers) != len(set(numbers))]
    unordered = [stream for stream, numbers in stored.items() if numbers != sorted(numbers)]
    followed = {stream: [] for stream in stored}
    for stream, revision, n in follower.seen:
        followed[stream].append((revision, n))
    gaps = [s for s, numbers in stored.items() if followed[s] != list(enumerate(numbers))]
    missed = sorted(set(stored["kills-0"]) - consumer.given)
    cases = {
        "nothing acknowledged is lost": (lost, acknowledged),
        "nothing is there twice or out of order": (twice + unordered, len(stored)),
        "the subscription saw each event once and in order": (gaps, len(follower.seen)),
        "the group was given each event": (missed, len(consumer.given)),
        "no client broke": ([repr(error) for error in broken], len(writers) + 2),
    }
    failed = 0
    for name, (wrong, count) in cases.items():
        failed += bool(wrong)
        print(f"{'FAILED' if wrong else 'ok'} Kills: {name} ({count}){': ' + str(wrong[:5]) if wrong else ''}")
    median, most = took[len(took) // 2] * 1000, took[-1] * 1000
    print(f"{ROUNDS} kills, seed {SEED}; started again within {median:.0f} ms (median), {most:.0f} ms (most)")
    print(f"{len(cases) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


sys.exit(main())
