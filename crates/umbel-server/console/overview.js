// The overview: what the server does now, and plots of the last minutes or hours.

import { address, backupLag, bytes, counted, el, every, link, number, put, show, view } from "./page.js";

/* global uPlot: the library of the plots, loaded by a script element of the page. */

const RANGES = [[15, "15 min"], [60, "1 h"], [360, "6 h"], [1440, "24 h"]];
const rate = (value) => (value === null || value === undefined ? "–" : `${number(Number(value.toPrecision(3)))}/s`);
const byteRate = (value) => (Number.isFinite(value) ? `${bytes(value)}/s` : "–");
const whole = (value) => (Number.isFinite(value) ? number(Math.round(value)) : "–");

export function milliseconds(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const value = seconds * 1000;
  return `${value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : number(Math.round(value))} ms`;
}

// Distances of ticks: whole numbers, and powers of two for bytes.
const WHOLE_STEPS = Array.from({ length: 15 }, (_, at) => [1, 2, 5].map((digit) => digit * 10 ** at)).flat();
const BYTE_STEPS = Array.from({ length: 52 }, (_, at) => 2 ** at);

// A plot: title, formatter of a value, and its series as [name of the server's series, label].
const PLOTS = [
  ["Events per second", rate, [["eventsAppended", "appended"], ["eventsRead", "read"]]],
  ["Append latency", milliseconds, [["appendP50", "p50"], ["appendP99", "p99"], ["appendP999", "p99.9"]]],
  ["Bytes appended per second", byteRate, [["bytesAppended", "appended"]]],
  ["Calls per second", rate, [["calls", "calls"]]],
  ["Memory", bytes, [["residentMemory", "process"], ["indexMemory", "index"], ["existenceFilterMemory", "existence filter"],
    ["requestsBuffered", "requests buffered"], ["responsesBuffered", "responses buffered"], ["groupsBuffered", "groups"]]],
  ["Disk", bytes, [["diskAvailable", "available"], ["logBytes", "event log"]]],
  ["Connections", whole, [["connections", "open"]]],
];

function duration(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const found = units.findIndex(([size]) => seconds >= size);
  const at = found < 0 ? units.length - 1 : found;
  const [[size, unit], next] = [units[at], units[at + 1]];
  const count = Math.floor(seconds / size);
  const rest = next ? Math.floor((seconds % size) / next[0]) : 0;
  return rest ? `${count} ${unit} ${rest} ${next[1]}` : `${count} ${unit}`;
}

// Change of a gauge per hour over the shown time, from its first and last samples.
function perHour({ times, series }, name) {
  const known = times.map((time, at) => [time, series[name][at]]).filter(([, value]) => value !== null);
  if (known.length < 2) return null;
  const [[start, first], [end, now]] = [known[0], known.at(-1)];
  return end - start < 60 ? null : ((now - first) / (end - start)) * 3600;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function steps(format) {
  if (format === bytes || format === byteRate) return { incrs: BYTE_STEPS };
  return format === whole ? { incrs: WHOLE_STEPS } : {};
}

// The local time of a tick, with seconds where ticks are less than a minute apart.
function clock(at, step) {
  const options = { hour: "2-digit", minute: "2-digit", second: step < 60 ? "2-digit" : undefined, hourCycle: "h23" };
  return new Date(at * 1000).toLocaleTimeString("en", options);
}

function plotOptions([title, format, series], width) {
  const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") }, font: "12px system-ui" };
  return {
    width, height: 210,
    cursor: { sync: { key: "overview" }, drag: { x: true, y: false } },
    legend: { live: true },
    scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1] } },
    axes: [{ ...axis, space: 80, values: (_, ticks, __, ___, step) => ticks.map((at) => clock(at, step)) }, { ...axis, size: 78, ...steps(format), values: (_, ticks) => ticks.map(format) }],
    series: [
      { value: (_, at) => (at === null ? "–" : clock(at, 1)) },
      ...series.map(([, label], at) => ({
        label, stroke: color(`--series-${at + 1}`), width: 1.6, spanGaps: false,
        points: { size: 4 }, value: (_, value) => format(value ?? undefined),
      })),
    ],
  };
}

