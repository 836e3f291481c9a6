"""Kills a writer of many events and measures how long a server needs to start on the store.

    python python_start_after_kill.py PROGRAM FOLDER EVENTS [STARTS]

PROGRAM is `umbel`, FOLDER gets the store. `umbel append` gets EVENTS events in a tenth as many
streams. It is killed after it has acknowledged the last one, before the end of its input. Then a
server starts on the store, with an empty page cache if that is allowed. It is measured until it is
ready and has acknowledged an append to an old stream and one to a new stream. Then it is killed,
STARTS times (3). Each case prints a line; the last line counts passed, failed and skipped cases.
"""

import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

from kurrentdbclient import KurrentDBClient, NewEvent, StreamState

PROGRAM, FOLDER, EVENTS = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
STARTS = int(sys.argv[4]) if len(sys.argv) > 4 else 3
STORE = str(FOLDER / "events")
# Seconds until a server has answered.
MOST = 3.0


def fill():
    command = [PROGRAM, "--db", STORE, "append"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    acknowledged = 0

    def give():
        data = '{"total": 12, "currency": "EUR", "note": "' + "x" * 60 + '"}'
        for start in range(0, EVENTS, 10_000):
            lines = (
                '{"stream":"cart-%d","type":"Paid","data":%s}\n' % (n % (EVENTS // 10), data)
                for n in range(start, min(EVENTS, start + 10_000))
            )
            process.stdin.write("".join(lines).encode())
        process.stdin.flush()

    giver = threading.Thread(target=give, daemon=True)
    giver.start()
    while acknowledged < EVENTS:
        chunk = process.stdout.read1(1 << 20)
        if not chunk:
            break
        acknowledged += chunk.count(b"\n")
    process.send_signal(signal.SIGKILL)
    process.wait()
    return acknowledged


def empty_page_cache():
    try:
        subprocess.run(["sync"], check=True)
        Path("/proc/sys/vm/drop_caches").write_text("3")
        return "cold"
    except OSError:
        return "warm"


def start(number):
    cache = empty_page_cache()
    began = time.monotonic()
    command = [PROGRAM, "--db", STORE, "serve", "--insecure", "--listen", "127.0.0.1:0", "--durability", "buffered"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    connection = process.stdout.readline().strip()
    listening = time.monotonic() - began
    address = connection.removeprefix("kurrentdb://").removesuffix("?tls=false")
    with urllib.request.urlopen(f"http://{address}/health/ready") as answer:
        assert answer.status == 204
    client = KurrentDBClient(connection)
    for stream, known in (("cart-7", True), (f"new-{number}", False)):
        state = StreamState.EXISTS if known else StreamState.NO_STREAM
        event = NewEvent(type="Started", data=b"{}")
        client.append_to_stream(stream, current_version=state, events=[event])
    took = time.monotonic() - began
    events = len(client.get_stream("cart-7"))
    client.close()
    process.send_signal(signal.SIGKILL)
    process.wait()
    return cache, listening, took, events


def main():
    began = time.monotonic()
    acknowledged = fill()
    print(f"ok   {acknowledged} events in {time.monotonic() - began:.0f} s, then killed", flush=True)
    failed = int(acknowledged != EVENTS)
    for number in range(STARTS):
        cache, listening, took, events = start(number)
        is_right = took < MOST and events == 11 + number
        failed += not is_right
        print(
            f"{'ok  ' if is_right else 'FAIL'} start {number + 1}, {cache} cache: listens after {listening:.2f} s, "
            f"has answered after {took:.2f} s; {events} events in cart-7",
            flush=True,
        )
    print(f"{1 + STARTS - failed} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
