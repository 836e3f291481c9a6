// Scavenges with their schedule, redactions and backups, with the history of each.

import { confirmed } from "./groups.js";
import {
  attempt, backupLag, button, bytes, change, counted, el, every, field, localTime, number, put, refresh, say, server, show, table, utcTime, view,
} from "./page.js";

// What still has data after a removal.
function remainingData({ filesKept, filesWithOtherNames }) {
  const file = (text) => (name) => el("li", {}, `${name}: ${text}`);
  return el("ul", {},
    filesKept.map(file("a reader in another process keeps this replaced file. End the reader; the server then removes the file.")),
    filesWithOtherNames.map(file("a copy made of hard links still has this replaced file. Remove the copy.")),
    el("li", {}, "Backups, checkpoints and other copies made earlier still have the removed data. Back up again into the same directory, and remove other copies. A backup in an object store keeps the data until its retention deletes the earlier states."));
}

function removalResult(scavenge) {
  const left = scavenge.hiddenEventsLeft;
  const isClean = left === 0 && scavenge.filesKept.length === 0;
  const text = scavenge.error ? "Hidden events may still have data: mend the cause of the failure, then start it again."
    : left === null ? "The scavenge ended early: start it again."
    : left === 1 ? "1 hidden event still has data, because it became hidden meanwhile: start it again."
    : left > 0 ? `${number(left)} hidden events still have data, because they became hidden meanwhile: start it again.`
    : isClean ? "No file of the store has data of hidden events."
    : "Replaced files still have removed data.";
  return el("div", {}, el("p", { class: isClean ? "" : "bad" }, text), remainingData(scavenge));
}

function redactForm() {
  const events = el("textarea", { id: "r-events", required: true, spellcheck: "false", placeholder: "cart-42@7" });
  const reason = el("input", { type: "text", id: "r-reason" });
  const result = el("div", { role: "status" });
  const submit = async (event) => {
    event.preventDefault();
    await attempt(null, async () => {
      // A line's end is not part of a name.
      const places = events.value.split("\n").filter(Boolean);
      const done = await change("redact", { events: places, reason: reason.value });
      put(result, 
        el("p", {}, `${counted(done.eventsRedacted, "event")} lost data and metadata, ${number(done.eventsWithoutData)} had none.`),
        remainingData(done));
      say("Redacted.");
    });
  };
  return el(
    "details", { class: "form" }, el("summary", {}, "Redact events"),
    el("p", { class: "soft" }, "Removes data and metadata of single events for good; ids, types and revisions stay. The stream $redactions gets audit events."),
    el(
      "form", { onsubmit: submit },
      el("label", { for: "r-events" }, "Events: STREAM@REVISION, one on each line"), events,
      el("label", { for: "r-reason" }, "Reason (optional)"), reason,
      el("div", { class: "row" }, el("button", { class: "main" }, "Redact")),
    ),
    result,
  );
}

const OUTCOMES = {
  InProgress: "Running", Success: "Success", Stopped: "Stopped", Errored: "Failed",
  Interrupted: "Interrupted", Skipped: "Skipped", Missed: "Missed",
};
// Rows of a history that are shown at first.
const SHOWN = 10;

// A local time without milliseconds; its title has all of it in UTC.
function time(text) {
  if (!text) return "–";
  const micros = Date.parse(text) * 1000;
  const [day, clock] = localTime(micros).slice(0, -4).split(" ").map((piece) => el("span", { class: "piece" }, piece));
  return el("time", { datetime: text, title: utcTime(micros) }, day, " ", clock);
}

