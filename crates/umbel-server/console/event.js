// One event: its place, data and metadata.

import { bytes, el, moment, number, streamLink } from "./page.js";

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

export function eventRow({ event, link: pointed }, showsStream) {
  const shown = event ?? pointed;
  const at = pointed ?? event;
  const detail = el(
    "details", { class: "event" }, el("summary", {}, shown.type),
    el("p", { class: "soft" }, "id ", shown.id, ", position ", number(shown.position), ", ", moment(shown.createdMicros)),
    pointed && event ? el("p", {}, "A link to revision ", event.revision, " of ", streamLink(event.stream)) : null,
    event ? null : el("p", { class: "soft" }, "A link to an event that was deleted or that you may not read."),
    el("h3", {}, "Data"), content(shown.data, shown.isJson),
    el("h3", {}, "Metadata"), content(shown.metadata, true),
  );
  const row = [number(at.revision), detail, moment(shown.createdMicros)];
  return showsStream ? [number(shown.position), streamLink(shown.stream), ...row] : row;
}
