// One event: its place, data and metadata.

import {
  address, attempt, bytes, button, el, link, localTime, moment, number, put, queryText, show, streamLink, utcTime, view,
  visibleJson, WrongAddress,
} from "./page.js";

// Tokens of JSON that are coloured. The rest of a longer text has no colours, so that the page stays fast.
const COLOURED_MAX = 20_000;
// Most bytes that the page loads as a whole; more can be downloaded.
const WHOLE_BYTES_MAX = 2 << 20;
const HEX_BYTES_MAX = 64 << 10;

const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/* The tokens of JSON with the space before each, indented. Numbers and keys stay as they were written:
   parsing and formatting them again rounds long numbers and drops duplicate keys. Throws if the text is
   not JSON. */
function* indented(text) {
  JSON.parse(text);
  let depth = 0;
  let before = "";
  let pending = null;
  for (const [token] of text.matchAll(TOKENS)) {
    const isEnd = token === "}" || token === "]";
    const isBegun = before === "{" || before === "[";
    let space = before === ":" ? " " : "";
    if (isEnd) depth -= 1;
    if (isEnd ? !isBegun : isBegun || before === ",") space = `\n${"  ".repeat(Math.min(depth, 40))}`;
    if (token === "{" || token === "[") depth += 1;
    before = token;
    // A string before a colon is a key.
    if (pending) yield [...pending, token === ":" && pending[1].startsWith('"') ? "key" : kindOf(pending[1])];
    pending = [space, visibleJson(token)];
  }
  if (pending) yield [...pending, kindOf(pending[1])];
}

function kindOf(token) {
  if (token.startsWith('"')) return "string";
  if ("{}[],:".includes(token)) return null;
  return /^[-\d]/.test(token) ? "number" : "word";
}

function coloured(text) {
  const parts = [];
  let plain = "";
  let count = 0;
  for (const [space, token, kind] of indented(text)) {
    plain += space;
    if (kind && (count += 1) <= COLOURED_MAX) {
      parts.push(plain, el("span", { class: `json-${kind}` }, token));
      plain = "";
    } else plain += token;
  }
  return [...parts, plain];
}

function indentedText(text) {
  let out = "";
  for (const [space, token] of indented(text)) out += space + token;
  return out;
}

