// The Node client, unchanged, against a server.
//
//     NODE_PATH=node_modules node node_client.cjs CONNECTION FILE [again]
//
// CONNECTION is the client's connection string. FILE keeps state for the cases of "again", which
// run after a restart of the server. Each case prints a line; the last line counts passed, failed
// and skipped cases.
"use strict";

const assert = require("node:assert/strict");
const { randomUUID } = require("node:crypto");
const { readFileSync, writeFileSync } = require("node:fs");
const {
  ANY,
  BACKWARDS,
  END,
  KurrentDBClient,
  MaxAppendSizeExceededError,
  NO_STREAM,
  START,
  STREAM_EXISTS,
  StreamDeletedError,
  StreamNotFoundError,
  WrongExpectedVersionError,
  binaryEvent,
  eventTypeFilter,
  excludeSystemEvents,
  jsonEvent,
  streamNameFilter,
} = require("@kurrent/kurrentdb-client");

const [connection, kept, turn] = process.argv.slice(2);
const client = KurrentDBClient.connectionString(connection);
// With credentials of its own a call uses Append, otherwise BatchAppend.
const ALONE = { credentials: { username: "user", password: "none" } };

const newStream = () => `node-${randomUUID()}`;
const range = (from, to) => Array.from({ length: to - from }, (_, index) => from + index);
const counted = (numbers) => numbers.map((n) => jsonEvent({ type: "Counted", data: { n } }));
const append = (stream, numbers, options = {}) =>
  client.appendToStream(stream, counted(numbers), options);

async function numbers(events) {
  const seen = [];
  for await (const { event } of events) seen.push(event.data.n);
  return seen;
}

async function take(subscription, count) {
  const seen = [];
  for await (const { event } of subscription) {
    seen.push(event.data.n);
    if (seen.length === count) break;
  }
  return seen;
}

