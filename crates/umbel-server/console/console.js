// The console's pages. Everything that comes from the store is put on the page as text.

const main = document.querySelector("#main");
const said = document.querySelector("#said");
const server = { user: null, hasUsers: false, isAdmin: false, isOperator: false };
let timers = [];

// -- the server ------------------------------------------------------------------------------------

async function answerOf(response) {
  let answer;
  try {
    answer = await response.json();
  } catch {
    throw new Error(`the server answered ${response.status}`);
  }
  if (!response.ok) throw new Error(answer.error ?? `the server answered ${response.status}`);
  return answer;
}

async function view(name, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const text = given.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
  return answerOf(await fetch(`/console/api/${name}?${text}`));
}

async function change(name, fields) {
  const headers = { "content-type": "application/json", "x-umbel-console": "1" };
  const body = JSON.stringify(fields);
  return answerOf(await fetch(`/console/api/${name}`, { method: "POST", headers, body }));
}

function say(text) {
  said.textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => (said.textContent = ""), 6000);
}

// Runs an action and shows its result.
async function attempt(what, work) {
  try {
    await work();
    if (what) say(what);
  } catch (error) {
    say(`Failed: ${error.message}`);
  }
}

// -- the page --------------------------------------------------------------------------------------

function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const link = (href, text) => el("a", { href }, text);
const streamLink = (name) => link(`#/stream/${encodeURIComponent(name)}`, name);
const button = (text, onclick, attributes = {}) => el("button", { type: "button", onclick, ...attributes }, text);
const number = (value) => Number(value).toLocaleString("en");
const percent = (share) => (share === null || share === undefined ? "–" : `${(share * 100).toPrecision(3)} %`);

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) [count, unit] = [count / 1024, unit + 1];
  return `${unit === 0 ? count : count.toFixed(1)} ${units[unit]}`;
}

function moment(micros) {
  const date = new Date(micros / 1000);
  return el("time", { datetime: date.toISOString() }, date.toLocaleString());
}

// A table: columns are [title, "number" | "tight" | "optional" | ""].
function table(caption, columns, rows, empty) {
  if (rows.length === 0) return el("p", { class: "soft" }, empty);
  const head = columns.map(([title, kind]) => el("th", { scope: "col", class: kind }, title));
  const body = rows.map((row) =>
    el("tr", {}, row.map((cell, at) => el("td", { class: columns[at][1] }, cell))),
  );
  return el(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)),
  );
}

function show(title, ...parts) {
  document.title = `${title} – Umbel`;
  main.replaceChildren(el("h1", {}, title), ...parts.flat());
  main.setAttribute("aria-busy", "false");
}

// Repeats an action while the page is shown and visible.
function every(milliseconds, work) {
  let busy = false;
  const timer = setInterval(async () => {
    if (busy || document.hidden) return;
    busy = true;
    try {
      await work();
    } catch (error) {
      say(error.message);
    }
    busy = false;
  }, milliseconds);
  timers.push(timer);
}

// -- streams ---------------------------------------------------------------------------------------

async function streams(_, query) {
  const prefix = query.get("prefix") ?? "";
  const after = query.get("after") ?? "";
  const found = await view("streams", { prefix, after });
  const reached = found.streams.at(-1)?.name ?? (after || "$");
  if (!prefix && !found.isWhole && reached.startsWith("$")) {
    // System streams are hidden: continue after the last possible name of one.
    const others = await view("streams", { prefix, after: "$\u{10ffff}" });
    found.streams.push(...others.streams);
    found.isWhole = others.isWhole;
    found.isCut = others.isCut;
  }
  const search = el("input", {
    type: "search", id: "search", value: prefix, placeholder: "name prefix",
    "aria-label": "Streams with the name prefix", autocomplete: "off", spellcheck: "false",
  });
  const form = el(
    "form",
    {
      class: "row", role: "search",
      onsubmit: (event) => {
        event.preventDefault();
        location.hash = `#/streams?prefix=${encodeURIComponent(search.value)}`;
      },
    },
    search,
    el("button", { class: "main" }, "Search"),
    button("Open by name", () => {
      if (search.value) location.hash = `#/stream/${encodeURIComponent(search.value)}`;
    }),
  );
  const rows = found.streams
    .filter(({ name }) => prefix.startsWith("$") || !name.startsWith("$"))
    .map(({ name, state, last }) => [
      streamLink(name),
      el("span", { class: state === "live" ? "tag good" : "tag" }, state),
      last === null ? "" : number(last),
    ]);
  const last = found.streams.at(-1)?.name;
  const more = `#/streams?prefix=${encodeURIComponent(prefix)}&after=${encodeURIComponent(last ?? "")}`;
  show(
    "Streams", form, appendForm(""),
    table("Streams by name", [["Name", ""], ["State", "tight"], ["Last revision", "number"]], rows,
      prefix ? `No stream begins with ${prefix}.` : "There are no streams yet: append an event."),
    found.isCut
      ? el("p", { class: "soft" }, "There are more streams, of which you may read none here: enter a name prefix.")
      : found.isWhole ? [] : el("p", {}, link(more, "More")),
  );
}