function duration(started, ended) {
  const seconds = (Date.parse(ended) - Date.parse(started)) / 1000;
  if (!Number.isFinite(seconds) || seconds < 0) return "–";
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// The outcome of a work, with its reason below.
const outcome = (result, error) => [
  el("span", { class: result === "Success" ? "tag good" : result === "Errored" ? "tag failed" : "tag" }, OUTCOMES[result] ?? result),
  error ? el("div", {}, reason(error)) : null,
];
const origin = ({ user, scheduled }) => (scheduled ? "Schedule" : user ?? "–");

// A reason; a long one is folded.
function reason(text) {
  if (text.length <= 90) return text;
  return el("details", {}, el("summary", {}, `${text.slice(0, 80)}…`), text);
}

const scavengeRow = (work) => [
  time(work.started), outcome(work.scavengeResult, work.error), origin(work), duration(work.started, work.ended),
  number(work.eventsRemoved), number(work.eventsStubbed), bytes(work.bytesFreed), number(work.chunksRewritten),
];
const SCAVENGE_COLUMNS = [["Started", "tight"], ["Outcome", ""], ["By", "name optional"], ["Took", "number optional"],
  ["Removed", "number optional"], ["Emptied", "number optional"], ["Freed", "number"], ["Chunks", "number optional"]];
const backupRow = (work) => [
  time(work.started), outcome(work.backupResult, work.error), origin(work), duration(work.started, work.ended),
  bytes(work.copiedBytes), bytes(work.backupBytes), number(work.through),
];
const BACKUP_COLUMNS = [["Started", "tight"], ["Outcome", ""], ["By", "name optional"], ["Took", "number optional"],
  ["Copied", "number"], ["Total", "number optional"], ["Through position", "number optional"]];

const fact = (name, ...value) => [el("dt", {}, name), el("dd", {}, ...value)];

// A continuous backup into an object store, if the server has it.
function continuous(title, backup) {
  if (!backup) return null;
  const { location, state, position, lagSeconds, lastSuccess, error, retentionError, lostObjects } = backup;
  const lagging = backupLag(backup);
  const lag = lagging === "" ? "nothing" : `${lagging ?? "unknown"}, of the last ${number(Math.round(lagSeconds))} s`;
  const lost = lostObjects > 0
    ? `${counted(lostObjects, "object")} had been deleted by something else, and ${lostObjects === 1 ? "was" : "were"} uploaded again. Check the lifecycle rules.`
    : null;
  const failure = error ?? lost ?? retentionError ?? backup.searchError;
  const problem = state === "Stopped" ? `Stopped until a restart: ${error}` : failure;
  return el("div", {}, el("h3", {}, title),
    el("dl", { class: "facts" },
      fact("State", state),
      fact("Object store", location),
      fact("Not backed up yet", lag),
      fact("Last success (local time)", time(lastSuccess)),
      position ? fact("Through position", number(position)) : null),
    problem ? el("p", { role: "status", class: "bad" }, problem) : null);
}

// A history that is drawn again only after a change, so that selected text and unfolded reasons stay.
function history(name, columns, toRow) {
  const box = el("div", {});
  let drawn = null;
  let showsAll = false;
  const draw = (works) => {
    const state = JSON.stringify([works, showsAll]);
    if (state === drawn) return;
    drawn = state;
    if (works === null) return put(box, el("p", { class: "soft" }, "Only operators see the history."));
    const rows = (showsAll ? works : works.slice(0, SHOWN)).map(toRow);
    const more = button(`Show all ${number(works.length)}`, () => {
      showsAll = true;
      draw(works);
      box.querySelector("[role=region]")?.focus({ preventScroll: true });
    });
    put(box, table(`Last ${name}s`, columns, rows, `No ${name} yet.`), rows.length < works.length ? more : null);
  };
  return { box, draw };
}

const STATES = {
  NotConfigured: "No schedule is set", Waiting: "Waiting for the next time", InProgress: "A scheduled scavenge is running",
  Pausing: "Paused; a scavenge is still stopping", Paused: "Paused",
};

function autoScavengeFacts(auto) {
  return el("dl", { class: "facts" },
    fact("State", STATES[auto.state] ?? auto.state),
    fact("Schedule (UTC)", auto.schedule ? el("code", {}, auto.schedule) : "none"),
    fact("Next scavenge (local time)", time(auto.nextScavenge)),
    fact("Threshold", `${number(auto.thresholdPercent)} % dead bytes in a chunk`),
    fact("Throttle", `works ${number(auto.throttlePercent)} % of the time`));
}

// The form of schedule, threshold and throttle. It is drawn once, so that no repetition disturbs it.
function scheduleForm(auto, changed) {
  const schedule = el("input", { type: "text", id: "s-schedule", value: auto.schedule ?? "", placeholder: "0 3 * * *", spellcheck: "false",
    autocomplete: "off", "aria-describedby": "s-schedule-note s-error" });
  const count = (id, value, min) => el("input", { type: "number", id, min, max: "100", step: "1", required: true, value: String(value) });
  const threshold = count("s-threshold", auto.thresholdPercent, "0");
  const throttle = count("s-throttle", auto.throttlePercent, "1");
  const error = el("p", { class: "bad", id: "s-error", role: "alert" });
  const form = el("details", { class: "form" }, el("summary", {}, "Change the schedule"));
  const submit = async (event) => {
    event.preventDefault();
    const settings = { schedule: schedule.value.trim() || null, thresholdPercent: Number(threshold.value), throttlePercent: Number(throttle.value) };
    schedule.removeAttribute("aria-invalid");
    put(error);
    try {
      await change("auto-scavenge", { settings });
    } catch (failure) {
      put(error, failure.message);
      if (failure.message.startsWith("schedule")) {
        schedule.setAttribute("aria-invalid", "true");
        schedule.focus();
      }
      return;
    }
    say(settings.schedule ? "The schedule is set." : "The schedule is removed.");
    form.open = false;
    form.querySelector("summary").focus();
    await attempt(null, changed);
  };
  form.append(el("form", { onsubmit: submit },
    field("s-schedule", "Schedule: minute, hour, day of the month, month, day of the week, in UTC", schedule,
      "“0 3 * * *” is 03:00 each day, “30 4 * * 0” is 04:30 on Sundays. Leave it empty for no automatic scavenges."),
    el("div", { class: "grid" },
      el("div", {}, field("s-threshold", "Rewrite chunks from (% dead bytes)", threshold)),
      el("div", {}, field("s-throttle", "Work (% of the time)", throttle))),
    error, el("div", { class: "row" }, el("button", { class: "main" }, "Set"))));
  return form;
}

function scavengeProgress(scavenge) {
  if (!scavenge) return el("p", {}, "No scavenge since the server started.");
  const isRunning = !scavenge.isDone;
  return el("div", {}, el("p", { role: "status" },
    `${isRunning ? "Running" : scavenge.error ? "Failed" : scavenge.isStopped ? "Stopped" : "Done"}: ${number(scavenge.chunksExamined)} of ${counted(scavenge.chunks, "file")}, ` +
    `${counted(scavenge.eventsRemoved, "event")} removed, ${number(scavenge.eventsStubbed)} emptied, ${bytes(scavenge.bytesGivenBack)} freed.`),
    el("progress", { max: Math.max(scavenge.chunks, 1), value: scavenge.chunksExamined, "aria-label": "Scavenge" }),
    scavenge.error ? el("p", { role: "status", class: "bad" }, scavenge.error) : null,
    scavenge.eventsStubbed > 0
      ? el("p", { class: "soft" }, "An emptied event lost its data. Its id stays, so that a retry of its append is recognized.") : null);
}

// Progress or outcome of the last backup into a directory since the server started.
function backupProgress(backup) {
  const text = backup.error
    ?? (backup.isRunning ? `Running: ${bytes(backup.bytes)} of ${bytes(backup.totalBytes)}.`
    : backup.isStopped ? "Stopped. The next backup reuses the complete files."
    : backup.through ? `Done, through position ${number(backup.through)}.` : null);
  return text ? el("p", { role: "status", class: backup.error ? "bad" : "" }, text) : null;
}

export async function work() {
  const scavenging = el("div", {});
  const automatic = el("div", {});
  const saving = el("div", {});
  const disabled = !server.isOperator;
  const scavenges = history("scavenge", SCAVENGE_COLUMNS, scavengeRow);
  const backups = history("backup", BACKUP_COLUMNS, backupRow);
  const first = await view("work");
  const start = (text, removeAll) =>
    button(text, () => attempt(null, async () => {
      const { started } = await change("scavenge", { removeAll });
      say(started ? "Started." : "Another scavenge is running.");
      await draw();
    }), { disabled });
  const pause = (isPaused, text) => attempt(text, () => change("auto-scavenge", { isPaused }).then(() => draw()));
  const resumeButton = button("Resume", () => pause(false, "Resumed."), { disabled });
  const pauseButton = disabled ? button("Pause", null, { disabled })
    : confirmed("Pause", "Start no scavenge until you resume, and stop a scheduled one", () => pause(true, "Paused."));
  show("Work", el("h2", {}, "Scavenge"),
    el("p", { class: "soft" }, "Frees the space of events that their streams no longer show. “Remove all now” also removes the newest ones, and reads the log again."),
    scavenging, disabled ? [] : redactForm(),
    el("h2", {}, "Auto-scavenge"), automatic, el("div", { class: "row" }, pauseButton, resumeButton),
    disabled ? [] : scheduleForm(first.autoScavenge, () => draw()),
    el("h2", {}, "Scavenge history"), scavenges.box,
    el("h2", {}, "Backup"), saving,
    el("h2", {}, "Backup history"), backups.box);
  const draw = async (data) => {
    const { scavenge, autoScavenge, backup, objectBackup, kvObjectBackup, ...lists } = data ?? await view("work");
    const isRunning = scavenge && !scavenge.isDone;
    refresh(scavenging, scavengeProgress(scavenge),
      scavenge?.removesAll && !isRunning ? removalResult(scavenge) : "",
      isRunning
        ? button("Stop", () => attempt("Stopped.", () => change("stop-scavenge", { id: scavenge.id }).then(() => draw())), { disabled })
        : el("div", { class: "row" }, start("Start a scavenge", false), start("Remove all now", true)),
    );
    put(automatic, autoScavengeFacts(autoScavenge));
    const isPaused = autoScavenge.state === "Paused" || autoScavenge.state === "Pausing";
    const active = document.activeElement;
    const [shown, hidden] = isPaused ? [resumeButton, pauseButton] : [pauseButton, resumeButton];
    const hadFocus = hidden.contains(active);
    [shown.hidden, hidden.hidden] = [false, true];
    if (hadFocus) (shown.querySelector("button") ?? shown).focus({ preventScroll: true });
    refresh(saving, 
      continuous("Continuous backup", objectBackup),
      continuous("Continuous backup of keys and values", kvObjectBackup),
      el("h3", {}, "Backup into a directory"),
      el("p", { class: "soft" }, "Copies all events appended so far; reads and appends continue."),
      el("p", {}, backup.folder ? `Backup directory on the server: ${backup.folder}` : "No backup directory is configured: start the server with --backup-dir."),
      backupProgress(backup),
      backup.isRunning ? el("progress", { max: Math.max(backup.totalBytes, 1), value: backup.bytes, "aria-label": "Backup" }) : null,
      backup.isRunning
        ? button("Stop the backup", () => attempt("Stopping.", () => change("stop-backup", { id: backup.id }).then(() => draw())), { disabled })
        : button("Back up now", () => attempt("Started.", () => change("backup", {}).then(() => draw())), { disabled: disabled || !backup.folder }),
    );
    scavenges.draw(lists.scavenges);
    backups.draw(lists.backups);
  };
  await draw(first);
  every(1000, () => draw());
}
