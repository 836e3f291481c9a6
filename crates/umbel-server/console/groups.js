// Consumer groups.

import { attempt, button, change, el, every, link, main, number, server, show, streamLink, table, view } from "./page.js";

export async function groups() {
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