function appendForm(stream) {
  const name = el("input", { type: "text", id: "a-stream", required: true, value: stream, spellcheck: "false" });
  const kind = el("input", { type: "text", id: "a-type", required: true, value: "", spellcheck: "false" });
  const data = el("textarea", { id: "a-data", spellcheck: "false" }, "{}");
  const metadata = el("textarea", { id: "a-metadata", spellcheck: "false" });
  const expected = el(
    "select", { id: "a-expected" },
    el("option", { value: "any" }, "always"),
    el("option", { value: "none" }, "the stream does not exist"),
    el("option", { value: "exists" }, "the stream exists"),
  );
  const json = el("input", { type: "checkbox", id: "a-json", checked: true });
  const submit = async (event) => {
    event.preventDefault();
    await attempt(null, async () => {
      const done = await change("append", {
        stream: name.value, type: kind.value, data: data.value, metadata: metadata.value,
        expected: expected.value, isJson: json.checked,
      });
      say(`Appended as revision ${done.revision}.`);
      const target = `#/stream/${encodeURIComponent(name.value)}`;
      if (location.hash === target) await route();
      else location.hash = target;
    });
  };
  const field = (id, text, input) => [el("label", { for: id }, text), input];
  return el(
    "details", { class: "form" }, el("summary", {}, "Append an event"),
    el(
      "form", { onsubmit: submit },
      field("a-stream", "Stream", name), field("a-type", "Type", kind), field("a-data", "Data", data),
      field("a-metadata", "Metadata (optional)", metadata),
      field("a-expected", "Append if", expected),
      el("div", { class: "row" },
        el("label", { class: "inline", for: "a-json" }, json, "The data is JSON"),
        el("button", { class: "main" }, "Append")),
    ),
  );
}

// Data or metadata: indented JSON, plain text, or bytes in base64.
/* JSON, indented. Its numbers and keys stay as they were written: parsing and formatting them
   again rounds long numbers and drops duplicate keys. Throws if the text is not JSON. */
function indented(text) {
  JSON.parse(text);
  let depth = 0;
  let before = "";
  let out = "";
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    const isEnd = token === "}" || token === "]";
    const isBegun = before === "{" || before === "[";
    if (isEnd) depth -= 1;
    if (isEnd ? !isBegun : isBegun || before === ",") out += `\n${"  ".repeat(Math.min(depth, 40))}`;
    out += token === ":" ? ": " : token;
    if (token === "{" || token === "[") depth += 1;
    before = token;
  }
  return out;
}

function content(value, isJson) {
  if (value.bytes === 0) return el("p", { class: "soft" }, "empty");
  let text = value.text;
  if (text === undefined) text = value.base64;
  else if (isJson && !value.isCut) {
    try {
      text = indented(text);
    } catch {
      // Declared as JSON but invalid: shown unchanged.
    }
  }
  const kind = value.text === undefined ? "bytes, in base64" : isJson ? "JSON" : "text";
  const cut = value.isCut ? ", the beginning of it" : "";
  return [el("p", { class: "soft" }, `${kind}, ${bytes(value.bytes)}${cut}`), el("pre", { tabindex: "0" }, text)];
}

