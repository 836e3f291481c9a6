//! The soak's report as Markdown and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Outcome;
use super::plan::ALL;
use super::times::Window;
use super::verdict::{Check, PARTS, Sample, median, part_of};
use super::watch::Vitals;
use crate::report::table::{NOTHING, Table, figure};
use crate::serving::report::Heading;

const MIB: f64 = (1 << 20) as f64;

const WHAT_IS_DONE: &str = "\
Clients of one program ask one `umbel serve --insecure`, each worker over a connection of its \
own and as often as the second table says: appends to new streams and to such as exist, with \
every kind of expectation; batches; reads of streams, of all, of what is not there; \
subscriptions and groups that are opened and left; connections; users; metadata; deletions. Two \
subscribers to all, one to every eighth stream, and two consumers of each of three groups stay \
from the first event to the last; of the groups' events a hundredth is parked and sent again \
half a minute later, a hundredth asked for again. Every answer is compared with what it must be. \
Whoever reads in the order of all events checks that each writer's events come once and in \
order. The server is stopped by SIGTERM while appends are under way, is started again on its \
folder, and everything is read: what was acknowledged must be there, once, in order; streams as \
long as they were; deleted ones deleted; users and groups as they were.

Memory is the kernel's count of what is not pages of files. Flat means: the median of the last \
sixth is at most a tenth and 32 MiB above that of the second sixth; sockets and other descriptors \
a tenth and 16, threads 4 or 44 in all, because there are 32 at most that read the stores, open \
files a tenth and 128, because the event log keeps the files of 128 chunks open. The \
first sixth is for filling what has a bound. Of the anonymous memory the part of the index is \
what it says itself; it is within the budget.

By design these grow with what is stored, all within the budget that `--memory` sets or with a \
count of files: the cache of blocks until it is full, indexes and filters of tables, the filter \
of streams that exist (some 10 bits a stream), open files of tables and chunks, numbers of a \
view or a parked event in its stream. Nothing is to be kept for each connection, subscription, \
read or user that is gone.
";

/// The report as a page.
pub fn markdown(heading: &Heading<'_>, outcome: &Outcome) -> String {
    let machine = heading.machine;
    let mut page = format!("# Soak of the server, {}\n\n", machine.date);
    let load = |loads: Option<[f64; 3]>| {
        loads.map_or(NOTHING.to_string(), |loads| format!("{:.2}", loads[0]))
    };
    let _ = writeln!(
        page,
        "{}, {} threads, {}, {}, commit {}. Load before {}, after {}. {} minutes at {} events a \
         second, `--memory {}`.\n\n{WHAT_IS_DONE}",
        machine.processor,
        machine.threads,
        machine.kernel,
        machine.file_system,
        machine.commit,
        load(heading.loads_before),
        load(heading.loads_after),
        outcome.minutes,
        outcome.rate,
        outcome.memory,
    );
    page.push_str("## Verdict\n\n");
    page.push_str(&verdict(outcome));
    page.push_str("\n## What the server held, medians of each sixth\n\n");
    page.push_str(&held(&outcome.samples));
    page.push_str("\n## How long calls took, ms, p50 / p99 of each sixth\n\n");
    page.push_str(&times(outcome));
    page
}

fn verdict(outcome: &Outcome) -> String {
    let mut table = Table::new("what", ["second sixth", "last sixth", "at most", "holds"]);
    for check in &outcome.checks {
        let Check { what, settled, last, most, holds } = check;
        let cells = [settled, last, most].map(|number| figure(*number));
        let holds = if *holds { "yes" } else { "**no**" };
        table.row(what, cells.into_iter().chain([holds.to_string()]));
    }
    let mut text = table.text();
    let found = outcome.found;
    let _ = writeln!(
        text,
        "\n{} events were acknowledged, {} are there after the restart, {} of them unacknowledged; \
         {} others (users, metadata, links, checkpoints). Groups sent {} events, {} different \
         ones. The server took {:.1} s to stop ({}) and {:.1} s to start again; its log has {} \
         lines of errors and {} of warnings. Wrong answers: {}.",
        outcome.acknowledged,
        found.events,
        found.unacknowledged,
        found.others,
        outcome.groups_sent.0,
        outcome.groups_sent.1,
        outcome.stopped_in,
        outcome.ended_with,
        outcome.started_in,
        outcome.log.0,
        outcome.log.1,
        outcome.wrong.0,
    );
    for wrong in &outcome.wrong.1 {
        let _ = writeln!(text, "- {wrong}");
    }
    let passed = if outcome.passed() { "**Passed.**" } else { "**Failed.**" };
    let _ = writeln!(text, "\n{passed}");
    text
}