const cases = {
  async "append an event and read it back"() {
    const stream = newStream();
    const event = jsonEvent({ type: "Opened", data: { by: "ada" }, metadata: { trace: "7" } });
    const done = await client.appendToStream(stream, event, { streamState: NO_STREAM });
    assert.equal(done.success, true);
    assert.equal(done.nextExpectedRevision, 0n);
    for await (const { event: read, commitPosition } of client.readStream(stream)) {
      assert.deepEqual(read.data, event.data);
      assert.deepEqual(read.metadata, event.metadata);
      assert.equal(read.id, event.id);
      assert.equal(read.type, "Opened");
      assert.equal(read.revision, 0n);
      assert.equal(read.isJson, true);
      assert.ok(Date.now() - read.created.getTime() < 60_000);
      assert.equal(commitPosition, done.position.commit);
    }
  },
  async "append through Append"() {
    const stream = newStream();
    const done = await append(stream, range(0, 3), ALONE);
    assert.equal(done.nextExpectedRevision, 2n);
    const wrong = append(stream, [9], { ...ALONE, streamState: 7n });
    await assert.rejects(wrong, WrongExpectedVersionError);
    assert.deepEqual(await numbers(client.readStream(stream)), [0, 1, 2]);
  },
  async "append bytes"() {
    const stream = newStream();
    const bytes = Uint8Array.from(range(0, 256));
    await client.appendToStream(stream, binaryEvent({ type: "Blob", data: bytes }));
    for await (const { event } of client.readStream(stream)) {
      assert.equal(event.isJson, false);
      assert.deepEqual(Uint8Array.from(event.data), bytes);
    }
  },
  async "append a batch in many parts"() {
    const stream = newStream();
    const done = await append(stream, range(0, 2000), { batchAppendSize: 4096 });
    assert.equal(done.nextExpectedRevision, 1999n);
    assert.deepEqual(await numbers(client.readStream(stream)), range(0, 2000));
  },
  async "append many batches at once"() {
    const streams = range(0, 500).map(newStream);
    const done = await Promise.all(
      streams.map((stream, n) => append(stream, [n], { streamState: NO_STREAM })),
    );
    assert.ok(done.every((result) => result.success && result.nextExpectedRevision === 0n));
    assert.deepEqual(await numbers(client.readStream(streams[499])), [499]);
  },
  async "check the limits of an append"() {
    const data = new Uint8Array(7_000_000);
    const blobs = range(0, 3).map(() => binaryEvent({ type: "Blob", data }));
    await assert.rejects(client.appendToStream(newStream(), blobs), MaxAppendSizeExceededError);
    assert.equal((await append(newStream(), [1])).success, true);
  },
  async "append the same events again"() {
    const stream = newStream();
    const events = counted([0, 1]);
    const first = await client.appendToStream(stream, events, { streamState: NO_STREAM });
    const again = await client.appendToStream(stream, events, { streamState: NO_STREAM });
    assert.deepEqual(again, first);
    assert.deepEqual(await numbers(client.readStream(stream)), [0, 1]);
  },
  async "see a wrong expected version"() {
    const stream = newStream();
    await append(stream, [0, 1]);
    for (const streamState of [NO_STREAM, 0n, 7n]) {
      const error = await append(stream, [9], { streamState }).then(assert.fail, (e) => e);
      assert.ok(error instanceof WrongExpectedVersionError, error);
      assert.equal(error.streamName, stream);
      assert.equal(error.actualState, 1n);
      assert.equal(error.expectedState, streamState);
    }
    const missing = append(newStream(), [9], { streamState: STREAM_EXISTS });
    await assert.rejects(missing, WrongExpectedVersionError);
  },
  async "read a stream forwards and backwards"() {
    const stream = newStream();
    await append(stream, range(0, 100));
    const read = (options) => numbers(client.readStream(stream, options));
    assert.deepEqual(await read({ fromRevision: 40n, maxCount: 3 }), [40, 41, 42]);
    assert.deepEqual(await read({ direction: BACKWARDS, fromRevision: END, maxCount: 2 }), [99, 98]);
    assert.deepEqual(await read({ direction: BACKWARDS, fromRevision: 2n }), [2, 1, 0]);
    assert.deepEqual(await read({ fromRevision: START }), range(0, 100));
  },
  async "read all forwards and backwards"() {
    const stream = newStream();
    const first = await append(stream, [0]);
    await append(stream, range(1, 5));
    const forwards = client.readAll({ fromPosition: first.position, maxCount: 5 });
    assert.deepEqual(await numbers(forwards), [0, 1, 2, 3, 4]);
    const backwards = client.readAll({ direction: BACKWARDS, fromPosition: END, maxCount: 5 });
    assert.deepEqual(await numbers(backwards), [4, 3, 2, 1, 0]);
  },
  async "report a missing stream"() {
    await assert.rejects(numbers(client.readStream(newStream())), StreamNotFoundError);
    await assert.rejects(client.deleteStream(newStream()), WrongExpectedVersionError);
  },
  async "delete a stream and create it again"() {
    const stream = newStream();
    await append(stream, [0, 1]);
    const wrong = client.deleteStream(stream, { expectedRevision: 5n });
    await assert.rejects(wrong, WrongExpectedVersionError);
    const deleted = await client.deleteStream(stream, { expectedRevision: 1n });
    assert.ok(deleted.position.commit > 0n);
    await assert.rejects(numbers(client.readStream(stream)), StreamNotFoundError);
    const done = await append(stream, [2], { streamState: NO_STREAM });
    assert.equal(done.nextExpectedRevision, 2n);
    assert.deepEqual(await numbers(client.readStream(stream)), [2]);
  },
  async "tombstone a stream"() {
    const stream = newStream();
    await append(stream, [0]);
    await client.tombstoneStream(stream, { expectedRevision: 0n });
    await assert.rejects(numbers(client.readStream(stream)), StreamDeletedError);
    await assert.rejects(append(stream, [1]), StreamDeletedError);
    await assert.rejects(append(stream, [1], ALONE), StreamDeletedError);
    await assert.rejects(client.deleteStream(stream), StreamDeletedError);
  },
  async "subscribe to a stream, catch up and go live"() {
    const stream = newStream();
    await append(stream, range(0, 120));
    const subscription = client.subscribeToStream(stream);
    const order = [];
    subscription.on("confirmation", () => order.push("confirmation"));
    subscription.on("caughtUp", (info) => order.push(info.revision));
    const seen = take(subscription, 170);
    for (const n of range(120, 170)) await append(stream, [n]);
    assert.deepEqual(await seen, range(0, 170));
    assert.equal(order[0], "confirmation");
    assert.equal(order.length, 2);
    await subscription.unsubscribe();
  },
  async "subscribe after an event and from the end"() {
    const stream = newStream();
    await append(stream, range(0, 5));
    const behind = client.subscribeToStream(stream, { fromRevision: 2n });
    const live = client.subscribeToStream(stream, { fromRevision: END });
    const seen = [take(behind, 3), take(live, 1)];
    await new Promise((resolve) => live.on("caughtUp", resolve));
    await append(stream, [5]);
    assert.deepEqual(await Promise.all(seen), [[3, 4, 5], [5]]);
    await Promise.all([behind.unsubscribe(), live.unsubscribe()]);
  },
  async "subscribe to all"() {
    const stream = newStream();
    const first = await append(stream, [0]);
    const subscription = client.subscribeToAll({ fromPosition: first.position });
    const seen = take(subscription, 20);
    for (const n of range(1, 21)) await append(stream, [n]);
    assert.deepEqual(await seen, range(1, 21));
    await subscription.unsubscribe();
  },
  async "set and get the metadata of a stream"() {
    const stream = newStream();
    await append(stream, range(0, 5));
    await client.setStreamMetadata(stream, { maxCount: 2 });
    const { metadata } = await client.getStreamMetadata(stream);
    assert.equal(metadata.maxCount, 2);
    assert.deepEqual(await numbers(client.readStream(stream)), [3, 4]);
  },
  async "find the leader by gossip"() {
    const { host } = new URL(connection.replace("kurrentdb:", "http:"));
    const found = KurrentDBClient.connectionString(`kurrentdb+discover://${host}?tls=false`);
    const stream = newStream();
    const done = await found.appendToStream(stream, counted([1]), { streamState: NO_STREAM });
    assert.equal(done.success, true);
    assert.deepEqual(await numbers(found.readStream(stream)), [1]);
    await found.dispose();
  },
};