// Draws the plots, and returns a function that gives them new samples.
function plots(box, history) {
  const frames = PLOTS.map(([title]) => {
    const summary = el("span", { class: "soft" });
    const canvas = el("div", { "aria-hidden": "true" });
    box.append(el("figure", { "aria-label": title }, el("figcaption", {}, el("b", {}, title), " ", summary), canvas));
    return [summary, canvas];
  });
  // The widths are known once all frames are on the page.
  const drawn = PLOTS.map((plot, at) => {
    const [, format, series] = plot;
    const [summary, canvas] = frames[at];
    const data = (samples) => [samples.times, ...series.map(([name]) => samples.series[name])];
    const chart = new uPlot(plotOptions(plot, Math.max(260, canvas.clientWidth)), data(history), canvas);
    return (samples) => {
      // A zoomed plot keeps its range.
      const isZoomed = chart.scales.x.min > chart.data[0][0] || chart.scales.x.max < chart.data[0].at(-1);
      chart.setData(data(samples), !isZoomed);
      // The newest sample has no latency if nothing was appended since the one before.
      summary.textContent = series.map(([name, label]) => `${label} ${format(samples.series[name]?.at(-1) ?? undefined)}`).join(", ");
    };
  });
  return (samples) => drawn.forEach((update) => update(samples));
}

const card = (title, value, note) => el("div", { class: "card" }, title, el("b", {}, value), note ? el("span", { class: "soft" }, note) : null);

// The group with the largest lag of all groups, as a link to it.
function lagNote(largest, text) {
  if (!largest) return null;
  const { source, group, lag } = largest;
  return el("span", { class: "soft" }, `largest lag: ${text(lag)}, `, link(address("group", source, group), `${group} on ${source}`));
}

// Reasons why appends fail or a backup has stopped, and damage, for the top of the page.
function problems(now, history) {
  const stopped = (name, backup) => backup?.state === "Stopped" ? `The ${name} has stopped until a restart: ${backup.error}.` : null;
  const errors = damageErrors(now);
  const damage = errors > 0
    ? `Damaged data: ${counted(errors, "error")} since the server started; its log names the files. ` +
      "Run umbel verify on the server's directory, then restore the store from a backup, or save the readable events with umbel repair."
    : null;
  const found = [damage, appendProblem(now, history), stopped("continuous backup", now.objectBackup),
    stopped("continuous backup of keys and values", now.kvObjectBackup)];
  return found.filter(Boolean).map((text) => el("span", { class: "problem" }, text));
}

// Errors for damaged data of events, and of keys and values, since the server started.
const damageErrors = ({ stats, kv }) => stats.store.damageErrors + (kv?.damageErrors ?? 0);

function appendProblem(now, history) {
  if (now.failure) return `Writes fail: ${now.failure}. Restart the server.`;
  const refused = history.series.appendsRefused.at(-1) ?? 0;
  if (!(refused > 0)) return null;
  const space = now.disk ? `${bytes(now.disk.availableBytes)} of disk are available` : "check the space on the disk";
  return `The server refuses appends: ${rate(refused)}. It is out of disk space or overloaded (${space}); the log has the reasons.`;
}

// A continuous backup into an object store, if the server has it.
function backupCard(title, backup) {
  if (!backup) return [];
  const { state, lagSeconds } = backup;
  const lagging = backupLag(backup);
  const isBad = state === "Stopped" || state === "Failing" || lagSeconds > 600;
  const lag = lagging === "" ? "complete" : lagging === null ? "not reached" : `${duration(lagSeconds)} behind`;
  const behind = lagging ? `, ${lagging} behind` : "";
  return [el("div", { class: isBad ? "card alarm" : "card" }, title, el("b", {}, state === "Stopped" ? "stopped" : lag),
    el("span", { class: "soft" }, isBad && backup.error ? backup.error : `to ${backup.location}${behind}`))];
}

