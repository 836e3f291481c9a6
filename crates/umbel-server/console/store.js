// The store: the event log, the index and their filters.

import { bytes, counted, el, every, number, percent, put, show, table, view } from "./page.js";

const card = (title, value) => el("div", { class: "card" }, title, el("b", {}, value));

function adviceText(one) {
  const size = `${bytes(one.keptBytes)} of filters are in memory; ${one.bloomBits} bits per key everywhere would take ${bytes(one.plainBytes)}. `;
  if (one.gets < 1) return `${size}There were no recent lookups.`;
  const rate = (share) => (share * 1000).toFixed(2);
  return `${size}Of the last ${counted(Math.round(one.gets), "lookup")}, ${percent(one.absentShare)} were misses. ` +
    `A thousand lookups have ${rate(one.falseReads)} false positives, ${rate(one.plainFalseReads)} with plain filters, ` +
    `${rate(one.best.half)} with the best ones and half the memory, ${rate(one.best.twice)} with twice as much.`;
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
    el("section", {}, el("h3", {}, one.keyspace), el("p", {}, adviceText(one)),
      el("ul", {}, one.levels.map((level) => el("li", {}, `Level ${level.level}: ${level.kept}, because: ${level.why}`)))));
  show(
    "Store", cards, el("h2", {}, "Levels and filters"),
    table("Table lookups saved by each level's filters since the start", levelColumns, levelRows, "No table was written yet."),
    el("h2", {}, "Filters chosen by the advisor, and why"), reasons,
  );
  const draw = async () => {
    const now = await view("overview");
    const { store: log, existenceFilter: filter, index } = now.stats;
    put(cards,
      card("Event log", bytes(log.logBytes)),
      card("Chunks of the event log", number(log.logChunks)),
      card("Streams in the existence filter", number(filter.items)),
      card("Lookups of absent streams saved", number(filter.denied)),
      card("False positives of the existence filter", number(filter.inVain)),
      card("Existence filter in memory", bytes(filter.memoryBytes)),
      card("Index in memory", bytes(index.memoryBytes)),
      card("Request bytes buffered", bytes(now.appendsBytes + now.requestsBufferedBytes)),
      card("Response bytes buffered", bytes(now.unreadBytes)),
      card("Bytes that groups buffer", bytes(now.groupsBufferedBytes)),
      card("Write stalls of the index", number(index.stalls)),
      card("Clock", clockState(log)),
    );
  };
  await draw();
  every(5000, draw);
}

// Whether the store believes the clock, with the number of its clock epoch.
function clockState(log) {
  const hours = (seconds) => `${number(Math.ceil(seconds / 3600))} h`;
  const state = log.clockRejectedSeconds > 0 ? `${hours(log.clockRejectedSeconds)} ahead, not believed`
    : log.clockBehindSeconds > 0 ? `${hours(log.clockBehindSeconds)} behind the last event`
    : "believed";
  return log.clockEpoch > 1 ? `${state}, epoch ${log.clockEpoch}` : state;
}