fn held(samples: &[Sample]) -> String {
    let heads = [
        "anonymous, MiB",
        "of it the index, MiB",
        "of files, MiB",
        "sockets",
        "files",
        "other descriptors",
        "threads",
        "disk, MiB",
        "events/s",
    ];
    let mut table = Table::new("sixth", heads);
    for part in 0..PARTS {
        let samples = part_of(samples, part);
        let of = |figure: &dyn Fn(&Sample) -> u64| median(samples.iter().map(figure));
        let held = |figure: fn(&Vitals) -> u64| of(&|sample| figure(&sample.vitals));
        let mib = |bytes: Option<f64>| bytes.map(|bytes| bytes / MIB);
        let rate = samples.first().zip(samples.last()).and_then(|(first, last)| {
            let seconds = last.seconds - first.seconds;
            (seconds > 0.0).then(|| (last.events - first.events) as f64 / seconds)
        });
        let cells = [
            mib(held(|vitals| vitals.anonymous)),
            mib(of(&|sample| sample.index)),
            mib(held(|vitals| vitals.of_files)),
            held(|vitals| vitals.sockets),
            held(|vitals| vitals.files),
            held(|vitals| vitals.others),
            held(|vitals| vitals.threads),
            mib(of(&|sample| sample.disk)),
            rate,
        ];
        let cell = |number: Option<f64>| {
            number.map_or(NOTHING.to_string(), |number| format!("{number:.0}"))
        };
        table.row(&(part + 1).to_string(), cells.map(cell));
    }
    table.text()
}

fn times(outcome: &Outcome) -> String {
    let parts: Vec<String> = (1..=outcome.windows.len()).map(|part| part.to_string()).collect();
    let heads = ["a second"].into_iter().chain(parts.iter().map(String::as_str));
    let mut table = Table::new("call", heads.chain(["longest"]));
    let ms = |micros: u32| figure(f64::from(micros) / 1000.0);
    for kind in ALL {
        let windows = || outcome.windows.iter().map(|windows| windows.get(&kind));
        let calls: u64 = windows().flatten().map(|window| window.calls).sum();
        let rate = calls as f64 / (outcome.minutes * 60) as f64;
        let cell = |window: Option<&Window>| match window {
            Some(window) => format!("{} / {}", ms(window.p50_us), ms(window.p99_us)),
            None => NOTHING.to_string(),
        };
        let longest = windows().flatten().map(|window| window.most_us).max();
        let cells = [figure(rate)].into_iter().chain(windows().map(cell));
        table.row(kind.name(), cells.chain([longest.map_or(NOTHING.to_string(), ms)]));
    }
    table.text()
}

/// The report for programs.
pub fn json(heading: &Heading<'_>, outcome: &Outcome) -> Value {
    let machine = heading.machine;
    json!({
        "date": machine.date,
        "commit": machine.commit,
        "processor": machine.processor,
        "threads": machine.threads,
        "memory_mib": machine.memory_mib,
        "kernel": machine.kernel,
        "file_system": machine.file_system,
        "loads_before": heading.loads_before,
        "loads_after": heading.loads_after,
        "minutes": outcome.minutes,
        "events_per_second": outcome.rate,
        "server_memory": outcome.memory,
        "passed": outcome.passed(),
        "checks": outcome.checks.iter().map(|check| json!({
            "what": check.what,
            "second_sixth": check.settled,
            "last_sixth": check.last,
            "at_most": check.most,
            "holds": check.holds,
        })).collect::<Vec<_>>(),
        "acknowledged": outcome.acknowledged,
        "found": outcome.found.events,
        "found_unacknowledged": outcome.found.unacknowledged,
        "found_others": outcome.found.others,
        "groups_sent": outcome.groups_sent.0,
        "groups_given": outcome.groups_sent.1,
        "stopped_in_seconds": outcome.stopped_in,
        "ended_with": outcome.ended_with,
        "started_in_seconds": outcome.started_in,
        "log_errors": outcome.log.0,
        "log_warnings": outcome.log.1,
        "wrong": outcome.wrong.0,
        "first_wrong": outcome.wrong.1,
        "calls": outcome.windows.iter().map(|windows| {
            let one = |window: &Window| json!({
                "calls": window.calls,
                "p50_us": window.p50_us,
                "p99_us": window.p99_us,
                "longest_us": window.most_us,
            });
            let all = windows.iter().map(|(kind, window)| (kind.name().to_string(), one(window)));
            Value::Object(all.collect())
        }).collect::<Vec<_>>(),
        "samples": outcome.samples.iter().map(|sample| json!({
            "seconds": sample.seconds,
            "events": sample.events,
            "disk": sample.disk,
            "index": sample.index,
            "anonymous": sample.vitals.anonymous,
            "of_files": sample.vitals.of_files,
            "threads": sample.vitals.threads,
            "sockets": sample.vitals.sockets,
            "files": sample.vitals.files,
            "others": sample.vitals.others,
        })).collect::<Vec<_>>(),
    })
}