function cards(now, history, groups) {
  const { series } = history;
  const latest = (name) => series[name].at(-1);
  const growth = perHour(history, "logBytes");
  const refused = latest("appendsRefused") ?? 0;
  const share = now.disk ? now.disk.availableBytes / now.disk.totalBytes : 1;
  const left = growth > 0 && now.disk ? now.disk.availableBytes / growth : null;
  const log = now.stats.store;
  const logNotes = [
    ...(log.logQuotaBytes ? [`of a quota of ${bytes(log.logQuotaBytes)}`] : []),
    ...(growth === null ? [] : [`${growth >= 0 ? "+" : "−"}${bytes(Math.abs(growth))} per hour`]),
  ];
  return [
    card("Appended", rate(latest("eventsAppended")), byteRate(latest("bytesAppended"))),
    card("Read", rate(latest("eventsRead")), `calls: ${rate(latest("calls"))}`),
    card("Append latency p50", milliseconds(latest("appendP50"))),
    card("Append latency p99", milliseconds(latest("appendP99")), `p99.9: ${milliseconds(latest("appendP999"))}`),
    el("div", { class: share < 0.1 ? "card alarm" : "card" }, "Disk available", el("b", {}, bytes(now.disk?.availableBytes)),
      el("span", { class: "soft" }, now.disk ? `of ${bytes(now.disk.totalBytes)}${left !== null && left < 24 * 30 ? `, ${left < 1 / 60 ? "full in less than a minute" : `full in ${duration(left * 3600)}`}` : ""}` : null)),
    el("div", { class: log.logBytes > 0.9 * (log.logQuotaBytes ?? Infinity) ? "card alarm" : "card" }, "Event log", el("b", {}, bytes(log.logBytes)),
      el("span", { class: "soft" }, logNotes.join(", "))),
    card("Memory of the process", bytes(now.process?.residentBytes)),
    card("Connections", number(now.connections), counted(now.openCalls, "open call")),
    el("div", { class: "card" }, "Consumer groups", el("b", {}, number(groups?.total)),
      lagNote(groups?.largestLagEvents, (lag) => counted(lag, "event")),
      lagNote(groups?.largestLagBytes, (lag) => `${bytes(Number(lag))} of the log`)),
    el("div", { class: refused > 0 ? "card alarm" : "card" }, "Appends refused", el("b", {}, number(now.appendsRefused)),
      el("span", { class: "soft" }, refused > 0 ? `${rate(refused)} now` : "since the start")),
    damageErrors(now) > 0
      ? el("div", { class: "card alarm" }, "Errors for damaged data", el("b", {}, number(damageErrors(now))), el("span", { class: "soft" }, "since the start"))
      : null,
    ...backupCard("Continuous backup", now.objectBackup),
    ...backupCard("Backup of keys and values", now.kvObjectBackup),
    card("Uptime", now.process ? duration((now.nowMicros - now.process.startedMicros) / 1e6) : "–"),
    card("Version", now.version, now.revision ? now.revision.slice(0, 12) : null),
  ];
}

export async function overview(_, query) {
  const minutes = Number(query.get("minutes") ?? 15) || 15;
  const box = el("div", { class: "cards" });
  const figures = el("div", { class: "plots" });
  const alarm = el("p", { class: "bad", role: "alert" });
  const range = el("nav", { class: "row", "aria-label": "Time of the plots" },
    RANGES.map(([value, text]) => el("a", { class: "pill", href: `#/overview?minutes=${value}`, "aria-current": value === minutes ? "true" : null }, text)),
    el("span", { class: "soft" }, "Drag over a plot to zoom; double-click to reset."));
  const groupsNow = () => view("groups").catch(() => null);
  let [now, history, groups] = await Promise.all([view("overview"), view("history", { minutes }), groupsNow()]);
  show("Overview", alarm, box, range, figures);
  const drawCards = () => {
    put(alarm, problems(now, history));
    put(box, cards(now, history, groups));
  };
  let update = null;
  const drawPlots = () => {
    if (history.times.length < 2) return put(figures, el("p", { class: "soft" }, "Samples are taken every 5 seconds; plots of more than 15 minutes have one each minute. There are none yet."));
    if (!update) {
      put(figures);
      update = plots(figures, history);
    }
    update(history);
  };
  drawCards();
  drawPlots();
  const redraw = () => {
    if (!figures.isConnected) return removeEventListener("umbel-redraw", redraw);
    update = null;
    drawPlots();
  };
  addEventListener("umbel-redraw", redraw);
  let round = 0;
  every(minutes > 15 ? 30_000 : 5000, async () => {
    round += 1;
    [now, history] = await Promise.all([view("overview"), view("history", { minutes })]);
    if (round % 6 === 0) groups = await groupsNow();
    drawCards();
    drawPlots();
  });
}
