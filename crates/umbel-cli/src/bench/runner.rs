//! Runs the benchmarks of a plan one after the other, on one directory.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use umbel::{Db, Env, Keyspace};

use super::bench_settings::Settings;
use super::run_header;
use crate::bench::bench_flags::LineFormat;
use crate::bench::benchmark_plan::{BenchmarkKind, BenchmarkStep};
use crate::bench::filter_summary::{FilterTotals, tour_summary};
use crate::bench::store_directory::{MARKER_KEYSPACE, StoreDirectory};
use crate::bench::thread_stats::BenchmarkTotals;
use crate::bench::value_generator::ValuePool;
use crate::bench::worker_pool::WorkerPool;
use crate::bench::{result_lines, results_json as results, stats_tables};
use crate::errors::{CommandError, CommandResult};
use crate::io::output::{Output, note};
use crate::open_kv_store::refuse_file;
use crate::stats_json;
use crate::text::numbers;

/// Name of the measured keyspace, which is the default keyspace of other commands.
const KEYSPACE: &str = "default";

/// The opened store.
struct OpenStore {
    db: Db,
    keyspace: Keyspace,
    opened: Duration,
    /// Sequence number of the newest write when the store was opened.
    first_sequence: u64,
}

/// One run of `umbel bench`.
pub struct Runner {
    settings: Settings,
    env: Env,
    output: Output,
    pool: ValuePool,
    seed: u64,
    clock_nanos: f64,
    filters: FilterTotals,
    tour_results: Vec<(&'static str, BenchmarkTotals)>,
    results: Vec<Value>,
    report_file: Option<ReportFile>,
    store: Option<OpenStore>,
    // Last, so that the store is closed when the directory goes.
    directory: StoreDirectory,
}

impl Runner {
    /// Prepares a run: does every step that can fail before the first benchmark.
    pub fn new(settings: Settings, db: Option<&Path>) -> CommandResult<Runner> {
        let env = Env::system();
        let wall_micros = env.clock.wall_micros();
        let directory = match db {
            Some(path) => {
                refuse_file(path)?;
                StoreDirectory::named(path)
            }
            None if settings.use_existing_db => {
                return Err(CommandError::usage(
                    "--use_existing_db needs a store: name its directory with --db DIR",
                ));
            }
            None => StoreDirectory::temporary(settings.keep, wall_micros)?,
        };
        let report_file = match &settings.report_file {
            Some((path, interval)) => Some(ReportFile::create(path, *interval)?),
            None => None,
        };
        // fill100K brings its own size.
        let pool = ValuePool::new(settings.compression_ratio, settings.value_size.max(100_000));
        let seed = settings.seed.unwrap_or(wall_micros);
        let clock_nanos = run_header::clock_nanos(env.clock.as_ref());
        Ok(Runner {
            settings,
            env,
            output: Output::new(),
            pool,
            seed,
            clock_nanos,
            filters: FilterTotals::default(),
            tour_results: Vec::new(),
            results: Vec::new(),
            report_file,
            store: None,
            directory,
        })
    }

    /// Runs all steps and prints the summary.
    pub fn run(mut self, plan: &[BenchmarkStep]) -> CommandResult<()> {
        self.print_header()?;
        if !self.settings.use_existing_db {
            self.directory.clear(&self.settings.options)?;
        }
        for step in plan {
            self.run_step(step)?;
        }
        self.print_summary()
    }

    fn print_header(&mut self) -> CommandResult<()> {
        note(&run_header::environment(self.env.clock.as_ref(), self.clock_nanos));
        let removed = if self.directory.is_removed_at_end() { ", removed at the end" } else { "" };
        note(&format!("Directory:  {}{removed}", self.directory.path().display()));
        if self.settings.tour {
            note(
                "Tour:       default benchmarks, because --benchmarks is not given; \
                 `umbel bench --help` lists all",
            );
        }
        if self.settings.format == LineFormat::Rocksdb && self.settings.seed.is_none() {
            let text = format!("Set seed to {} because --seed was 0\n", self.seed);
            self.print(&text)?;
        }
        let text = run_header::workload(&self.settings);
        self.print(&text)
    }

    /// Prints text for people: to standard output, or to standard error if standard output is for
    /// JSON.
    fn print(&mut self, text: &str) -> CommandResult<()> {
        if self.settings.json {
            note(text.strip_suffix('\n').unwrap_or(text));
            return Ok(());
        }
        self.output.bytes(text.as_bytes())?;
        self.output.flush()
    }

