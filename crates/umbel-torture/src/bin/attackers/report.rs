//! [`Report`]: the results as a Markdown page.

use std::fmt::Write;
use std::path::Path;

use umbel_lab::measure::machine::Machine;

use crate::busy_threads::{self, BusyThreads, STEP_US_MAX};
use crate::fsyncs::FsyncRates;
use crate::honest_client::Window;
use crate::server_process::MEMORY_MIB;
use crate::{ATTACKERS, READERS};

/// Memory that a server may take in addition to its store's budget, by docs/reference/server.md.
const SERVER_MIB: u64 = 2048;
/// Limits of the factors of the appends' p99, and of the health checks' p99 in microseconds.
const ATTACK_FACTOR_MAX: f64 = 5.0;
const READER_FACTOR_MAX: f64 = 3.0;
const HEALTH_US_MAX: u64 = 20_000;

/// An honest client beside idle and beside busy clients.
#[derive(Debug)]
pub struct Comparison {
    name: String,
    description: String,
    /// Windows beside idle connections.
    pub idle: Vec<Window>,
    /// Windows beside busy clients.
    pub busy: Vec<Window>,
}

impl Comparison {
    /// Creates a comparison without windows.
    pub fn new(name: &str, description: &str) -> Comparison {
        let (idle, busy) = (Vec::new(), Vec::new());
        Comparison { name: name.to_string(), description: description.to_string(), idle, busy }
    }

    fn append_us(windows: &[Window], percentile: f64) -> u64 {
        median(windows.iter().map(|it| quantile(&it.append_us, percentile)).collect())
    }

    fn factor(&self) -> f64 {
        let [idle, busy] = [&self.idle, &self.busy].map(|it| Comparison::append_us(it, 0.99));
        busy as f64 / idle.max(1) as f64
    }

    fn health_us(&self) -> u64 {
        median(self.busy.iter().map(|it| quantile(&it.health_us, 0.99)).collect())
    }

    fn busy_threads(&self) -> BusyThreads {
        busy_threads::sum(self.busy.iter().map(|it| &it.busy))
    }

    fn logins(&self) -> (usize, usize) {
        self.busy.iter().fold((0, 0), |sum, it| (sum.0 + it.logins.0, sum.1 + it.logins.1))
    }

    fn resident_mib(&self) -> u64 {
        self.busy.iter().map(|it| it.resident_bytes >> 20).max().unwrap_or(0)
    }

    fn failures(&self) -> usize {
        self.busy.iter().map(|it| it.failed_appends).sum()
    }

    /// The result as a row of the table.
    pub fn line(&self) -> String {
        let ms = |us: u64| format!("{:.2}", us as f64 / 1000.0);
        let times = |windows: &[Window]| {
            let [half, most] = [0.5, 0.99].map(|it| ms(Comparison::append_us(windows, it)));
            format!("{half} / {most}")
        };
        let (right, all) = self.logins();
        let mean = |of: fn(&Window) -> f64| {
            self.busy.iter().map(of).sum::<f64>() / self.busy.len().max(1) as f64
        };
        format!(
            "| {} | {} | {} | {:.1} | {} | {} / {} | {right} of {all} | {} | {} | {:.2} / {:.2} | \
             {} |",
            self.name,
            times(&self.idle),
            times(&self.busy),
            self.factor(),
            ms(self.health_us()),
            self.busy_threads().bound(),
            self.busy_threads().faults(),
            self.failures(),
            self.resident_mib(),
            mean(|it| it.processors.0),
            mean(|it| it.processors.1),
            self.busy.iter().map(|it| it.calls).sum::<u64>(),
        )
    }

    fn misses(&self, factor_max: f64) -> Option<String> {
        let (right, all) = self.logins();
        let mut misses = Vec::new();
        if self.factor() > factor_max {
            misses.push(format!("append p99 {:.1} times idle", self.factor()));
        }
        if self.health_us() > HEALTH_US_MAX && factor_max == READER_FACTOR_MAX {
            misses.push(format!("`/health/live` p99 {:.1} ms", self.health_us() as f64 / 1000.0));
        }
        let busy = self.busy_threads();
        if busy.faults() > 0 {
            let (faults, limit) = (busy.faults(), STEP_US_MAX / 1000);
            misses.push(format!("{faults} steps over {limit} ms ({} ms)", busy.bound()));
        }
        if right < all {
            misses.push(format!("{} logins failed", all - right));
        }
        if self.resident_mib() > MEMORY_MIB + SERVER_MIB {
            misses.push(format!("{} MiB", self.resident_mib()));
        }
        (!misses.is_empty()).then(|| format!("- {}: {}", self.name, misses.join(", ")))
    }
}

