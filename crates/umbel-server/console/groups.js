// Consumer groups: the list, one group with its parked events, and the form of its settings.

import { eventRow } from "./event.js";
import {
  address, attempt, button, bytes, change, counted, el, every, field, link, moment, number, put, refresh, reload,
  server, show, streamLink, table, valueOf, view, visible,
} from "./page.js";

const sourceLink = (source) => (source === "$all" ? "all events" : streamLink(source));
const groupLink = ({ source, group }) => link(address("group", source, group), group);

function lagText({ lagEvents, lagBytes }) {
  if (lagEvents !== null) return number(lagEvents);
  return lagBytes === 0 ? "0" : bytes(lagBytes);
}

export async function groups(_, query) {
  const search = query.get("search") ?? "";
  const skip = Number(query.get("skip") ?? 0) || 0;
  const text = el("input", { type: "search", id: "search", value: visible(search), placeholder: "cart", "aria-label": "Stream or name contains", autocomplete: "off" });
  const form = el("form", {
    class: "row", role: "search",
    onsubmit: (event) => {
      event.preventDefault();
      location.hash = text.value ? `#/groups?search=${encodeURIComponent(valueOf(text, search))}` : "#/groups";
    },
  }, el("label", { class: "inline", for: "search" }, "Stream or name contains"), text, el("button", { class: "main" }, "Search"));
  const list = el("div", {});
  show("Groups", el("p", { class: "soft" }, "The consumers of a group share the events of its persistent subscription."),
    form, server.isOperator ? groupForm(null) : null, list);
  const columns = [["Stream", ""], ["Group", ""], ["Consumers", "number optional"], ["Lag", "number"],
    ["In flight", "number optional"], ["Parked", "number"], ["Events/s", "number optional"], ["Checkpoint", "tight optional"]];
  const draw = async () => {
    const found = await view("groups", { search, skip });
    const rows = found.groups.map((group) => [
      sourceLink(group.source), groupLink(group), number(group.consumers.length), lagText(group), number(group.inFlight),
      group.parked === "0" ? "0" : link(`${address("group", group.source, group.group)}`, number(group.parked)),
      number(group.perSecond), group.checkpoint || "–",
    ]);
    const page = (text, from) => link(`#/groups?${new URLSearchParams({ search, skip: from })}`, text);
    refresh(list,
      table(counted(found.found, "consumer group"), columns, rows,
        search ? "No group matches." : "There are no consumer groups."),
      el("nav", { class: "row", "aria-label": "Pages of groups" },
        skip > 0 ? page("Previous", Math.max(0, skip - found.pageSize)) : null,
        found.isWhole ? null : page("Next", skip + found.pageSize)));
  };
  await draw();
  every(3000, draw);
}

// -- one group -------------------------------------------------------------------------------------

const SETTINGS = [
  ["messageTimeoutMs", "Retry after (ms)", 30000], ["maxRetryCount", "Retries before an event is parked", 10],
  ["checkpointAfterMs", "Checkpoint at least every (ms)", 2000], ["minCheckpointCount", "Events for a checkpoint, at least", 10],
  ["maxCheckpointCount", "Events that force a checkpoint", 1000], ["maxSubscriberCount", "Consumers at most (0: no limit)", 0],
  ["liveBufferSize", "Live buffer (events)", 500], ["readBatchSize", "Read batch (events)", 20],
  ["historyBufferSize", "History buffer (events)", 500],
];
const STRATEGIES = ["RoundRobin", "DispatchToSingle", "Pinned", "PinnedByCorrelation"];

function startText(text) {
  if (text === "-1" || text === "C:-1/P:-1") return "end";
  const [position] = text.replace("C:", "").split("/");
  return position === "0" ? "start" : position;
}

// Fails if another operator changed the settings after this page was loaded: the form has them all.
async function checkUnchanged({ source, group, settings }) {
  const now = (await view("group", { source, group })).settings;
  const differs = (key) => JSON.stringify(now[key]) !== JSON.stringify(settings[key]);
  const changed = Object.keys(now).filter(differs);
  if (changed.length === 0) return;
  const what = changed.map((key) => `${key} is ${now[key]} now, and was ${settings[key]}`).join("; ");
  throw new Error(`the settings were changed meanwhile: ${what}. Load the page again.`);
}

