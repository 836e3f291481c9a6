// The Node client, unchanged, against a server: persistent subscriptions.
//
//     NODE_PATH=node_modules node node_groups.cjs CONNECTION
//
// CONNECTION is the client's connection string. Each case prints a line; the last line counts
// passed, failed and skipped cases.
"use strict";

const assert = require("node:assert/strict");
const { randomUUID } = require("node:crypto");
const {
  KurrentDBClient,
  PARK,
  PersistentSubscriptionDoesNotExistError,
  PersistentSubscriptionDroppedError,
  PersistentSubscriptionExistsError,
  PersistentSubscriptionMaximumSubscribersReachedError,
  RETRY,
  SKIP,
  START,
  jsonEvent,
  persistentSubscriptionToAllSettingsFromDefaults,
  persistentSubscriptionToStreamSettingsFromDefaults,
  streamNameFilter,
} = require("@kurrent/kurrentdb-client");

const client = KurrentDBClient.connectionString(process.argv[2]);

const SOON = { startFrom: START, checkPointLowerBound: 1, checkPointUpperBound: 1 };
const settings = (changes) =>
  persistentSubscriptionToStreamSettingsFromDefaults({ ...SOON, ...changes });
const counted = (numbers) => numbers.map((n) => jsonEvent({ type: "Counted", data: { n } }));
const append = (stream, numbers) => client.appendToStream(stream, counted(numbers));
const join = (stream) => client.subscribeToPersistentSubscriptionToStream(stream, "group");
const info = (stream) => client.getPersistentSubscriptionToStreamInfo(stream, "group");
const refused = (call) => call.then(assert.fail, (error) => error);

async function newGroup(numbers, changes) {
  const stream = `groups-${randomUUID()}`;
  if (numbers.length > 0) await append(stream, numbers);
  await client.createPersistentSubscriptionToStream(stream, "group", settings(changes));
  return stream;
}

// Receives `count` events and answers each by `answer`.
async function take(subscription, count, answer = (event) => subscription.ack(event)) {
  const seen = [];
  const events = subscription[Symbol.asyncIterator]();
  while (seen.length < count) {
    const { value } = await events.next();
    seen.push(value);
    await answer(value);
  }
  return seen;
}

async function until(stream, isSo) {
  for (let times = 0; times < 200; times += 1) {
    if (isSo((await info(stream)).stats)) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail(`it never was so: ${JSON.stringify((await info(stream)).stats, (_, v) => `${v}`)}`);
}

const numbers = (events) => events.map(({ event }) => event.data.n);
const ended = (subscription) =>
  new Promise((resolve) => subscription.on("error", resolve).on("data", () => {}));

const cases = {
  async "share the events of a stream"() {
    const stream = await newGroup([0, 1, 2]);
    const subscription = join(stream);
    assert.deepEqual(numbers(await take(subscription, 3)), [0, 1, 2]);
    await until(stream, (stats) => stats.lastCheckpointedEventRevision === 2n);
    await subscription.unsubscribe();
  },
  async "retry, skip, park and replay"() {
    const stream = await newGroup([0, 1, 2]);
    const subscription = join(stream);
    const actions = [RETRY, SKIP, PARK];
    const answer = (event) => subscription.nack(actions.shift(), "because", event);
    const seen = [];
    const replayed = new Promise((resolve, reject) => {
      subscription.on("error", reject).on("data", (event) => {
        seen.push([event.event.data.n, event.retryCount]);
        if (actions.length > 0) answer(event);
        else subscription.ack(event);
        if (seen.length === 5) resolve();
      });
    });
    await until(stream, (stats) => Number(stats.parkedMessageCount) === 1);
    await client.replayParkedMessagesToStream(stream, "group");
    await replayed;
    assert.deepEqual(seen.slice(0, 3).map(([n]) => n), [0, 1, 2]);
    assert.deepEqual(seen.slice(3), [[0, 1], [2, 0]]);
    await subscription.unsubscribe();
  },
  async "share all events with a filter"() {
    const [group, stream] = [`group-${randomUUID()}`, `groups-${randomUUID()}`];
    const all = persistentSubscriptionToAllSettingsFromDefaults(SOON);
    const filter = streamNameFilter({ prefixes: [stream] });
    await client.createPersistentSubscriptionToAll(group, all, { filter });
    await append(stream, [0, 1]);
    const subscription = client.subscribeToPersistentSubscriptionToAll(group);
    assert.deepEqual(numbers(await take(subscription, 2)), [0, 1]);
    await subscription.unsubscribe();
    await client.deletePersistentSubscriptionToAll(group);
  },
  async "change and delete a group"() {
    const stream = await newGroup([]);
    const again = client.createPersistentSubscriptionToStream(stream, "group", settings());
    assert.ok((await refused(again)) instanceof PersistentSubscriptionExistsError);
    let error = ended(join(stream));
    while ((await info(stream)).connections.length === 0);
    const one = settings({ maxSubscriberCount: 1 });
    await client.updatePersistentSubscriptionToStream(stream, "group", one);
    assert.ok((await error) instanceof PersistentSubscriptionDroppedError, await error);
    error = ended(join(stream));
    while ((await info(stream)).connections.length === 0);
    const most = await ended(join(stream));
    assert.ok(most instanceof PersistentSubscriptionMaximumSubscribersReachedError, most);
    await client.deletePersistentSubscriptionToStream(stream, "group");
    assert.ok((await error) instanceof PersistentSubscriptionDroppedError, await error);
  },
  async "list groups"() {
    const stream = await newGroup([]);
    const [listed] = await client.listPersistentSubscriptionsToStream(stream);
    assert.equal(listed.groupName, "group");
    const all = await client.listAllPersistentSubscriptions();
    assert.ok(all.some(({ eventSource }) => eventSource === stream));
    await client.restartPersistentSubscriptionSubsystem();
  },
  async "report a missing group"() {
    const calls = [
      () => info("groups-none"),
      () => client.deletePersistentSubscriptionToStream("groups-none", "group"),
      () => client.replayParkedMessagesToStream("groups-none", "group"),
      () => client.updatePersistentSubscriptionToStream("groups-none", "group", settings()),
      () => ended(join("groups-none")).then((error) => Promise.reject(error)),
    ];
    for (const call of calls) {
      const error = await refused(call());
      assert.ok(error instanceof PersistentSubscriptionDoesNotExistError, error);
    }
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