    fn run_step(&mut self, step: &BenchmarkStep) -> CommandResult<()> {
        if step.needs_fresh_store && self.settings.use_existing_db {
            self.results.push(results::skipped(step.name));
            return self.print(&result_lines::skipped_line(step.name));
        }
        if step.name == "crc32c" {
            note("umbel: note: crc32c measures XXH3-64, the checksum of Umbel's files");
        }
        if self.settings.format == LineFormat::Rocksdb && step.kind.has_result_line() {
            let text = format!("DB path: [{}]\n", self.directory.path().display());
            self.print(&text)?;
        }
        let mut repeats = result_lines::RepeatStats::default();
        for run in 0..step.warmups + step.repeats {
            if step.needs_fresh_store {
                self.close_store()?;
                self.directory.clear(&self.settings.options)?;
            }
            if run < step.warmups {
                let _warmup = self.run_once(step)?;
                continue;
            }
            let Some(counted) = self.run_once(step)? else { return Ok(()) };
            let text = result_lines::result_text(self.settings.format, step.name, &counted);
            self.print(&text)?;
            repeats.add(&counted);
            if let Some(line) =
                repeats.progress_line(step.name, self.settings.confidence_interval_only)
            {
                self.print(&line)?;
            }
            self.results.push(results::result(step.name, &counted));
            self.tour_results.push((step.name, counted));
        }
        match repeats.summary_lines(step.name) {
            Some(lines) if !self.settings.confidence_interval_only => self.print(&lines),
            _ => Ok(()),
        }
    }

    /// Runs a step once; returns `None` if the step prints other text than a result line.
    fn run_once(&mut self, step: &BenchmarkStep) -> CommandResult<Option<BenchmarkTotals>> {
        match step.kind {
            BenchmarkKind::Stats | BenchmarkKind::LevelStats => {
                self.print_table(step.kind).map(|()| None)
            }
            BenchmarkKind::WaitForCompaction => self.wait_for_compaction().map(|()| None),
            BenchmarkKind::Open => self.reopen(step.num).map(Some),
            BenchmarkKind::Verify => self.verify().map(Some),
            _ => self.measure(step).map(Some),
        }
    }

    fn measure(&mut self, step: &BenchmarkStep) -> CommandResult<BenchmarkTotals> {
        self.open_store()?;
        let seed = self.seed;
        self.seed = self.seed.wrapping_add(1 + self.settings.threads as u64);
        let env = self.env.clone();
        let mut report_file = self.report_file.take();
        if let Some(file) = &mut report_file {
            file.start(env.clock.now());
        }
        let mut on_progress = |done| {
            if let Some(file) = &mut report_file {
                file.note(env.clock.now(), done);
            }
        };
        let Some(store) = &self.store else { return Err(store_closed_error()) };
        let mut workers = WorkerPool {
            settings: &self.settings,
            env: &self.env,
            db: &store.db,
            keyspace: &store.keyspace,
            pool: &self.pool,
            seed,
            on_progress: &mut on_progress,
        };
        let counted = workers.run(step);
        self.report_file = report_file;
        counted
    }

    fn open_store(&mut self) -> CommandResult<()> {
        if self.store.is_some() {
            return Ok(());
        }
        let path = self.directory.path();
        let mut options = self.settings.options.clone();
        options.create_if_missing = !self.settings.use_existing_db;
        let db = Db::open(path, options)?;
        if !self.settings.use_existing_db {
            db.keyspace(MARKER_KEYSPACE, self.settings.keyspace.clone())?;
        }
        let keyspace = db.keyspace(KEYSPACE, self.settings.keyspace.clone())?;
        let first_sequence = db.stats().last_sequence;
        self.store = Some(OpenStore { db, keyspace, opened: self.env.clock.now(), first_sequence });
        Ok(())
    }

    /// Adds the store's filter counts, then closes the store.
    fn close_store(&mut self) -> CommandResult<()> {
        let Some(OpenStore { db, keyspace, .. }) = self.store.take() else { return Ok(()) };
        self.filters.add(&keyspace.stats());
        drop(keyspace);
        Ok(db.close()?)
    }

    fn print_table(&mut self, work: BenchmarkKind) -> CommandResult<()> {
        self.open_store()?;
        let Some(store) = &self.store else { return Err(store_closed_error()) };
        let keyspace = store.keyspace.stats();
        let text = match work {
            BenchmarkKind::LevelStats => stats_tables::level_stats(&keyspace),
            _ => {
                let stats = store.db.stats();
                let session = stats_tables::SessionTotals {
                    seconds: self.env.clock.now().saturating_sub(store.opened).as_secs_f64(),
                    writes: stats.last_sequence.saturating_sub(store.first_sequence),
                };
                stats_tables::stats(self.settings.format, &stats, &keyspace, session)
            }
        };
        self.print(&format!("\n{text}\n"))
    }

