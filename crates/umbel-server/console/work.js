// Scavenges, redactions and backups.

import { attempt, button, bytes, change, el, every, number, put, refresh, say, server, show, view } from "./page.js";

// What still has data after a removal.
function remainingData({ filesKept, filesWithOtherNames }) {
  const file = (text) => (name) => el("li", {}, `${name}: ${text}`);
  return el("ul", {},
    filesKept.map(file("a reader in another process keeps this replaced file. End the reader; the server then removes the file.")),
    filesWithOtherNames.map(file("a copy made of hard links still has this replaced file. Remove the copy.")),
    el("li", {}, "Backups, checkpoints and other copies made earlier still have the removed data. Back up again into the same directory, and remove other copies."));
}

function removalResult(scavenge) {
  const left = scavenge.hiddenEventsLeft;
  const isClean = left === 0 && scavenge.filesKept.length === 0;
  const text = left === null ? "The scavenge ended early: start it again."
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
        el("p", {}, `${number(done.eventsRedacted)} events lost data and metadata, ${number(done.eventsWithoutData)} had none.`),
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

export async function work() {
  const scavenging = el("div", {});
  const saving = el("div", {});
  show("Work", el("h2", {}, "Scavenge"),
    el("p", { class: "soft" }, "Frees the space of events that their streams no longer show. “Remove all now” also removes the newest ones, and reads the log again."),
    scavenging, server.isOperator ? redactForm() : [],
    el("h2", {}, "Backup"), el("p", { class: "soft" }, "Copies all events appended so far; reads and appends continue."), saving);
  const start = (text, removeAll) =>
    button(text, () => attempt(null, async () => {
      const { started } = await change("scavenge", { removeAll });
      say(started ? "Started." : "Another scavenge is running.");
      await draw();
    }), { disabled: !server.isOperator });
  const draw = async () => {
    const { scavenge, backup } = await view("overview");
    const isRunning = scavenge && !scavenge.isDone;
    refresh(scavenging, 
      scavenge
        ? el("div", {}, el("p", { role: "status" },
            `${isRunning ? "Running" : "Done"}: ${number(scavenge.chunksExamined)} of ${number(scavenge.chunks)} files, ` +
            `${number(scavenge.eventsRemoved)} events removed, ${bytes(scavenge.bytesGivenBack)} freed.`),
          el("progress", { max: Math.max(scavenge.chunks, 1), value: scavenge.chunksExamined, "aria-label": "Scavenge" }))
        : el("p", {}, "No scavenge since the server started."),
      scavenge?.removesAll && !isRunning ? removalResult(scavenge) : "",
      isRunning
        ? button("Stop", () => attempt("Stopped.", () => change("stop-scavenge", { id: scavenge.id }).then(draw)), { disabled: !server.isOperator })
        : el("div", { class: "row" }, start("Start a scavenge", false), start("Remove all now", true)),
    );
    refresh(saving, 
      el("p", {}, backup.folder ? `Backup directory on the server: ${backup.folder}` : "No backup directory is configured: start the server with --backup-dir."),
      backup.isRunning || backup.through || backup.error
        ? el("p", { role: "status", class: backup.error ? "bad" : "" },
            backup.error ?? (backup.isRunning ? `Running: ${bytes(backup.bytes)} of ${bytes(backup.totalBytes)}.` : `Done, through position ${number(backup.through)}.`))
        : null,
      backup.isRunning ? el("progress", { max: Math.max(backup.totalBytes, 1), value: backup.bytes, "aria-label": "Backup" }) : null,
      button("Back up now", () => attempt("Started.", () => change("backup", {}).then(draw)),
        { disabled: !server.isOperator || !backup.folder || backup.isRunning }),
    );
  };
  await draw();
  every(1000, draw);
}