function hexLines(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, HEX_BYTES_MAX); at += 16) {
    const part = [...data.subarray(at, at + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const shown = part.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${shown}`);
  }
  return lines.join("\n");
}

const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

/* Data or metadata of an event, as indented JSON, as raw text or in hexadecimal, with a button that
   copies it and a link that downloads all of it. */
function contentViewer(title, { value, isJson, place, part }) {
  const id = `content-${part}`;
  const heading = el("h2", { id }, title);
  if (value.bytes === 0) return [heading, el("p", { class: "soft" }, "Empty.")];
  let text = value.text;
  let data = text === undefined ? fromBase64(value.base64) : null;
  let isCut = value.isCut === true;
  const shown = el("pre", { tabindex: "0", "aria-labelledby": id });
  const note = el("p", { class: "soft" });
  const tabs = el("div", { class: "row tabs", role: "group", "aria-label": `Form of ${title.toLowerCase()}` });
  const href = `/console/api/download?${queryText({ ...place, part })}`;
  const raw = () => data ?? new TextEncoder().encode(text);

  const forms = {
    Pretty: () => (isCut ? "" : coloured(text)),
    Raw: () => text ?? new TextDecoder().decode(data),
    Hex: () => hexLines(raw()),
  };
  let form = "Pretty";
  let broken = null;
  // Text to copy where the page shows it with escapes.
  let copied = null;
  const draw = () => {
    broken = null;
    if (form === "Pretty") {
      if (text === undefined) form = "Hex";
      else if (!isJson || isCut) form = "Raw";
    }
    let body;
    try {
      body = forms[form]();
    } catch (error) {
      // Declared as JSON but invalid.
      [broken, form] = [error.message, "Raw"];
      body = forms.Raw();
    }
    put(shown, body);
    copied = form === "Raw" ? body : null;
    const kind = isJson ? (broken ? `Declared as JSON, but invalid: ${broken}` : "JSON") : text === undefined ? "Binary" : "Text";
    const limit = form === "Hex" && value.bytes > HEX_BYTES_MAX;
    const cut = isCut || limit ? `; only the first ${bytes(Math.min(HEX_BYTES_MAX, value.bytes))} are shown` : "";
    put(note, `${bytes(value.bytes)}. ${kind}${cut}.`);
    note.className = broken ? "bad" : "soft";
    for (const tab of tabs.querySelectorAll("[data-form]")) tab.setAttribute("aria-pressed", String(tab.dataset.form === form));
  };
  const tab = (name, isPossible) =>
    button(name, () => {
      form = name;
      draw();
    }, { "data-form": name, disabled: !isPossible });
  const copy = button("Copy", () => attempt("Copied.", () => navigator.clipboard.writeText(copied ?? shown.textContent)));
  const whole = isCut && value.bytes <= WHOLE_BYTES_MAX
    ? button("Show all", () => attempt(null, async () => {
        const answer = await fetch(href);
        if (!answer.ok) throw new Error(`the server responded with status ${answer.status}`);
        const all = new Uint8Array(await answer.arrayBuffer());
        if (text === undefined) data = all;
        else text = new TextDecoder().decode(all);
        [isCut, form] = [false, "Pretty"];
        pretty.disabled = !isJson || text === undefined;
        whole.remove();
        draw();
      }))
    : null;
  const pretty = tab("Pretty", isJson && text !== undefined && !isCut);
  put(tabs, pretty, tab("Raw", true), tab("Hex", true), copy, whole, el("a", { href, download: "" }, "Download"));
  draw();
  return [heading, note, tabs, shown];
}

const clipped = (value) => (value.isCut ? "\n…" : "");

// Data in a list of events.
function content(value, isJson) {
  if (value.bytes === 0) return el("p", { class: "soft" }, "empty");
  let text = value.text;
  if (text === undefined) text = hexLines(fromBase64(value.base64).subarray(0, 1024));
  else if (isJson && !value.isCut) {
    try {
      text = indentedText(text);
    } catch {
      // Declared as JSON but invalid: shown unchanged.
    }
  }
  const kind = value.text === undefined ? "binary" : isJson ? "JSON" : "text";
  const cut = value.isCut ? ", the beginning of it" : "";
  return [el("p", { class: "soft" }, `${kind}, ${bytes(value.bytes)}${cut}`), el("pre", { tabindex: "0" }, text, clipped(value))];
}

export function eventRow({ event, link: pointed }) {
  const shown = event ?? pointed;
  const at = pointed ?? event;
  const detail = el(
    "details", { class: "event" }, el("summary", {}, shown.type),
    el("p", {}, link(address("event", at.stream, at.revision), "Open the event")),
    pointed && event ? el("p", {}, "A link to revision ", number(event.revision), " of ", streamLink(event.stream)) : null,
    event ? null : el("p", { class: "soft" }, "A link to an event that was deleted or that you may not read."),
    el("h2", { class: "small" }, "Data"), content(shown.data, shown.isJson),
    el("h2", { class: "small" }, "Metadata"), content(shown.metadata, true),
  );
  return [number(at.revision), detail, moment(shown.createdMicros)];
}

// The text of a key of the metadata, if the metadata is a JSON object.
function metadataText({ metadata }, key) {
  try {
    const value = JSON.parse(metadata.text)[key];
    return typeof value === "string" && value ? value : null;
  } catch {
    return null;
  }
}

function facts(shown, at, pointed) {
  const correlation = metadataText(shown, "$correlationId");
  const causation = metadataText(shown, "$causationId");
  const pair = (name, ...value) => [el("dt", {}, name), el("dd", {}, ...value)];
  return el("dl", { class: "facts" },
    pair("Stream", streamLink(shown.stream)),
    pair("Revision", number(shown.revision)),
    pair("Position", number(shown.position)),
    pair("Type", link(address("stream", `$et-${shown.type}`), shown.type)),
    pair("Event id", el("code", {}, shown.id)),
    pair("Local time", localTime(shown.createdMicros)),
    pair("UTC", utcTime(shown.createdMicros)),
    correlation ? pair("Correlation id", link(`#/search?correlation=${encodeURIComponent(correlation)}`, correlation)) : null,
    causation ? pair("Causation id", link(`#/search?id=${encodeURIComponent(causation)}`, causation)) : null,
    pair("Events caused by it", link(`#/search?causation=${encodeURIComponent(shown.id)}`, "Search")),
    pointed ? pair("Shown by the link", `revision ${number(at.revision)} of `, streamLink(at.stream)) : null);
}

export async function event([stream = "", revision = ""]) {
  if (!/^\d+$/.test(revision)) throw new WrongAddress("The address of an event ends with its revision, a number");
  const found = await view("stream", { stream, direction: "forwards", from: revision, count: 1 });
  const entry = found.events[0];
  const at = entry && (entry.link ?? entry.event);
  const wanted = BigInt(revision);
  // The revisions that the stream or view has.
  const { is, first = "0", last } = found.state ?? {};
  const hasPrevious = is === "live" && wanted > BigInt(first);
  const hasNext = is === "live" && wanted < BigInt(last);
  const previous = hasPrevious && wanted > BigInt(last) ? last : wanted - 1n;
  const neighbours = el("nav", { class: "row", "aria-label": "Neighbours" },
    hasPrevious ? link(address("event", stream, previous), "← Previous", { rel: "prev" }) : null,
    hasNext ? link(address("event", stream, wanted + 1n), "Next →", { rel: "next" }) : null,
    link(`${address("stream", stream)}?from=${revision}`, "In its stream"),
    button("Copy the address", () => attempt("Copied.", () => navigator.clipboard.writeText(location.href))));
  if (!at || BigInt(at.revision) !== wanted) {
    const why = !at && found.state?.is === "tombstoned" ? "The stream was tombstoned."
      : !at && last && wanted > BigInt(last) ? `The stream ends at revision ${number(last)}.`
      : "This revision is not in the stream: it was deleted, or is not appended yet.";
    return show(`${number(revision)} of ${stream}`, neighbours, el("p", { class: "soft" }, why));
  }
  const shown = entry.event ?? entry.link;
  const place = { stream, revision };
  show(
    shown.type, neighbours,
    entry.event ? null : el("p", { class: "bad" }, "A link to an event that was deleted or that you may not read."),
    facts(shown, at, entry.link),
    contentViewer("Data", { value: shown.data, isJson: shown.isJson, place, part: "data" }),
    contentViewer("Metadata", { value: shown.metadata, isJson: true, place, part: "metadata" }),
  );
}