// A form that creates a group, or changes this one.
function groupForm(group) {
  const known = group?.settings ?? {};
  const source = el("input", { type: "text", id: "g-source", required: true, value: visible(group?.source ?? ""), readonly: !!group, placeholder: "cart-42 or $all", spellcheck: "false" });
  const name = el("input", { type: "text", id: "g-group", required: true, value: visible(group?.group ?? ""), readonly: !!group, spellcheck: "false" });
  const start = el("input", { type: "text", id: "g-start", required: true, value: startText(known.startFrom ?? "-1"), pattern: "start|end|[0-9]+" });
  const strategy = el("select", { id: "g-strategy" },
    STRATEGIES.map((value) => el("option", { value, selected: value === known.consumerStrategy }, value)));
  const links = el("input", { type: "checkbox", id: "g-links", checked: known.resolveLinks === true });
  const filterBy = el("select", { id: "g-filter-by" },
    [["", "no filter"], ["stream", "stream names"], ["type", "event types"]].map(([value, text]) => el("option", { value }, text)));
  const regex = el("input", { type: "text", id: "g-regex", spellcheck: "false", placeholder: "^cart-" });
  const numbers = SETTINGS.map(([key, text, plain]) =>
    [key, text, el("input", { type: "number", id: `g-${key}`, min: "0", step: "1", required: true, value: String(known[key] ?? plain) })]);
  const submit = async (event) => {
    event.preventDefault();
    const settings = {
      startFrom: start.value, consumerStrategy: strategy.value, resolveLinks: links.checked,
      filterBy: filterBy.value, filterRegex: regex.value,
      ...Object.fromEntries(numbers.map(([key, , input]) => [key, Number(input.value)])),
    };
    if (group) settings.extraStatistics = known.extraStatistics;
    const of = { source: group?.source ?? source.value, group: group?.group ?? name.value };
    const fields = { do: group ? "update" : "create", ...of, settings };
    const done = await attempt(group ? "Changed. The consumers connect again." : "Created.", async () => {
      if (group) await checkUnchanged(group);
      await change("change-group", fields);
    });
    if (!done) return;
    const target = address("group", of.source, of.group);
    if (location.hash === target) reload();
    else location.hash = target;
  };
  return el("details", { class: "form" }, el("summary", {}, group ? "Change the settings" : "Create a group"),
    el("form", { onsubmit: submit },
      el("div", { class: "grid" },
        el("div", {}, field("g-source", "Stream, or $all for all events", source)),
        el("div", {}, field("g-group", "Group", name)),
        el("div", {}, field("g-start", "Start from: start, end, or a number", start)),
        el("div", {}, field("g-strategy", "Consumer strategy", strategy)),
        group ? null : el("div", {}, field("g-filter-by", "Filter of a group of all events", filterBy)),
        group ? null : el("div", {}, field("g-regex", "Regular expression of the filter", regex)),
        numbers.map(([key, text, input]) => el("div", {}, field(`g-${key}`, text, input)))),
      el("div", { class: "row" },
        el("label", { class: "inline", for: "g-links" }, links, "Resolve links"),
        el("button", { class: "main" }, group ? "Change" : "Create"))));
}

// The filter of a group of all events. A change of the settings keeps it.
function filterText({ by, regex, prefixes }) {
  const names = by === "type" ? "event types" : "stream names";
  const texts = (regex ? [regex] : prefixes).map((text, at) => [at > 0 ? " or " : "", el("code", {}, text)]);
  return [`${names} that ${regex ? "match" : "begin with"} `, texts];
}