function eventRow({ event, link: pointed }, showsStream) {
  const shown = event ?? pointed;
  const at = pointed ?? event;
  const detail = el(
    "details", { class: "event" }, el("summary", {}, shown.type),
    el("p", { class: "soft" }, "id ", shown.id, ", position ", shown.position, ", ", moment(shown.createdMicros)),
    pointed && event ? el("p", {}, "A link to revision ", event.revision, " of ", streamLink(event.stream)) : null,
    event ? null : el("p", { class: "soft" }, "A link to an event that was deleted or that you may not read."),
    el("h3", {}, "Data"), content(shown.data, shown.isJson),
    el("h3", {}, "Metadata"), content(shown.metadata, true),
  );
  const row = [number(at.revision), detail, moment(shown.createdMicros)];
  return showsStream ? [number(shown.position), streamLink(shown.stream), ...row] : row;
}

const EVENT_COLUMNS = [["Revision", "number"], ["Event", ""], ["Appended", "tight optional"]];

async function stream(name, query) {
  const direction = query.get("direction") ?? "backwards";
  const from = query.get("from") ?? "";
  const found = await view("stream", { stream: name, direction, from, count: 25 });
  const base = `#/stream/${encodeURIComponent(name)}`;
  const revisions = found.events.map(({ event, link: pointed }) => Number((pointed ?? event).revision));
  const pages = [link(base, "Newest"), " · ", link(`${base}?direction=forwards&from=0`, "Oldest")];
  if (revisions.length > 0) {
    const low = Math.min(...revisions) - 1;
    const high = Math.max(...revisions) + 1;
    if (low >= 0) pages.push(" · ", link(`${base}?from=${low}`, "Older"));
    pages.push(" · ", link(`${base}?direction=forwards&from=${high}`, "Newer"));
  }
  const state = found.state?.is ?? "missing";
  const empty = { missing: "The stream does not exist.", deleted: "The stream was deleted.", tombstoned: "The stream was tombstoned." };
  show(
    name,
    el("p", {}, el("span", { class: state === "live" ? "tag good" : "tag" }, state), " ",
      name.startsWith("$$") ? streamLink(name.slice(2)) : link(`#/stream/${encodeURIComponent("$$" + name)}`, "metadata")),
    appendForm(name),
    el("p", { class: "row" }, ...pages),
    table(`Events, ${direction === "forwards" ? "oldest" : "newest"} first`, EVENT_COLUMNS,
      found.events.map((event) => eventRow(event, false)), empty[state] ?? "There are no events in this range."),
  );
}

// -- the live tail ---------------------------------------------------------------------------------

async function live() {
  const columns = [["Position", "number optional"], ["Stream", ""], ...EVENT_COLUMNS];
  const body = el("tbody", {});
  const head = el("tr", {}, columns.map(([title, kind]) => el("th", { scope: "col", class: kind }, title)));
  const count = el("p", { role: "status", "aria-live": "polite", class: "soft" }, "Waiting for events.");
  let isPaused = false;
  const pause = button("Pause", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Resume" : "Pause";
  });
  const own = el("input", { type: "checkbox", id: "system" });
  show(
    "Live", el("div", { class: "row" }, pause, el("label", { class: "inline", for: "system" }, own, "System streams too")), count,
    el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "New events" },
      el("table", {}, el("thead", {}, head), body)),
  );
  const row = (event) =>
    el("tr", {}, eventRow(event, true).map((cell, at) => el("td", { class: columns[at][1] }, cell)));
  const isShown = ({ event }) => own.checked || !event?.stream.startsWith("$");
  const newest = (await view("all", { direction: "backwards", count: 20 })).events;
  let after = newest.length > 0 ? BigInt(newest[0].event.position) : -1n;
  body.append(...newest.filter(isShown).map(row));
  let seen = 0;
  every(1000, async () => {
    if (isPaused) return;
    const { events } = await view("all", { direction: "forwards", from: String(after + 1n), count: 100 });
    if (events.length === 0) return;
    after = BigInt(events.at(-1).event.position);
    const shown = events.filter(isShown);
    seen += shown.length;
    body.prepend(...shown.map(row).reverse());
    while (body.children.length > 200) body.lastChild.remove();
    count.textContent = `${number(seen)} events since this page was opened.`;
  });
}

// -- views -----------------------------------------------------------------------------------------