    fn wait_for_compaction(&mut self) -> CommandResult<()> {
        self.open_store()?;
        let path = self.directory.path().display().to_string();
        self.print(&format!("waitforcompaction({path}): started\n"))?;
        let Some(store) = &self.store else { return Err(store_closed_error()) };
        store.db.wait_for_compaction()?;
        self.print(&format!("waitforcompaction({path}): finished\n"))
    }

    fn verify(&mut self) -> CommandResult<BenchmarkTotals> {
        self.open_store()?;
        let start = self.env.clock.now();
        let Some(store) = &self.store else { return Err(store_closed_error()) };
        let report = store.db.verify()?;
        if let Some(damage) = report.damage.first() {
            return Err(CommandError::Damaged(format!(
                "verify found damage in {} of {} tables, first: {damage}",
                report.damage.len(),
                report.tables
            )));
        }
        Ok(BenchmarkTotals {
            bytes: report.bytes,
            message: format!(
                "({} tables, {} entries, no damage)",
                numbers::grouped(report.tables),
                numbers::grouped(report.entries)
            ),
            ..self.timed_totals(start, 1)
        })
    }

    /// Closes and opens the store repeatedly, as often as LevelDB's benchmark `open` does.
    fn reopen(&mut self, num: u64) -> CommandResult<BenchmarkTotals> {
        self.open_store()?;
        let count = (num / 10_000).max(1);
        let start = self.env.clock.now();
        for _ in 0..count {
            self.close_store()?;
            self.open_store()?;
        }
        Ok(self.timed_totals(start, count))
    }

    fn timed_totals(&self, start: Duration, done: u64) -> BenchmarkTotals {
        let end = self.env.clock.now();
        let seconds = end.saturating_sub(start).as_secs_f64();
        BenchmarkTotals { done, seconds, start, end, ..BenchmarkTotals::default() }
    }

    fn print_summary(mut self) -> CommandResult<()> {
        let stats = self.store.as_ref().map(|store| store.db.stats());
        self.close_store()?;
        if let (true, Some(stats)) = (self.settings.statistics, &stats) {
            let text = format!("STATISTICS:\n{}\n", stats.to_string().trim_end());
            self.print(&text)?;
        }
        let mut text = self.filters.text();
        if self.settings.tour {
            text.push_str(&tour_summary(&self.settings, &self.tour_results, &self.filters));
        }
        self.print(&text)?;
        if self.settings.json {
            let object = json!({
                "version": env!("CARGO_PKG_VERSION"),
                "date": run_header::date(self.env.clock.wall_micros() / 1_000_000),
                "settings": results::settings(&self.settings),
                "clock_ns": self.clock_nanos,
                "results": self.results,
                "filters": results::filters(&self.filters),
                "stats": stats.as_ref().map(stats_json::to_json),
            });
            self.output.json(&object)?;
        }
        self.output.flush()
    }
}

fn store_closed_error() -> CommandError {
    CommandError::Store(umbel::Error::Closed)
}

/// `--report_file`: RocksDB's CSV of operations per interval.
struct ReportFile {
    file: File,
    interval: Duration,
    start: Option<Duration>,
    due: Duration,
    reported: u64,
}

impl ReportFile {
    fn create(path: &Path, interval: Duration) -> CommandResult<ReportFile> {
        let create = || {
            let mut file = File::create(path)?;
            writeln!(file, "secs_elapsed,interval_qps")?;
            Ok(file)
        };
        let file = create().map_err(|error| CommandError::system("write", path, &error))?;
        Ok(ReportFile { file, interval, start: None, due: interval, reported: 0 })
    }

    /// Starts a benchmark: its operations are counted from zero, but the report's times continue.
    fn start(&mut self, now: Duration) {
        let start = *self.start.get_or_insert(now);
        self.due = now.saturating_sub(start) + self.interval;
        self.reported = 0;
    }

    fn note(&mut self, now: Duration, done: u64) {
        let elapsed = now.saturating_sub(self.start.unwrap_or(now));
        if elapsed < self.due {
            return;
        }
        let seconds = elapsed.as_secs_f64().round();
        let operations = done.saturating_sub(self.reported);
        if let Err(error) = writeln!(self.file, "{seconds},{operations}") {
            note(&format!("umbel: could not write the report file: {error}"));
        }
        self.reported = done;
        self.due += self.interval;
    }
}