function facts(group) {
  const pair = (name, ...value) => [el("dt", {}, name), el("dd", {}, ...value)];
  return el("dl", { class: "facts" },
    pair("Stream", sourceLink(group.source)), group.filter ? pair("Filter", filterText(group.filter)) : null,
    pair("Lag", group.lagEvents === null ? `${lagText(group)} of the log` : counted(group.lagEvents, "event")),
    pair("In flight", number(group.inFlight)), pair("Waiting", number(group.waiting)), pair("To retry", number(group.retrying)),
    pair("Sent since the group started", number(group.total)), pair("Events/s", number(group.perSecond)),
    pair("Checkpoint", group.checkpoint || "–"), pair("Last event read", group.lastRead || "–"), pair("Last event of the source", group.lastKnown || "–"));
}

// Time and reason of a parking, from the metadata of the link. A link without a time was parked when it was appended.
function parking(place) {
  let noted;
  try {
    noted = JSON.parse(place.metadata.text) ?? {};
  } catch {
    noted = {};
  }
  const written = typeof noted.added === "string" ? Date.parse(noted.added) * 1000 : noted.added;
  const added = Number.isFinite(written) ? written : place.createdMicros;
  return [moment(added), typeof noted.reason === "string" ? noted.reason : ""];
}

// The parked events, from the parked stream. Its events are links to the events of the source.
async function parkedEvents(group) {
  let found;
  try {
    found = await view("stream", { stream: group.parkedStream, direction: "forwards", from: "0", count: 50 });
  } catch (error) {
    if (error.status !== 403) throw error;
    return el("p", { class: "soft" }, `You may not read the parked events. ${error.message}`);
  }
  const shown = found.events.map((entry) => {
    const place = entry.link ?? entry.event;
    const upTo = BigInt(place.revision);
    const [revision, detail] = eventRow(entry);
    return [revision, detail, ...parking(place),
      server.isOperator
        ? button("Replay to here", () =>
            attempt("The parked events up to this one are sent again.", () =>
              change("replay", { source: group.source, group: group.group, before: String(upTo + 1n) }).then(reload)),
            { "aria-label": `Replay the parked events up to revision ${upTo}` })
        : null];
  });
  return [table("Parked events, oldest first", [["Number", "number"], ["Event", ""], ["Parked", "tight optional"],
    ["Reason", "optional"], ["", "tight"]], shown, "No event is parked."),
    found.isWhole ? null : el("p", {}, link(`${address("stream", group.parkedStream)}?direction=forwards&from=0`, "All parked events"))];
}

export async function group([source = "", name = ""]) {
  const fetched = () => view("group", { source, group: name });
  const first = await fetched();
  const state = el("div", {});
  const consumers = el("div", {});
  const draw = (info) => {
    put(state, facts(info));
    put(consumers, table("Consumers", [["Name", ""], ["User", ""], ["Events sent", "number"], ["Events/s", "number"],
      ["In flight", "number"], ["Free", "number optional"]],
      info.consumers.map((one) => [one.name || "–", one.user || "–", number(one.total), number(one.perSecond), number(one.inFlight), number(one.free)]),
      "No consumer is connected."));
  };
  draw(first);
  const label = `${name} on ${source === "$all" ? "all events" : source}`;
  const actions = server.isOperator ? el("div", { class: "row" },
    button("Replay the parked events", () => attempt("The parked events are sent again.", () => change("replay", { source, group: name }).then(reload)),
      { disabled: first.parked === "0" }),
    confirmed("Delete the group", `Delete ${label} with its checkpoint and its parked events`, () =>
      attempt("Deleted.", async () => {
        await change("change-group", { do: "delete", source, group: name });
        location.hash = "#/groups";
      }))) : null;
  show(label, state, actions, server.isOperator ? groupForm(first) : null, el("h2", {}, "Consumers"), consumers,
    el("h2", {}, `Parked events (${number(first.parked)})`), await parkedEvents(first));
  every(2000, async () => draw(await fetched()));
}

// A button whose action needs a second click.
export function confirmed(text, question, action) {
  const first = button(text, () => {
    put(box, el("span", {}, `${question}?`), yes, no);
    no.focus();
  });
  const yes = button("Yes", async () => {
    put(box, first);
    await action();
  }, { class: "danger", "aria-label": question });
  const no = button("No", () => {
    put(box, first);
    first.focus();
  });
  const box = el("span", { class: "row confirm" }, first);
  return box;
}