async function views() {
  const [categories, types] = await Promise.all([view("views", { kind: "category" }), view("views", { kind: "type" })]);
  const rows = (found, prefix) =>
    found.views.map(({ name, events }) => [link(`#/stream/${encodeURIComponent(prefix + name)}`, name), number(events)]);
  const columns = (title) => [[title, ""], ["Events", "number"]];
  const cut = (found) => (found.isWhole ? [] : el("p", { class: "soft" }, "Only the first ones are shown."));
  show(
    "Views", el("h2", {}, "Categories"),
    table("Categories: stream names before the hyphen", columns("Category"), rows(categories, "$ce-"), "There are no categories yet."),
    cut(categories), el("h2", {}, "Types"),
    table("Event types", columns("Type"), rows(types, "$et-"), "There are no event types yet."), cut(types),
    el("p", {}, link("#/stream/%24streams", "The first event of every stream")),
  );
}

// -- groups ----------------------------------------------------------------------------------------

async function groups() {
  const draw = async () => {
    const found = await view("groups");
    const rows = found.groups.map((group) => [
      group.source === "$all" ? "all events" : streamLink(group.source),
      group.group,
      number(group.consumers.length),
      number(group.inFlight),
      number(group.waiting),
      [
        group.parked > 0 ? link(`#/stream/${encodeURIComponent(group.parkedStream)}`, number(group.parked)) : "0",
        " ",
        group.parked > 0 && server.isOperator
          ? button("Replay", () =>
              attempt("The parked events are sent again.", async () => {
                await change("replay", { source: group.source, group: group.group });
                await draw();
              }), { "aria-label": `Replay the parked events of ${group.group} on ${group.source}` })
          : null,
      ].filter((part) => part !== null),
      group.checkpoint || "–",
      group.lastKnown || "–",
    ]);
    const columns = [["Stream", ""], ["Group", ""], ["Consumers", "number"], ["In flight", "number"],
      ["Waiting", "number optional"], ["Parked", "tight"], ["Checkpoint", "tight optional"], ["Last known", "tight optional"]];
    if (!main.contains(document.activeElement) || document.activeElement === main) {
      show("Groups", el("p", { class: "soft" }, "Consumer groups share the events of a persistent subscription."),
        table("Consumer groups", columns, rows, "There are no consumer groups."));
    }
  };
  await draw();
  every(3000, draw);
}

// -- the store -------------------------------------------------------------------------------------

const SAMPLES = 60;

