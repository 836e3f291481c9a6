"""Ends the leader of a replicated log repeatedly while the Python client appends and subscribes.

    python python_failovers.py PROGRAM FOLDER ROUNDS [NODES]

PROGRAM is `umbel`, FOLDER gets the object store and the nodes, three by default. Each round ends the
leader, by a kill or by a stop in turn, waits until another node has acknowledged three appends, and
starts the ended node again. The client has default settings, starts before the first failover and
is never restarted. It repeats each append with the same event id until that is acknowledged. At
the end each acknowledged event is there once and in order, on all nodes alike. A resumed
subscription has received each event once and in order. Each case prints a line; the last line
counts passed, failed and skipped cases.
"""

import json
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from pathlib import Path

from kurrentdbclient import KurrentDBClient, NewEvent, StreamState
from kurrentdbclient.exceptions import KurrentDBClientError

# An isolated interpreter does not look into the folder of the program.
sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from case_list import CaseList, expect

PROGRAM, FOLDER, ROUNDS = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
NODES = int(sys.argv[4]) if len(sys.argv) > 4 else 3
STREAM = "failovers"
TIMEOUT_SECONDS = 60

case = CaseList("Failovers")


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Cluster:
    def __init__(self):
        objects = FOLDER / "objects"
        objects.mkdir(parents=True)
        self.url = f"file://{objects}"
        created = subprocess.check_output([PROGRAM, "store", "init", self.url, "--json"])
        self.log = json.loads(created)["log"]
        self.ports = {name: free_port() for name in "abcdefgh"[:NODES]}
        self.processes = {}
        for name in self.ports:
            self.start(name)

    @property
    def connection(self):
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        return f"kurrentdb://{hosts}?tls=false"

    def start(self, name):
        command = [PROGRAM, "--db", str(FOLDER / name), "serve", "--insecure"]
        command += ["--listen", f"127.0.0.1:{self.ports[name]}"]
        command += ["--store", self.url, "--node", name, "--join", self.log]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout.readline(), f"node {name} did not start"
        self.processes[name] = process

    def end(self, name, number):
        self.processes[name].send_signal(number)
        self.processes[name].wait()

    def leader(self):
        """Name of a node that leads; None if there is none."""
        for name, port in self.ports.items():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats", timeout=2) as answer:
                    if json.load(answer)["replication"]["role"] == "leader":
                        return name
            except OSError:
                pass
        return None

    def events(self, name):
        """All events of the stream on this node: pairs of revision and number."""
        command = [PROGRAM, "read", "--connect", f"http://127.0.0.1:{self.ports[name]}", "--stream", STREAM]
        lines = subprocess.check_output(command, text=True).splitlines()
        return [(event["revision"], int(event["data"])) for event in map(json.loads, lines)]

    def stop(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait()


def wait_until(what, condition):
    limit = time.monotonic() + TIMEOUT_SECONDS
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < limit, f"{what}: not within {TIMEOUT_SECONDS} s"
        time.sleep(0.05)


class Clients:
    """A writer and a subscriber, each with a client of its own."""

    def __init__(self, connection):
        self.connection = connection
        self.acknowledged, self.received = [], []
        self.disconnects = {"writer": 0, "subscriber": 0}
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.write, self.subscribe)]
        for thread in self.threads:
            thread.start()

    def write(self):
        client = KurrentDBClient(self.connection)
        number = 0
        while not self.stopping.is_set():
            event = NewEvent(type="Counted", data=b"%d" % number, id=uuid.uuid5(uuid.NAMESPACE_OID, str(number)))
            try:
                client.append_to_stream(STREAM, current_version=StreamState.ANY, events=[event], timeout=5)
            except KurrentDBClientError:
                self.disconnects["writer"] += 1
                time.sleep(0.1)
                continue
            self.acknowledged.append(number)
            number += 1

    def subscribe(self):
        client = KurrentDBClient(self.connection)
        position = None
        while not self.stopping.is_set():
            try:
                for event in client.subscribe_to_stream(STREAM, stream_position=position):
                    position = event.stream_position
                    self.received.append((position, int(event.data)))
            except KurrentDBClientError:
                self.disconnects["subscriber"] += 1
                time.sleep(0.1)

    def stop(self):
        self.stopping.set()
        self.threads[0].join()


def run_rounds():
    """Ends each leader. Returns the seconds until the next one has acknowledged appends, by signal."""
    took = {"SIGKILL": [], "SIGTERM": []}
    for number in range(ROUNDS):
        name = wait_until("a leader", cluster.leader)
        before, began = len(clients.acknowledged), time.monotonic()
        ending = list(took)[number % 2]
        cluster.end(name, getattr(signal, ending))
        wait_until("three appends", lambda: len(clients.acknowledged) >= before + 3)
        took[ending].append(time.monotonic() - began)
        cluster.start(name)
        # The next leader should not be lost before a node can replace it.
        wait_until("an append", lambda: len(clients.acknowledged) >= before + 4)
    return took


@case
def each_acknowledged_event_is_stored_once_and_in_order():
    stored = [number for _, number in cluster.events(wait_until("a leader", cluster.leader))]
    expect(stored, sorted(set(stored)))
    expect(sorted(set(clients.acknowledged) - set(stored)), [])


@case
def all_nodes_have_the_same_events():
    wanted = cluster.events(cluster.leader())
    for name in cluster.ports:
        wait_until(f"node {name} follows", lambda: cluster.events(name) == wanted)


@case
def resumed_subscription_received_each_event_once():
    wanted = cluster.events(cluster.leader())
    wait_until("the subscription", lambda: len(clients.received) >= len(wanted))
    expect(clients.received, wanted)


cluster = Cluster()
clients = Clients(cluster.connection)
wait_until("appends", lambda: len(clients.acknowledged) >= 10)
for ending, times in run_rounds().items():
    if times:
        middle, longest = statistics.median(times), max(times)
        print(f"after {ending}: {len(times)} failovers, median {middle:.1f} s, maximum {longest:.1f} s")
clients.stop()
print(f"{len(clients.acknowledged)} acknowledged appends; errors of the clients: {clients.disconnects}")
code = case.run()
cluster.stop()
sys.exit(code)
