// Categories and types.

import { el, link, number, show, table, view } from "./page.js";

export async function views() {
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