// Appends the numbers alternately to two streams with a unique name.
async function mixed(from, to, name = newStream()) {
  let first;
  for (const n of range(from, to)) {
    const done = await append(`${name}-${n % 2 ? "cart" : "order"}`, [n]);
    first ??= done.position;
  }
  return { name, first };
}

Object.assign(cases, {
  async "subscribe with filters by prefix and expression"() {
    const { name, first } = await mixed(0, 20);
    const odd = range(1, 20).filter((n) => n % 2);
    for (const filter of [
      streamNameFilter({ prefixes: [`${name}-cart`, "absent"] }),
      streamNameFilter({ regex: `^${name}-(?!order)` }),
    ]) {
      const subscription = client.subscribeToAll({ fromPosition: first, filter });
      assert.deepEqual(await take(subscription, 10), odd);
      await subscription.unsubscribe();
    }
    for (const filter of [eventTypeFilter({ prefixes: ["Count"] }), excludeSystemEvents()]) {
      const subscription = client.subscribeToAll({ fromPosition: first, filter });
      assert.deepEqual(await take(subscription, 19), range(1, 20));
      await subscription.unsubscribe();
    }
  },
  async "subscribe with a filter and keep a checkpoint"() {
    const { name, first } = await mixed(0, 20);
    const places = [];
    const filter = streamNameFilter({
      prefixes: [`${name}-cart`],
      maxSearchWindow: 3,
      checkpointReached: (_, place) => places.push(place.commit),
    });
    const subscription = client.subscribeToAll({ fromPosition: first, filter });
    const seen = [];
    subscription.on("data", ({ event }) => seen.push(event.data.n));
    await new Promise((resolve) => subscription.on("caughtUp", resolve));
    while (seen.length < 10) await new Promise(setImmediate);
    assert.deepEqual(seen, range(1, 20).filter((n) => n % 2));
    await subscription.unsubscribe();
    assert.ok(places.length >= 6, places);
    writeFileSync(kept, JSON.stringify({ name, place: String(places.at(-1)) }));
  },
  async "reject a broken expression"() {
    const filter = eventTypeFilter({ regex: "a(b" });
    await assert.rejects(take(client.subscribeToAll({ filter }), 1), /broken at character/);
  },
  async "resolve links"() {
    const [stream, links] = [newStream(), newStream()];
    await append(stream, [7, 8]);
    for (const data of [`1@${stream}`, `0@${stream}`]) {
      const bytes = Uint8Array.from(Buffer.from(data));
      await client.appendToStream(links, binaryEvent({ type: "$>", data: bytes }));
    }
    const seen = [];
    for await (const { event, link } of client.readStream(links, { resolveLinkTos: true })) {
      seen.push([event.data.n, event.streamId, link.revision]);
    }
    assert.deepEqual(seen, [[8, stream, 0n], [7, stream, 1n]]);
    const subscription = client.subscribeToStream(links, { resolveLinkTos: true });
    assert.deepEqual(await take(subscription, 2), [8, 7]);
    await subscription.unsubscribe();
  },
});

const again = {
  async "resume at a checkpoint after a restart"() {
    const { name, place } = JSON.parse(readFileSync(kept, "utf8"));
    await mixed(20, 26, name);
    const fromPosition = { commit: BigInt(place), prepare: BigInt(place) };
    const filter = streamNameFilter({ prefixes: [`${name}-cart`] });
    const subscription = client.subscribeToAll({ fromPosition, filter });
    assert.deepEqual(await take(subscription, 3), [21, 23, 25]);
    await subscription.unsubscribe();
  },
};

async function main() {
  let [passed, failed] = [0, 0];
  for (const [name, run] of Object.entries(turn === "again" ? again : cases)) {
    try {
      await run();
      passed += 1;
      console.log(`ok Node: ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED Node: ${name}`);
      console.log(error);
    }
  }
  await client.dispose();
  console.log(`${passed} passed, ${failed} failed, 0 skipped`);
  process.exit(failed > 0 ? 1 : 0);
}

main();
