// The Node client, unchanged, against a server: multi-stream appends and projections.
//
//     NODE_PATH=node_modules node node_sessions_and_projections.cjs CONNECTION
//
// CONNECTION is the client's connection string. Each case prints a line; the last line counts
// passed, failed and skipped cases.
"use strict";

const assert = require("node:assert/strict");
const { randomUUID } = require("node:crypto");
const {
  ANY,
  AppendConsistencyViolationError,
  AppendRecordSizeExceededError,
  KurrentDBClient,
  NO_STREAM,
  NotFoundError,
  RUNNING,
  STOPPED,
  STREAM_EXISTS,
  STREAM_STATE,
  StreamTombstonedError,
  TransactionMaxSizeExceededError,
  WrongExpectedVersionError,
  binaryEvent,
  jsonEvent,
} = require("@kurrent/kurrentdb-client");

const client = KurrentDBClient.connectionString(process.argv[2]);

const newStream = () => `second-${randomUUID()}`;
const counted = (numbers) => numbers.map((n) => jsonEvent({ type: "Counted", data: { n } }));
const append = (stream, numbers) => client.appendToStream(stream, counted(numbers));
const part = (streamName, expectedState, numbers) => ({
  streamName,
  expectedState,
  events: counted(numbers),
});
const record = (streamName, n) => ({ streamName, record: counted([n])[0] });
const check = (streamName, expectedState) => ({ type: STREAM_STATE, streamName, expectedState });

async function read(stream) {
  const seen = [];
  for await (const { event } of client.readStream(stream)) seen.push(event);
  return seen;
}

const numbers = async (stream) => (await read(stream)).map((event) => event.data.n);
const refused = (call) => call.then(assert.fail, (error) => error);

