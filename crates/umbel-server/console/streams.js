// The list of streams, the events of one stream, and the form that appends an event.

import { eventRow } from "./event.js";
import {
  address, attempt, button, change, el, field, link, number, reload, say, show, streamLink, table, valueOf, view,
  visible,
} from "./page.js";

// Requests of one search for a part of a name. Each examines 10,000 names.
const REQUESTS_MAX = 20;

// A page of names. The server leaves out names of system streams unless the searched text begins with "$".
async function names({ prefix, contains, after }) {
  const hidesSystem = !prefix.startsWith("$") && !contains.startsWith("$");
  const streams = [];
  let found;
  let next = after;
  for (let request = 0; request < REQUESTS_MAX; request += 1) {
    found = await view("streams", { prefix, contains, after: next, system: hidesSystem ? "no" : "yes" });
    streams.push(...found.streams);
    next = found.lastExamined;
    if (found.isWhole || next === null || streams.length >= 100) break;
    if (!contains && !(hidesSystem && next.startsWith("$"))) break;
  }
  return { streams, isWhole: found.isWhole, next };
}

function searchForm({ prefix, contains, category }) {
  const searched = prefix || contains || category;
  const text = el("input", {
    type: "search", id: "search", value: visible(searched), placeholder: "cart", autocomplete: "off", spellcheck: "false",
  });
  const kinds = { contains: "name contains", prefix: "name begins with", category: "category is" };
  const chosen = prefix ? "prefix" : category ? "category" : "contains";
  const kind = el("select", { id: "search-kind", "aria-label": "Kind of search" },
    Object.entries(kinds).map(([value, label]) => el("option", { value, selected: value === chosen }, label)));
  return el(
    "form",
    {
      class: "row", role: "search",
      onsubmit: (event) => {
        event.preventDefault();
        location.hash = text.value ? `#/streams?${kind.value}=${encodeURIComponent(valueOf(text, searched))}` : "#/streams";
      },
    },
    el("label", { class: "inline", for: "search" }, "Streams whose"), kind, text,
    el("button", { class: "main" }, "Search"),
    button("Open by name", () => {
      if (text.value) location.hash = address("stream", valueOf(text, searched));
    }),
  );
}

export async function streams(_, query) {
  const get = (name) => query.get(name) ?? "";
  const [category, contains, after] = [get("category"), get("contains"), get("after")];
  const prefix = category ? `${category}-` : get("prefix");
  const found = await names({ prefix, contains, after });
  const rows = found.streams.map(({ name, state, last }) => [
    streamLink(name),
    el("span", { class: state === "live" ? "tag good" : "tag" }, state),
    last === null ? "" : number(last),
  ]);
  const isSearch = prefix || contains;
  const search = new URLSearchParams(query);
  if (found.next) search.set("after", found.next);
  const hasMore = !found.isWhole && found.next;
  show(
    "Streams", searchForm({ prefix: get("prefix"), contains, category }), appendForm(""),
    category ? el("p", {}, link(address("stream", `$ce-${category}`), `All events of the category ${category}`)) : null,
    table("Streams by name", [["Name", ""], ["State", "tight"], ["Last revision", "number"]], rows,
      hasMore ? "None of the examined names matches." : isSearch ? "No stream matches." : "There are no streams yet: append an event."),
    hasMore ? el("p", {}, link(`#/streams?${search}`, `Continue after ${found.next}`)) : null,
    found.isWhole || found.next ? null
      : el("p", { class: "soft" }, "There are more streams, which you may not read: search by a longer prefix."),
  );
}

function appendForm(stream) {
  const name = el("input", { type: "text", id: "a-stream", required: true, value: visible(stream), spellcheck: "false" });
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
      const target = valueOf(name, stream);
      const done = await change("append", {
        stream: target, type: kind.value, data: data.value, metadata: metadata.value,
        expected: expected.value, isJson: json.checked,
      });
      say(`Appended as revision ${number(done.revision)}.`);
      const page = address("stream", target);
      if (location.hash === page) reload();
      else location.hash = page;
    });
  };
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

const EVENT_COLUMNS = [["Revision", "number"], ["Event", ""], ["Appended", "tight optional"]];

export async function stream([name = ""], query) {
  // All events have positions instead of revisions.
  if (name === "$all") return location.replace("#/live?system=yes");
  const direction = query.get("direction") ?? "backwards";
  const from = query.get("from") ?? "";
  const found = await view("stream", { stream: name, direction, from, count: 25 });
  const base = address("stream", name);
  const revisions = found.events.map(({ event, link: pointed }) => BigInt((pointed ?? event).revision));
  const pages = [link(base, "Newest"), link(`${base}?direction=forwards&from=0`, "Oldest")];
  if (revisions.length > 0) {
    const sorted = revisions.sort((a, b) => (a < b ? -1 : 1));
    const low = sorted[0] - 1n;
    const high = sorted.at(-1) + 1n;
    const { first = "0", last } = found.state ?? {};
    if (low >= BigInt(first)) pages.push(link(`${base}?from=${low}`, "Older"));
    if (last === undefined || high <= BigInt(last)) pages.push(link(`${base}?direction=forwards&from=${high}`, "Newer"));
  }
  const state = found.state?.is ?? "missing";
  const empty = { missing: "The stream does not exist.", deleted: "The stream was deleted.", tombstoned: "The stream was tombstoned." };
  const revision = el("input", { type: "text", inputmode: "numeric", pattern: "[0-9]+", id: "revision", required: true, size: "10" });
  const go = el("form", {
    class: "row go",
    onsubmit: (event) => {
      event.preventDefault();
      location.hash = address("event", name, revision.value);
    },
  }, el("label", { class: "inline", for: "revision" }, "Revision"), revision, el("button", {}, "Go"));
  const category = name.startsWith("$") || !name.includes("-") ? null : name.slice(0, name.indexOf("-"));
  show(
    name,
    el("p", { class: "row" }, el("span", { class: state === "live" ? "tag good" : "tag" }, state),
      name.startsWith("$$") ? streamLink(name.slice(2)) : link(address("stream", `$$${name}`), "Metadata"),
      category ? link(`#/streams?category=${encodeURIComponent(category)}`, `Category ${category}`) : null,
      link(`#/live?stream=${encodeURIComponent(name)}`, "Live")),
    // No name of a view and of a tombstoned stream accepts appends.
    found.isView || state === "tombstoned" ? null : appendForm(name),
    el("nav", { class: "row", "aria-label": "Pages of the stream" }, ...pages, go),
    table(`Events, ${direction === "forwards" ? "oldest" : "newest"} first`, EVENT_COLUMNS,
      found.events.map(eventRow), empty[state] ?? "There are no events in this range."),
  );
}