function plot(values) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const part = (name, attributes) => {
    const element = document.createElementNS(svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    svg.append(element);
  };
  svg.setAttribute("viewBox", `0 0 ${SAMPLES - 1} 30`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const most = Math.max(...values, 1e-9);
  const points = values.map((value, at) => `${at + SAMPLES - values.length},${29 - (value / most) * 27}`);
  if (points.length > 1) {
    part("polygon", { class: "plot-area", points: `${SAMPLES - values.length},30 ${points.join(" ")} ${SAMPLES - 1},30` });
    part("polyline", { class: "plot", points: points.join(" ") });
  }
  return svg;
}

// The latency quantile of the calls between two samples.
function quantile({ bounds }, counts, share) {
  const all = counts.reduce((sum, count) => sum + count, 0);
  let left = all * share;
  for (const [at, count] of counts.entries()) {
    left -= count;
    if (left <= 0 && all > 0) return bounds[Math.min(at, bounds.length - 1)];
  }
  return 0;
}

const figures = { last: null, events: [], calls: [], p50: [], p99: [] };

function sample(now) {
  const { last } = figures;
  figures.last = now;
  if (!last || last.instance !== now.instance) return;
  const seconds = (now.nowMicros - last.nowMicros) / 1e6;
  if (seconds <= 0) return;
  const took = now.calls.took.map((count, at) => count - last.calls.took[at]);
  const add = (name, value) => {
    figures[name].push(value);
    if (figures[name].length > SAMPLES) figures[name].shift();
  };
  add("events", (now.stats.store.position - last.stats.store.position) / seconds);
  add("calls", took.reduce((sum, count) => sum + count, 0) / seconds);
  add("p50", quantile(now.calls, took, 0.5) * 1000);
  add("p99", quantile(now.calls, took, 0.99) * 1000);
}

function card(title, value, values) {
  const text = el("b", {}, value);
  return el("div", { class: "card" }, title, text, values ? plot(values) : null);
}

async function store() {
  const cards = el("div", { class: "cards" });
  const [levels, advice] = await Promise.all([view("levels"), view("advice")]);
  const levelRows = levels.keyspaces.flatMap(({ name, levels: all }) =>
    all.map((level) => [
      name, number(level.level), number(level.tables), bytes(level.bytes), bytes(level.filterBytesInMemory),
      number(level.asked), number(level.saved), number(level.inVain), percent(level.measuredRate),
    ]),
  );
  const levelColumns = [["Keyspace", ""], ["Level", "number"], ["Tables", "number"], ["Bytes", "number"],
    ["Filters in memory", "number"], ["Probes", "number optional"], ["Lookups saved", "number"],
    ["False positives", "number optional"], ["False-positive rate", "number optional"]];
  const reasons = advice.keyspaces.map((one) =>
    el("section", {}, el("h3", {}, one.keyspace),
      el("p", {}, `${bytes(one.keptBytes)} of filters are in memory; ${one.bloomBits} bits per key everywhere would take ${bytes(one.plainBytes)}. `,
        one.gets < 1
          ? "There were no recent reads."
          : `Of the last ${number(Math.round(one.gets))} reads, ${percent(one.absentShare)} were misses. ` +
            `A thousand reads have ${(one.falseReads * 1000).toFixed(2)} false positives, ${(one.plainFalseReads * 1000).toFixed(2)} ` +
            `with plain filters, ${(one.best.half * 1000).toFixed(2)} with the best ones and half the memory, ` +
            `${(one.best.twice * 1000).toFixed(2)} with twice as much.`),
      el("ul", {}, one.levels.map((level) => el("li", {}, `Level ${level.level}: ${level.kept}. ${level.why}`)))),
  );
  show(
    "Store", cards, el("h2", {}, "Levels and filters"),
    table("Table lookups saved by each level's filters since the start", levelColumns, levelRows, "No table was written yet."),
    el("h2", {}, "Filters chosen by the advisor, and why"), reasons,
  );
  const draw = async () => {
    const now = await view("overview");
    sample(now);
    const { store: log, existenceFilter: filter, index } = now.stats;
    const rate = (name) => (figures[name].length > 0 ? figures[name].at(-1) : 0);
    cards.replaceChildren(
      card("Bytes appended per second", bytes(Math.round(rate("events"))), figures.events),
      card("Calls per second", number(Math.round(rate("calls"))), figures.calls),
      card("Latency p50", `${rate("p50").toFixed(1)} ms`, figures.p50),
      card("Latency p99", `${rate("p99").toFixed(1)} ms`, figures.p99),
      card("Event log", bytes(log.logBytes)),
      card("Clock", clockState(log)),
      card("Streams in the existence filter", number(filter.items)),
      card("Lookups of absent streams saved", number(filter.denied)),
      card("Index in memory", bytes(index.memoryBytes)),
      card("Connections", number(now.connections)),
      card("Read for clients, not yet received", bytes(now.unreadBytes)),
    );
  };
  await draw();
  every(2000, draw);
}

// Whether the store believes the clock, with the number of its clock epoch.
function clockState(log) {
  const hours = (seconds) => `${number(Math.ceil(seconds / 3600))} h`;
  const state = log.clockRejectedSeconds > 0 ? `${hours(log.clockRejectedSeconds)} ahead, not believed`
    : log.clockBehindSeconds > 0 ? `${hours(log.clockBehindSeconds)} behind the last event`
    : "believed";
  return log.clockEpoch > 1 ? `${state}, epoch ${log.clockEpoch}` : state;
}

// -- work ------------------------------------------------------------------------------------------

// What still has data after a removal.
function remainingData({ filesKept, filesWithOtherNames }) {
  const file = (text) => (name) => el("li", {}, `${name}: ${text}`);
  return el("ul", {},
    filesKept.map(file("a reader in another process keeps this replaced file. End the reader; the server then removes the file.")),
    filesWithOtherNames.map(file("a copy made of hard links still has this replaced file. Remove the copy.")),
    el("li", {}, "Backups, checkpoints and other copies made earlier still have the removed data. Back up again into the same directory, and remove other copies."));
}

function removalResult(scavenge) {
  const left = scavenge.hiddenEventsLeft;
  const isClean = left === 0 && scavenge.filesKept.length === 0;
  const text = left === null ? "The scavenge ended early: start it again."
    : left > 0 ? `${number(left)} hidden events still have data, because they became hidden meanwhile: start it again.`
    : isClean ? "No file of the store has data of hidden events."
    : "Replaced files still have removed data.";
  return el("div", {}, el("p", { class: isClean ? "" : "bad" }, text), remainingData(scavenge));
}

function redactForm() {
  const events = el("textarea", { id: "r-events", required: true, spellcheck: "false", placeholder: "cart-42@7" });
  const reason = el("input", { type: "text", id: "r-reason" });
  const result = el("div", { role: "status" });
  const submit = async (event) => {
    event.preventDefault();
    await attempt(null, async () => {
      // A line's end is not part of a name.
      const places = events.value.split("\n").filter(Boolean);
      const done = await change("redact", { events: places, reason: reason.value });
      result.replaceChildren(
        el("p", {}, `${number(done.eventsRedacted)} events lost data and metadata, ${number(done.eventsWithoutData)} had none.`),
        remainingData(done));
      say("Redacted.");
    });
  };
  return el(
    "details", { class: "form" }, el("summary", {}, "Redact events"),
    el("p", { class: "soft" }, "Removes data and metadata of single events for good; ids, types and revisions stay. The stream $redactions gets audit events."),
    el(
      "form", { onsubmit: submit },
      el("label", { for: "r-events" }, "Events: STREAM@REVISION, one on each line"), events,
      el("label", { for: "r-reason" }, "Reason (optional)"), reason,
      el("div", { class: "row" }, el("button", { class: "main" }, "Redact")),
    ),
    result,
  );
}

async function work() {
  const scavenging = el("div", {});
  const saving = el("div", {});
  show("Work", el("h2", {}, "Scavenge"),
    el("p", { class: "soft" }, "Frees the space of events that their streams no longer show. “Remove all now” also removes the newest ones, and reads the log again."),
    scavenging, server.isOperator ? redactForm() : [],
    el("h2", {}, "Backup"), el("p", { class: "soft" }, "Copies all events appended so far; reads and appends continue."), saving);
  const start = (text, removeAll) =>
    button(text, () => attempt(null, async () => {
      const { started } = await change("scavenge", { removeAll });
      say(started ? "Started." : "Another scavenge is running.");
      await draw();
    }), { disabled: !server.isOperator });
  const draw = async () => {
    const { scavenge, backup } = await view("overview");
    const isRunning = scavenge && !scavenge.isDone;
    scavenging.replaceChildren(
      scavenge
        ? el("div", {}, el("p", { role: "status" },
            `${isRunning ? "Running" : "Done"}: ${number(scavenge.chunksExamined)} of ${number(scavenge.chunks)} files, ` +
            `${number(scavenge.eventsRemoved)} events removed, ${bytes(scavenge.bytesGivenBack)} freed.`),
          el("progress", { max: Math.max(scavenge.chunks, 1), value: scavenge.chunksExamined, "aria-label": "Scavenge" }))
        : el("p", {}, "No scavenge since the server started."),
      scavenge?.removesAll && !isRunning ? removalResult(scavenge) : "",
      isRunning
        ? button("Stop", () => attempt("Stopped.", () => change("stop-scavenge", { id: scavenge.id }).then(draw)), { disabled: !server.isOperator })
        : el("div", { class: "row" }, start("Start a scavenge", false), start("Remove all now", true)),
    );
    saving.replaceChildren(
      el("p", {}, backup.folder ? `Backup directory on the server: ${backup.folder}` : "No backup directory is configured: start the server with --backup-dir."),
      backup.isRunning || backup.through || backup.error
        ? el("p", { role: "status", class: backup.error ? "bad" : "" },
            backup.error ?? (backup.isRunning ? `Running: ${bytes(backup.bytes)} of ${bytes(backup.totalBytes)}.` : `Done, through position ${number(backup.through)}.`))
        : null,
      backup.isRunning ? el("progress", { max: Math.max(backup.totalBytes, 1), value: backup.bytes, "aria-label": "Backup" }) : null,
      button("Back up now", () => attempt("Started.", () => change("backup", {}).then(draw)),
        { disabled: !server.isOperator || !backup.folder || backup.isRunning }),
    );
  };
  await draw();
  every(1000, async () => {
    if (!scavenging.contains(document.activeElement) && !saving.contains(document.activeElement)) await draw();
  });
}

// -- users -----------------------------------------------------------------------------------------

async function users(_, query) {
  const found = await view("users", { after: query.get("after") ?? "" });
  const act = (text, what, login) =>
    button(text, () => attempt("Done.", () => change("user", { do: what, login }).then(route)), { "aria-label": `${text} ${login}` });
  const rows = found.users.map((user) => [
    user.login, user.fullName, user.groups.join(", "),
    el("span", { class: user.isDisabled ? "tag" : "tag good" }, user.isDisabled ? "disabled" : "enabled"),
    [user.isDisabled ? act("Enable", "enable", user.login) : act("Disable", "disable", user.login), " ", act("Delete", "delete", user.login)],
  ]);
  const inputs = {
    login: el("input", { type: "text", id: "u-login", required: true, autocomplete: "off" }),
    fullName: el("input", { type: "text", id: "u-name" }),
    password: el("input", { type: "password", id: "u-password", required: true, autocomplete: "new-password" }),
    groups: el("input", { type: "text", id: "u-groups", placeholder: "$ops, readers" }),
  };
  const field = (id, text, input) => [el("label", { for: id }, text), input];
  const form = el("details", { class: "form" }, el("summary", {}, "Add a user"),
    el("form", {
      onsubmit: (event) => {
        event.preventDefault();
        const groups = inputs.groups.value.split(",").map((group) => group.trim()).filter(Boolean);
        const fields = { do: "create", login: inputs.login.value, fullName: inputs.fullName.value, password: inputs.password.value, groups };
        attempt("Added.", () => change("user", fields).then(route));
      },
    },
    field("u-login", "Login name", inputs.login), field("u-name", "Full name", inputs.fullName),
    field("u-password", "Password", inputs.password), field("u-groups", "Groups", inputs.groups),
    el("div", { class: "row" }, el("button", { class: "main" }, "Add"))));
  show("Users",
    server.hasUsers ? [] : el("p", {}, "This server does not authenticate clients (--insecure): users take effect once it runs without that option."),
    form,
    table("Users of the server", [["Name", ""], ["Full name", "optional"], ["Groups", ""], ["", "tight"], ["", "tight"]], rows, "There are no users."),
    found.next ? el("p", {}, link(`#/users?after=${encodeURIComponent(found.next)}`, "More")) : []);
}

// -- navigation -------------------------------------------------------------------------------------

const PAGES = { streams, stream, live, views, groups, store, work, users };

async function route() {
  for (const timer of timers) clearInterval(timer);
  timers = [];
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  // Names such as __proto__ are inherited and no pages.
  const page = Object.hasOwn(PAGES, name) ? PAGES[name] : streams;
  for (const anchor of document.querySelectorAll("nav a")) {
    const isHere = anchor.getAttribute("href") === `#/${name === "stream" ? "streams" : name || "streams"}`;
    if (isHere) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  main.setAttribute("aria-busy", "true");
  try {
    await page(decodeURIComponent(rest.join("/")), new URLSearchParams(search));
  } catch (error) {
    show("Page not loaded", el("p", { class: "bad" }, error.message), button("Try again", route));
  }
}

function theme(chosen) {
  const isDark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  if (chosen) document.documentElement.dataset.theme = chosen;
  const switched = document.querySelector("#theme");
  switched.setAttribute("aria-pressed", String(isDark));
  switched.textContent = isDark ? "Light" : "Dark";
}

document.querySelector("#theme").addEventListener("click", (event) => {
  const chosen = event.target.getAttribute("aria-pressed") === "true" ? "light" : "dark";
  localStorage.setItem("umbel-theme", chosen);
  theme(chosen);
});
theme(localStorage.getItem("umbel-theme"));
addEventListener("hashchange", () => {
  route();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});

try {
  const overview = await view("overview");
  Object.assign(server, overview);
  document.querySelector("#who").textContent = overview.user ?? (overview.hasUsers ? "" : "insecure");
  document.querySelector("#users-link").hidden = !overview.isAdmin;
  sample(overview);
} catch (error) {
  say(error.message);
}
await route();