const cases = {
  async "append to several streams in one session"() {
    const [one, two] = [newStream(), newStream()];
    await append(two, [0, 1]);
    const event = jsonEvent({ type: "Opened", data: { n: 7 }, metadata: { trace: "5" } });
    const done = await client.multiStreamAppend([
      { streamName: one, expectedState: NO_STREAM, events: [event] },
      part(two, 1n, [2, 3]),
    ]);
    assert.deepEqual(done.responses, [
      { streamName: one, revision: 0n },
      { streamName: two, revision: 3n },
    ]);
    const [opened] = await read(one);
    assert.equal(opened.id, event.id);
    assert.equal(opened.isJson, true);
    assert.deepEqual(opened.data, event.data);
    assert.deepEqual(opened.metadata, {
      trace: "5",
      "$schema.name": "Opened",
      "$schema.format": "Json",
    });
    assert.deepEqual(await numbers(two), [0, 1, 2, 3]);
  },
  async "append bytes in a session"() {
    const stream = newStream();
    const data = Uint8Array.from({ length: 256 }, (_, index) => index);
    const events = [binaryEvent({ type: "Blob", data })];
    await client.multiStreamAppend([{ streamName: stream, expectedState: ANY, events }]);
    const [blob] = await read(stream);
    assert.equal(blob.isJson, false);
    assert.deepEqual(Uint8Array.from(blob.data), data);
  },
  async "see a wrong revision in a session"() {
    const [one, two] = [newStream(), newStream()];
    await append(one, [0, 1]);
    for (const state of [NO_STREAM, 0n, 7n]) {
      const session = client.multiStreamAppend([part(two, ANY, [9]), part(one, state, [9])]);
      const error = await refused(session);
      assert.ok(error instanceof WrongExpectedVersionError, error);
      assert.equal(error.streamName, one);
      assert.equal(error.expectedState, state);
      assert.equal(error.actualState, 1n);
    }
    const error = await refused(client.multiStreamAppend([part(two, STREAM_EXISTS, [9])]));
    assert.equal(error.actualState, NO_STREAM);
  },
  async "see a tombstone in a session"() {
    const stream = newStream();
    await client.tombstoneStream(stream);
    const error = await refused(client.multiStreamAppend([part(stream, ANY, [9])]));
    assert.ok(error instanceof StreamTombstonedError, error);
    assert.equal(error.stream, stream);
  },
  async "check the limits of a session"() {
    const large = (size) => binaryEvent({ type: "Blob", data: new Uint8Array(size) });
    const session = (events) =>
      client.multiStreamAppend([{ streamName: newStream(), expectedState: ANY, events }]);
    const event = large(9_000_000);
    const error = await refused(session([event]));
    assert.ok(error instanceof AppendRecordSizeExceededError, error);
    assert.equal(error.recordId, event.id);
    assert.equal(error.maxSize, 8_388_608);
    const together = await refused(session([large(8_000_000), large(8_000_000), large(800_000)]));
    assert.ok(together instanceof TransactionMaxSizeExceededError, together);
    assert.equal(together.maxSize, 16_777_216);
  },
  async "append records of several streams"() {
    const [one, two] = [newStream(), newStream()];
    const streams = [one, two, one, two, one];
    const records = streams.map((stream, n) => record(stream, n));
    const done = await client.appendRecords(records);
    assert.deepEqual(done.responses, [
      { streamName: one, revision: 2n },
      { streamName: two, revision: 1n },
    ]);
    assert.deepEqual(await numbers(one), [0, 2, 4]);
    assert.deepEqual(await numbers(two), [1, 3]);
  },
  async "append records if checks hold"() {
    const [one, other] = [newStream(), newStream()];
    await append(other, [0, 1]);
    const checks = [check(one, NO_STREAM), check(other, 1n), check(newStream(), NO_STREAM)];
    const done = await client.appendRecords([record(one, 0)], checks);
    assert.equal(done.responses[0].revision, 0n);
  },
  async "report every failed check"() {
    const [one, other, gone, dead] = [newStream(), newStream(), newStream(), newStream()];
    await append(other, [0, 1]);
    await append(gone, [0]);
    await client.deleteStream(gone);
    await client.tombstoneStream(dead);
    const checks = [
      check(other, 7n),
      check(other, 1n),
      check(one, STREAM_EXISTS),
      check(gone, STREAM_EXISTS),
      check(dead, STREAM_EXISTS),
      check(dead, NO_STREAM),
    ];
    const error = await refused(client.appendRecords([record(one, 0)], checks));
    assert.ok(error instanceof AppendConsistencyViolationError, error);
    const failedChecks = error.violations.map((one) => [one.checkIndex, one.streamName, one.actualState]);
    assert.deepEqual(failedChecks, [
      [0, other, 1n],
      [2, one, NO_STREAM],
      [3, gone, -5n],
      [4, dead, -6n],
    ]);
  },
  async "list the built-in projections"() {
    const listed = await client.listProjections();
    assert.deepEqual(Object.fromEntries(listed.map((one) => [one.name, one.status])), {
      $streams: RUNNING,
      $stream_by_category: STOPPED,
      $by_category: RUNNING,
      $by_event_type: RUNNING,
      $by_correlation_id: STOPPED,
    });
  },
  async "stop, start and reset a projection"() {
    const name = "$streams";
    await client.disableProjection(name);
    const stopped = await client.getProjectionStatus(name);
    assert.equal(stopped.projectionStatus, STOPPED);
    await append(newStream(), [1]);
    assert.equal((await client.getProjectionStatus(name)).position, stopped.position);
    await client.resetProjection(name);
    assert.equal((await client.getProjectionStatus(name)).position, "C:0/P:0");
    await client.enableProjection(name);
    const running = await client.getProjectionStatus(name);
    assert.equal(running.projectionStatus, RUNNING);
    assert.equal(running.progress, 100);
    await client.abortProjection(name);
    assert.equal((await client.getProjectionStatus(name)).projectionStatus, STOPPED);
    await client.enableProjection(name);
    await client.restartSubsystem();
  },
  async "enable a projection that runs"() {
    for (const name of ["$by_category", "$by_event_type", "$streams"]) {
      await client.enableProjection(name);
      assert.equal((await client.getProjectionStatus(name)).projectionStatus, RUNNING);
    }
  },
  async "get the state and the result of a projection"() {
    assert.deepEqual(await client.getProjectionState("$by_category"), {});
    assert.deepEqual(await client.getProjectionResult("$by_category"), {});
  },
  async "report a missing projection"() {
    const calls = [
      () => client.getProjectionStatus("mine"),
      () => client.enableProjection("mine"),
      () => client.disableProjection("mine"),
      () => client.resetProjection("mine"),
      () => client.deleteProjection("mine"),
      () => client.updateProjection("mine", "fromAll()"),
      () => client.getProjectionState("mine"),
      () => client.getProjectionResult("mine"),
    ];
    for (const call of calls) {
      const error = await refused(call());
      assert.ok(error instanceof NotFoundError, error);
      assert.match(error.message, /Projection 'mine' not found/);
    }
  },
  async "reject projection programs"() {
    const options = [{}, { trackEmittedStreams: true }];
    for (const option of options) {
      const error = await refused(client.createProjection("mine", "fromAll()", option));
      assert.match(error.message, /JavaScript are not run here/);
    }
    const error = await refused(client.enableProjection("$by_correlation_id"));
    assert.match(error.message, /is not kept by this server/);
  },
};

async function main() {
  let [passed, failed] = [0, 0];
  for (const [name, run] of Object.entries(cases)) {
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
