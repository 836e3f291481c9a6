// The Node client, unchanged, against a TLS server that authenticates users.
//
//     NODE_PATH=node_modules node node_secure.cjs CONNECTION FOLDER
//
// CONNECTION names the server without a user. FOLDER has ca.crt (the authority of the server),
// strange.crt (another authority), and ops.crt with ops.key, a certificate of the user ops. The
// passwords of admin and ops are first and second. Each case prints a line; the last line counts
// passed, failed and skipped cases.
"use strict";

const assert = require("node:assert/strict");
const { randomUUID } = require("node:crypto");
const { join } = require("node:path");
const {
  AccessDeniedError,
  KurrentDBClient,
  START,
  jsonEvent,
  persistentSubscriptionToStreamSettingsFromDefaults,
} = require("@kurrent/kurrentdb-client");

const [connection, folder] = process.argv.slice(2);

function connect(user, query = {}) {
  const settings = { tlsCAFile: join(folder, "ca.crt"), ...query };
  const parts = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
  const at = connection.replace("://", `://${user ? `${user}@` : ""}`);
  return KurrentDBClient.connectionString(`${at}?${parts.join("&")}`);
}

const [admin, ops] = [connect("admin:first"), connect("ops:second")];
const refused = (call) => call.then(assert.fail, (error) => error);
const append = (client, stream, n = 0) =>
  client.appendToStream(stream, [jsonEvent({ type: "Counted", data: { n } })]);
const rule = (client, stream, acl) => client.setStreamMetadata(stream, { acl });

async function denied(call) {
  const error = await refused(call);
  assert.ok(error instanceof AccessDeniedError, error);
}

async function read(client, stream) {
  const seen = [];
  for await (const { event } of client.readStream(stream)) seen.push(event.data.n);
  return seen;
}

async function newStream(acl) {
  const stream = `secure-${randomUUID()}`;
  await append(admin, stream);
  if (acl) await rule(admin, stream, acl);
  return stream;
}

const cases = {
  "append and read encrypted with a password": async () => {
    const stream = await newStream();
    await append(ops, stream, 1);
    assert.deepEqual(await read(ops, stream), [0, 1]);
  },

  "authenticate one call": async () => {
    const stream = await newStream({ readRoles: ["admin"], writeRoles: ["admin"] });
    const credentials = { username: "admin", password: "first" };
    const event = jsonEvent({ type: "Counted", data: { n: 1 } });
    await denied(ops.appendToStream(stream, [event]));
    await ops.appendToStream(stream, [event], { credentials });
    const wrong = { credentials: { username: "admin", password: "second" } };
    await denied(ops.appendToStream(stream, [event], wrong));
  },

  "reject a missing and a wrong password": async () => {
    for (const user of [undefined, "admin:second", "unknown:first"]) {
      const client = connect(user);
      await denied(append(client, "secure-none"));
      await client.dispose();
    }
  },

  "authenticate by a user certificate": async () => {
    const stream = await newStream({ readRoles: ["ops"], writeRoles: ["ops"] });
    const [userCertFile, userKeyFile] = [join(folder, "ops.crt"), join(folder, "ops.key")];
    const client = connect(undefined, { userCertFile, userKeyFile });
    await append(client, stream, 1);
    assert.deepEqual(await read(client, stream), [0, 1]);
    await client.dispose();
  },

  "reject a server without a trusted certificate": async () => {
    const client = connect("admin:first", { tlsCAFile: join(folder, "strange.crt") });
    await refused(append(client, "secure-strange"));
    await client.dispose();
  },

  "obey the ACL of a stream": async () => {
    const acl = { readRoles: ["admin"], writeRoles: ["$ops"], deleteRoles: ["admin"], metaReadRoles: ["admin"], metaWriteRoles: ["admin"] };
    const stream = await newStream(acl);
    await denied(read(ops, stream));
    await append(ops, stream, 1);
    await denied(ops.getStreamMetadata(stream));
    await denied(rule(ops, stream, {}));
    await denied(ops.deleteStream(stream));
    assert.deepEqual(await read(admin, stream), [0, 1]);
    await admin.deleteStream(stream);
  },

  "use the general ACL by name": async () => {
    const stream = await newStream("$systemStreamAcl");
    await denied(read(ops, stream));
    await rule(admin, stream, "$userStreamAcl");
    assert.deepEqual(await read(ops, stream), [0]);
  },

  "end a subscription after its permission is revoked": async () => {
    const stream = await newStream();
    const subscription = ops.subscribeToStream(stream, { fromRevision: START });
    const events = subscription[Symbol.asyncIterator]();
    assert.equal((await events.next()).value.event.data.n, 0);
    await rule(admin, stream, { readRoles: ["admin"] });
    await append(admin, stream, 1);
    await denied(events.next());
  },

  "consume with read permission only": async () => {
    const [stream, hidden] = [await newStream(), await newStream({ readRoles: ["admin"] })];
    const settings = persistentSubscriptionToStreamSettingsFromDefaults({ startFrom: START });
    for (const of of [stream, hidden]) {
      await ops.createPersistentSubscriptionToStream(of, "group", settings);
    }
    const take = async (of) => {
      const subscription = ops.subscribeToPersistentSubscriptionToStream(of, "group");
      const { value } = await subscription[Symbol.asyncIterator]().next();
      await subscription.ack(value);
      await subscription.unsubscribe();
      return value.event.data.n;
    };
    assert.equal(await take(stream), 0);
    await denied(take(hidden));
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
  await Promise.all([admin.dispose(), ops.dispose()]);
  console.log(`${passed} passed, ${failed} failed, 0 skipped`);
  process.exit(failed > 0 ? 1 : 0);
}

main();
