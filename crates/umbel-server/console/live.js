// The live tail.

import { eventCells } from "./search.js";
import {
  address, button, bytes, counted, el, every, link, moment, number, outage, put, show, streamLink, valueOf, view, visible,
} from "./page.js";

// Most rows on the page.
const ROWS_MAX = 300;
// Wait between two answers while the page is behind, in milliseconds. With 500 events an answer, the page takes at
// most 2,000 events a second, so that it does not slow the server down.
const BEHIND_WAIT = 250;
const COLUMNS = [["Position", "number optional"], ["Stream", ""], ["Revision", "number"], ["Type", ""],
  ["Bytes", "number optional"], ["Appended", "tight optional"]];

function row(event) {
  const cells = [
    number(event.position),
    streamLink(event.stream),
    number(event.revision),
    [link(address("event", event.stream, event.revision), event.type),
      event.linksTo === null ? null : el("span", { class: "soft" }, ` → ${event.linksTo}`)],
    bytes(event.bytes),
    moment(event.createdMicros),
  ];
  return el("tr", {}, cells.map((cell, at) => el("td", { class: COLUMNS[at][1] }, cell)));
}

/* How far the page is behind the log. The number of events is an estimate: the log between the cursor
   and its end, divided by the mean length of the events that were appended since the page was opened. */
function lag(cursor, answer, first) {
  const left = Number(BigInt(answer.end) + 1n - cursor);
  if (left <= 0) return null;
  const events = Number(BigInt(answer.appended) - BigInt(first.appended));
  const length = Number(BigInt(answer.end) - BigInt(first.end)) / events;
  return { bytes: left, events: events > 0 && length > 0 ? Math.max(1, Math.round(left / length)) : null };
}

function lagText({ bytes: left, events }) {
  const size = `${bytes(left)} of the log`;
  if (events === null) return `Behind by ${size}.`;
  return `Behind by ${counted(events, "event")} (${size}).`;
}

export async function live(_, query) {
  const filter = { stream: query.get("stream") ?? "", type: query.get("type") ?? "", system: query.get("system") ?? "" };
  const body = el("tbody", {});
  const count = el("p", { role: "status", id: "live-state", class: "soft" }, "Waiting for events.");
  let first = await view("tail", { ...filter, count: 20 });
  let cursor = BigInt(first.next);
  let seen = 0;
  let isPaused = false;

  const pause = button("Pause", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Resume" : "Pause";
    pause.setAttribute("aria-pressed", String(isPaused));
  }, { "aria-pressed": "false" });
  const jump = button("Go to the newest event", () => restart(), { hidden: true });
  const input = (id, value, placeholder) =>
    el("input", { type: "search", id, value: visible(value), placeholder, autocomplete: "off", spellcheck: "false" });
  const stream = input("live-stream", filter.stream, "cart-");
  const type = input("live-type", filter.type, "Item");
  const system = el("input", { type: "checkbox", id: "system", checked: filter.system === "yes" });
  const apply = (event) => {
    event?.preventDefault();
    const fields = { stream: valueOf(stream, filter.stream), type: valueOf(type, filter.type), system: system.checked ? "yes" : "" };
    location.hash = `#/live?${new URLSearchParams(Object.entries(fields).filter(([, value]) => value))}`;
  };
  system.addEventListener("change", () => apply());
  const form = el("form", { class: "row", role: "search", onsubmit: apply },
    el("label", { class: "inline", for: "live-stream" }, "Stream prefix ", stream),
    el("label", { class: "inline", for: "live-type" }, "Type prefix ", type),
    el("label", { class: "inline", for: "system" }, system, "System streams"),
    el("button", { class: "main" }, "Filter"));
  const head = el("tr", {}, COLUMNS.map(([title, kind]) => el("th", { scope: "col", class: kind }, title)));
  show("Live", form, el("div", { class: "row" }, pause, jump, count),
    el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "New events" },
      el("table", {}, el("caption", {}, "Newest event first"), el("thead", {}, head), body)));
  const start = () => put(body, first.events.map(row).reverse());
  start();

  // Leaves out the events between the cursor and the end of the log.
  async function restart() {
    first = await view("tail", { ...filter, count: 20 });
    cursor = BigInt(first.next);
    start();
  }

  const report = (answer) => {
    const behind = lag(cursor, answer, first);
    const isBehind = behind !== null && (isPaused || !answer.isEnd);
    jump.hidden = !isBehind;
    const total = seen === 0 ? "Waiting for events." : `${counted(seen, "event")} since this page was opened.`;
    const text = `${isPaused ? "Paused. " : ""}${isBehind ? `${lagText(behind)} ` : ""}${total}`;
    if (count.textContent !== text) count.textContent = text;
  };

  every(500, async () => {
    if (isPaused) return report(await view("tail", { ...filter, from: cursor, count: 0 }));
    // While events are left, the next ones are requested sooner.
    for (let isEnd = false; !isEnd && !isPaused && !document.hidden && body.isConnected; ) {
      const answer = await view("tail", { ...filter, from: cursor });
      if (!body.isConnected) return;
      isEnd = answer.isEnd;
      cursor = BigInt(answer.next);
      seen += answer.events.length;
      body.prepend(...answer.events.slice(-ROWS_MAX).map(row).reverse());
      while (body.children.length > ROWS_MAX) body.lastChild.remove();
      report(answer);
      outage(null);
      if (!isEnd) await new Promise((done) => setTimeout(done, BEHIND_WAIT));
    }
  });
}
