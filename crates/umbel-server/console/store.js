// The store: rates and latencies, levels and filters.

import { bytes, el, every, number, percent, put, show, table, view } from "./page.js";

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

export async function store() {
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
    put(cards, 
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
