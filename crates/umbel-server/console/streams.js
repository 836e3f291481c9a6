// The list of streams, the events of one stream, and the form that appends an event.

import { eventRow } from "./event.js";
import { address, attempt, button, change, el, field, link, number, reload, say, show, streamLink, table, view } from "./page.js";

export async function streams(_, query) {
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
      if (location.hash === target) reload();
      else location.hash = target;
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
  const direction = query.get("direction") ?? "backwards";
  const from = query.get("from") ?? "";
  const found = await view("stream", { stream: name, direction, from, count: 25 });
  const base = `#/stream/${encodeURIComponent(name)}`;
  const revisions = found.events.map(({ event, link: pointed }) => BigInt((pointed ?? event).revision));
  const pages = [link(base, "Newest"), " · ", link(`${base}?direction=forwards&from=0`, "Oldest")];
  if (revisions.length > 0) {
    const sorted = revisions.sort((a, b) => (a < b ? -1 : 1));
    const low = sorted[0] - 1n;
    const high = sorted.at(-1) + 1n;
    if (low >= 0n) pages.push(" · ", link(`${base}?from=${low}`, "Older"));
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
