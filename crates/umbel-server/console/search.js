// A search for events by an id. It reads the log backwards, since no index has these ids.

import {
  address, button, bytes, counted, el, every, link, moment, number, show, streamLink, table, view,
} from "./page.js";

const TITLES = {
  correlation: "Events with the correlation id",
  causation: "Events caused by the event",
  id: "Event with the id",
};
const COLUMNS = [["Position", "number optional"], ["Stream", ""], ["Revision", "number"], ["Type", ""],
  ["Bytes", "number optional"], ["Appended", "tight optional"]];

export const eventCells = (event) => [
  number(event.position), streamLink(event.stream), number(event.revision),
  link(address("event", event.stream, event.revision), event.type), bytes(event.bytes), moment(event.createdMicros),
];

export async function search(_, query) {
  const kind = Object.keys(TITLES).find((name) => query.get(name));
  if (!kind) return show("Search", el("p", { class: "soft" }, "Open this page from an event with a correlation id."));
  const id = query.get(kind);
  const found = [];
  let before = null;
  let isEnd = false;
  let isStopped = false;
  const state = el("p", { role: "status", class: "soft" });
  const stop = button("Stop", () => {
    isStopped = true;
    draw();
  });
  const results = el("div", {});
  show(`${TITLES[kind]} ${id}`, el("div", { class: "row" }, stop, state), results);
  const draw = () => {
    results.replaceChildren(table("Newest event first", COLUMNS, found.map(eventCells),
      isEnd || isStopped ? "No event has this id." : "No event yet."));
    stop.hidden = isEnd || isStopped;
    const count = counted(found.length, "event");
    state.textContent = isEnd ? `${count} in the whole log.` : `${count}. ${isStopped ? "Stopped" : "Searching"} before position ${number(before)}.`;
  };
  every(50, async () => {
    if (isEnd || isStopped) return;
    const part = await view("search", { [kind]: id, before });
    found.push(...part.events);
    [before, isEnd] = [part.before, part.isEnd || (kind === "id" && found.length > 0)];
    draw();
  });
}
