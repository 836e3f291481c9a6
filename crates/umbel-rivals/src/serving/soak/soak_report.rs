//! Report of the soak as Markdown and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::SoakOutcome;
use crate::kv::kv_report::markdown_table::{NO_VALUE, Table, figure};
use crate::serving::serving_report::ServingHeading;
use crate::serving::soak::call_times::CallWindow;
use crate::serving::soak::process_stats::ProcessStats;
use crate::serving::soak::resource_check::{PARTS, ProcessSample, ResourceCheck, median, part_of};
use crate::serving::soak::soak_plan::ALL;

const MIB: f64 = (1 << 20) as f64;

const WHAT_IS_DONE: &str = "\
Clients of one program call one `umbel serve --insecure --durability buffered`, each worker over a \
connection of its own and at the rates in the second table: appends to new and to existing \
streams, with every kind of expected revision; batches; reads of streams, of all, and of missing \
streams; subscriptions and \
groups that are opened and left; connections; users; metadata; deletes. Two subscribers to all, \
one to every eighth stream, and two consumers of each of three groups stay from the first event \
to the last. Of the groups' events a hundredth is parked and replayed half a minute later, and a \
hundredth is retried. Every answer is checked. Readers in the order of all events check that each \
writer's events come once and in order. The server is stopped by SIGTERM while appends are in \
flight, is started again on its folder, and everything is read: acknowledged events must exist, \
once, in order; streams have their lengths; deleted ones are deleted; users and groups are as \
before.

Memory is the kernel's count of anonymous pages. Flat means: the median of the last \
sixth is at most a tenth and 32 MiB above that of the second sixth. For sockets and other \
descriptors it is a tenth and 16. For threads it is 4, or 44 in all, because at most 32 threads \
read the stores. For open files it is a tenth and 128, because the event log keeps the files of \
128 chunks open. The first sixth fills everything that has a bound. The index reports its share \
of the anonymous memory, which is within the budget.

By design these grow with the stored data, all within the budget that `--memory` sets or with a \
number of files: the block cache until it is full, indexes and filters of tables, the filter of \
existing streams (some 10 bits a stream), open files of tables and chunks, numbers of a view or a \
parked event in its stream. No memory may be kept for a connection, subscription, read or user \
that has ended.
";

/// Returns the report as a page of Markdown.
pub fn markdown(heading: &ServingHeading<'_>, outcome: &SoakOutcome) -> String {
    let machine = heading.machine;
    let mut page = format!("# Soak of the server, {}\n\n", machine.date);
    let load = |loads: Option<[f64; 3]>| {
        loads.map_or(NO_VALUE.to_string(), |loads| format!("{:.2}", loads[0]))
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
    page.push_str("\n## Resources of the server, medians of each sixth\n\n");
    page.push_str(&held(&outcome.samples));
    page.push_str("\n## Times of calls, ms, p50 / p99 of each sixth\n\n");
    page.push_str(&times(outcome));
    page
}

fn verdict(outcome: &SoakOutcome) -> String {
    let mut table = Table::new("what", ["second sixth", "last sixth", "at most", "holds"]);
    for check in &outcome.checks {
        let ResourceCheck { what, settled, last, limit, holds } = check;
        let cells = [settled, last, limit].map(|number| figure(*number));
        let holds = if *holds { "yes" } else { "**no**" };
        table.row(what, cells.into_iter().chain([holds.to_string()]));
    }
    let mut text = table.text();
    let found = outcome.found;
    let _ = writeln!(
        text,
        "\n{} events were acknowledged, {} exist after the restart, {} of them unacknowledged; \
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

fn held(samples: &[ProcessSample]) -> String {
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
        let of = |figure: &dyn Fn(&ProcessSample) -> u64| median(samples.iter().map(figure));
        let held = |figure: fn(&ProcessStats) -> u64| of(&|sample| figure(&sample.stats));
        let mib = |bytes: Option<f64>| bytes.map(|bytes| bytes / MIB);
        let rate = samples.first().zip(samples.last()).and_then(|(first, last)| {
            let seconds = last.seconds - first.seconds;
            (seconds > 0.0).then(|| (last.events - first.events) as f64 / seconds)
        });
        let cells = [
            mib(held(|stats| stats.anonymous)),
            mib(of(&|sample| sample.index)),
            mib(held(|stats| stats.of_files)),
            held(|stats| stats.sockets),
            held(|stats| stats.files),
            held(|stats| stats.others),
            held(|stats| stats.threads),
            mib(of(&|sample| sample.disk)),
            rate,
        ];
        let cell = |number: Option<f64>| {
            number.map_or(NO_VALUE.to_string(), |number| format!("{number:.0}"))
        };
        table.row(&(part + 1).to_string(), cells.map(cell));
    }
    table.text()
}

fn times(outcome: &SoakOutcome) -> String {
    let parts: Vec<String> = (1..=outcome.windows.len()).map(|part| part.to_string()).collect();
    let heads = ["a second"].into_iter().chain(parts.iter().map(String::as_str));
    let mut table = Table::new("call", heads.chain(["longest"]));
    let ms = |micros: u32| figure(f64::from(micros) / 1000.0);
    for kind in ALL {
        let windows = || outcome.windows.iter().map(|windows| windows.get(&kind));
        let calls: u64 = windows().flatten().map(|window| window.calls).sum();
        let rate = calls as f64 / (outcome.minutes * 60) as f64;
        let cell = |window: Option<&CallWindow>| match window {
            Some(window) => format!("{} / {}", ms(window.p50_us), ms(window.p99_us)),
            None => NO_VALUE.to_string(),
        };
        let longest = windows().flatten().map(|window| window.max_us).max();
        let cells = [figure(rate)].into_iter().chain(windows().map(cell));
        table.row(kind.name(), cells.chain([longest.map_or(NO_VALUE.to_string(), ms)]));
    }
    table.text()
}

/// Returns the report as JSON.
pub fn json(heading: &ServingHeading<'_>, outcome: &SoakOutcome) -> Value {
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
            "at_most": check.limit,
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
            let one = |window: &CallWindow| json!({
                "calls": window.calls,
                "p50_us": window.p50_us,
                "p99_us": window.p99_us,
                "longest_us": window.max_us,
            });
            let all = windows.iter().map(|(kind, window)| (kind.name().to_string(), one(window)));
            Value::Object(all.collect())
        }).collect::<Vec<_>>(),
        "samples": outcome.samples.iter().map(|sample| json!({
            "seconds": sample.seconds,
            "events": sample.events,
            "disk": sample.disk,
            "index": sample.index,
            "anonymous": sample.stats.anonymous,
            "of_files": sample.stats.of_files,
            "threads": sample.stats.threads,
            "sockets": sample.stats.sockets,
            "files": sample.stats.files,
            "others": sample.stats.others,
        })).collect::<Vec<_>>(),
    })
}