/// All results.
#[derive(Debug)]
pub struct Report {
    seconds: u64,
    rounds: usize,
    events: u64,
    /// Rates of synced appends.
    pub fsyncs: Option<FsyncRates>,
    /// Attacks.
    pub attacks: Vec<Comparison>,
    /// Readers of hidden events.
    pub readers: Vec<Comparison>,
}

const COLUMNS: &str = "\
append idle, ms p50 / p99 | beside, ms p50 / p99 | p99 factor | `/health/live` p99, ms | \
longest step, ms / steps over 2 ms | first logins | failed appends | RSS peak, MiB | processors of \
server / clients | their calls |";

impl Report {
    /// Creates an empty report.
    pub fn new(seconds: u64, rounds: usize, events: u64) -> Report {
        let (attacks, readers) = (Vec::new(), Vec::new());
        Report { seconds, rounds, events, fsyncs: None, attacks, readers }
    }

    /// The report as a Markdown page.
    pub fn markdown(&self) -> String {
        let mut page = String::from("# Hostile clients\n\n");
        let machine = Machine::detect(Path::new(".")).summary();
        let _ = writeln!(page, "{machine}. Appends are synced.\n");
        let _ = writeln!(
            page,
            "`cargo xtask attackers`. `umbel serve --disable-tls --kv --memory {MEMORY_MIB}MiB`, \
             an honest client and the other clients are processes on one machine. The others run \
             at the lowest priority (`nice -n 19`), as if on another machine, and share the \
             processors. The honest client appends one by one, checks `/health/live` every 20 ms, \
             and logs users in for the first time. Windows of {} s beside idle and beside busy \
             connections alternate. A step is one poll of a task, or one group of appends, in \
             processor time (`--measure-workers`); none may take over 2 ms.",
            self.seconds
        );
        if let Some(rates) = &self.fsyncs {
            self.write_fsyncs(&mut page, rates);
        }
        if !self.attacks.is_empty() {
            self.write_attacks(&mut page);
        }
        if !self.readers.is_empty() {
            let _ = writeln!(
                page,
                "\n## Readers of hidden events\n\n{READERS} clients of each call, over {} hidden \
                 events of each class, {} rounds. Limits: append p99 {READER_FACTOR_MAX} \
                 times idle, `/health/live` p99 20 ms.\n\n| class, call | {COLUMNS}\n{}",
                self.events,
                self.rounds,
                separator()
            );
            write_rows(&mut page, &self.readers, READER_FACTOR_MAX);
        }
        page
    }

    fn write_fsyncs(&self, page: &mut String, rates: &FsyncRates) {
        let FsyncRates { bare, one, many, rounds } = rates;
        let share = |rate: u64| rate as f64 / (*bare).max(1) as f64;
        let _ = writeln!(
            page,
            "\n## Synced appends beside bare fsyncs\n\nRates a second, medians of {} rounds of 1 \
             s in turns. A bare fsync writes 150 bytes to an allocated file and waits for \
             `fdatasync`.\n\n| | rate | beside bare fsyncs |\n|---|--:|--:|\n| bare fsyncs | \
             {bare} | 1 |\n| appends one by one | {one} | {:.2} |\n| 64 appends in flight, 8 \
             connections | {many} | {:.2} |",
            rounds.len(),
            share(*one),
            share(*many)
        );
    }

    fn write_attacks(&self, page: &mut String) {
        let _ = writeln!(
            page,
            "\n## Attacks\n\n{ATTACKERS} attackers of each kind, {} rounds, a server for each \
             kind. Limits: append p99 {ATTACK_FACTOR_MAX} times idle, all logins, and {} MiB: the \
             store's budget and [2 GiB](../reference/server.md#attacks).\n\n| attack | \
             {COLUMNS}\n{}",
            self.rounds,
            MEMORY_MIB + SERVER_MIB,
            separator()
        );
        write_rows(page, &self.attacks, ATTACK_FACTOR_MAX);
        page.push_str("\n| attack | each attacker does in a loop |\n|---|---|\n");
        for row in &self.attacks {
            let _ = writeln!(page, "| {} | {} |", row.name, row.description);
        }
    }
}

fn separator() -> String {
    format!("|---|{}", "--:|".repeat(10))
}

fn write_rows(page: &mut String, rows: &[Comparison], factor_max: f64) {
    for row in rows {
        let _ = writeln!(page, "{}", row.line());
    }
    let misses: Vec<String> = rows.iter().filter_map(|row| row.misses(factor_max)).collect();
    let _ = match misses.is_empty() {
        true => writeln!(page, "\nAll are within the limits."),
        false => writeln!(page, "\nOver the limits:\n\n{}", misses.join("\n")),
    };
}

/// The median of some numbers.
pub fn median(numbers: Vec<u64>) -> u64 {
    quantile(&numbers, 0.5)
}

fn quantile(numbers: &[u64], share: f64) -> u64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}
