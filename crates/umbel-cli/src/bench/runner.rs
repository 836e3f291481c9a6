//! Runs the benchmarks of a plan one after the other, on one folder.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use umbel::{Db, Env, Keyspace};

use super::flags::LineFormat;
use super::folder::{Folder, MARK};
use super::plan::{Step, Work};
use super::settings::Settings;
use super::summary::{Filters, story};
use super::tally::Counted;
use super::values::Pool;
use super::workers::Crew;
use super::{header, json as results, report, tables};
use crate::errors::{Failure, Outcome};
use crate::number;
use crate::output::{Output, note};
use crate::statistics;
use crate::store::refuse_file;

/// The keyspace that is measured, the one that the other commands use by default.
const KEYSPACE: &str = "default";

/// The opened store.
struct Store {
    db: Db,
    keyspace: Keyspace,
    opened: Duration,
    /// The number of the newest write when it was opened.
    first_sequence: u64,
}

/// One run.
pub struct Runner {
    settings: Settings,
    env: Env,
    output: Output,
    pool: Pool,
    seed: u64,
    clock_nanos: f64,
    filters: Filters,
    story: Vec<(&'static str, Counted)>,
    results: Vec<Value>,
    report_file: Option<ReportFile>,
    store: Option<Store>,
    // Last, so that the store is closed when the folder goes.
    folder: Folder,
}

impl Runner {
    /// Gets everything ready that may fail before the first benchmark.
    pub fn new(settings: Settings, db: Option<&Path>) -> Outcome<Runner> {
        let env = Env::system();
        let wall_micros = env.clock.wall_micros();
        let folder = match db {
            Some(path) => {
                refuse_file(path)?;
                Folder::named(path)
            }
            None if settings.use_existing_db => {
                return Err(Failure::usage(
                    "--use_existing_db needs to know which: name its folder with --db DIR",
                ));
            }
            None => Folder::temporary(settings.keep, wall_micros)?,
        };
        let report_file = match &settings.report_file {
            Some((path, interval)) => Some(ReportFile::create(path, *interval)?),
            None => None,
        };
        // fill100K brings its own size.
        let pool = Pool::new(settings.compression_ratio, settings.value_size.max(100_000));
        let seed = settings.seed.unwrap_or(wall_micros);
        let clock_nanos = header::clock_nanos(env.clock.as_ref());
        Ok(Runner {
            settings,
            env,
            output: Output::new(),
            pool,
            seed,
            clock_nanos,
            filters: Filters::default(),
            story: Vec::new(),
            results: Vec::new(),
            report_file,
            store: None,
            folder,
        })
    }

    /// Runs all steps and sums up.
    pub fn run(mut self, plan: &[Step]) -> Outcome<()> {
        self.introduce()?;
        if !self.settings.use_existing_db {
            self.folder.clear(&self.settings.options)?;
        }
        for step in plan {
            self.step(step)?;
        }
        self.conclude()
    }

    fn introduce(&mut self) -> Outcome<()> {
        note(&header::environment(self.env.clock.as_ref(), self.clock_nanos));
        let removed = if self.folder.is_removed_at_end() { ", removed at the end" } else { "" };
        note(&format!("Folder:     {}{removed}", self.folder.path().display()));
        if self.settings.tour {
            note(
                "Tour:       no --benchmarks were named, so here is a tour; \
                 `umbel bench --help` lists them all",
            );
        }
        if self.settings.format == LineFormat::Rocksdb && self.settings.seed.is_none() {
            let text = format!("Set seed to {} because --seed was 0\n", self.seed);
            self.print(&text)?;
        }
        let text = header::workload(&self.settings);
        self.print(&text)
    }

    /// Text for people: standard output, or standard error where that is for JSON.
    fn print(&mut self, text: &str) -> Outcome<()> {
        if self.settings.json {
            note(text.strip_suffix('\n').unwrap_or(text));
            return Ok(());
        }
        self.output.bytes(text.as_bytes())?;
        self.output.flush()
    }

    fn step(&mut self, step: &Step) -> Outcome<()> {
        if step.fresh && self.settings.use_existing_db {
            self.results.push(results::skipped(step.name));
            return self.print(&report::skipped(step.name));
        }
        if step.name == "crc32c" {
            note("umbel: note: crc32c measures XXH3-64, the checksum that Umbel's files have");
        }
        if self.settings.format == LineFormat::Rocksdb && step.work.has_result_line() {
            let text = format!("DB path: [{}]\n", self.folder.path().display());
            self.print(&text)?;
        }
        let mut repeats = report::Repeats::default();
        for run in 0..step.warmups + step.repeats {
            if step.fresh {
                self.leave_store()?;
                self.folder.clear(&self.settings.options)?;
            }
            if run < step.warmups {
                let _warmup = self.once(step)?;
                continue;
            }
            let Some(counted) = self.once(step)? else { return Ok(()) };
            let text = report::result(self.settings.format, step.name, &counted);
            self.print(&text)?;
            repeats.add(&counted);
            if let Some(line) = repeats.so_far(step.name, self.settings.confidence_interval_only) {
                self.print(&line)?;
            }
            self.results.push(results::result(step.name, &counted));
            self.story.push((step.name, counted));
        }
        match repeats.all(step.name) {
            Some(lines) if !self.settings.confidence_interval_only => self.print(&lines),
            _ => Ok(()),
        }
    }

    /// One run of a step; `None` where it prints something else than a result line.
    fn once(&mut self, step: &Step) -> Outcome<Option<Counted>> {
        match step.work {
            Work::Stats | Work::LevelStats => self.print_table(step.work).map(|()| None),
            Work::WaitForCompaction => self.wait_for_compaction().map(|()| None),
            Work::Open => self.reopen(step.num).map(Some),
            Work::Verify => self.verify().map(Some),
            _ => self.measure(step).map(Some),
        }
    }

    fn measure(&mut self, step: &Step) -> Outcome<Counted> {
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
        let Some(store) = &self.store else { return Err(closed()) };
        let mut crew = Crew {
            settings: &self.settings,
            env: &self.env,
            db: &store.db,
            keyspace: &store.keyspace,
            pool: &self.pool,
            seed,
            on_progress: &mut on_progress,
        };
        let counted = crew.run(step);
        self.report_file = report_file;
        counted
    }

    fn open_store(&mut self) -> Outcome<()> {
        if self.store.is_some() {
            return Ok(());
        }
        let path = self.folder.path();
        let mut options = self.settings.options.clone();
        options.create_if_missing = !self.settings.use_existing_db;
        let db = Db::open(path, options)?;
        if !self.settings.use_existing_db {
            db.keyspace(MARK, self.settings.keyspace.clone())?;
        }
        let keyspace = db.keyspace(KEYSPACE, self.settings.keyspace.clone())?;
        let first_sequence = db.stats().last_sequence;
        self.store = Some(Store { db, keyspace, opened: self.env.clock.now(), first_sequence });
        Ok(())
    }

    /// Closes the store, after taking what its filters did.
    fn leave_store(&mut self) -> Outcome<()> {
        let Some(Store { db, keyspace, .. }) = self.store.take() else { return Ok(()) };
        self.filters.add(&keyspace.stats());
        drop(keyspace);
        Ok(db.close()?)
    }

    fn print_table(&mut self, work: Work) -> Outcome<()> {
        self.open_store()?;
        let Some(store) = &self.store else { return Err(closed()) };
        let keyspace = store.keyspace.stats();
        let text = match work {
            Work::LevelStats => tables::level_stats(&keyspace),
            _ => {
                let stats = store.db.stats();
                let session = tables::Session {
                    seconds: self.env.clock.now().saturating_sub(store.opened).as_secs_f64(),
                    writes: stats.last_sequence.saturating_sub(store.first_sequence),
                };
                tables::stats(self.settings.format, &stats, &keyspace, session)
            }
        };
        self.print(&format!("\n{text}\n"))
    }

    fn wait_for_compaction(&mut self) -> Outcome<()> {
        self.open_store()?;
        let path = self.folder.path().display().to_string();
        self.print(&format!("waitforcompaction({path}): started\n"))?;
        let Some(store) = &self.store else { return Err(closed()) };
        store.db.wait_for_compaction()?;
        self.print(&format!("waitforcompaction({path}): finished\n"))
    }

    fn verify(&mut self) -> Outcome<Counted> {
        self.open_store()?;
        let start = self.env.clock.now();
        let Some(store) = &self.store else { return Err(closed()) };
        let report = store.db.verify()?;
        if let Some(damage) = report.damage.first() {
            return Err(Failure::Damaged(format!(
                "verify found damage in {} of {} tables, first: {damage}",
                report.damage.len(),
                report.tables
            )));
        }
        Ok(Counted {
            bytes: report.bytes,
            message: format!(
                "({} tables, {} entries, no damage)",
                number::grouped(report.tables),
                number::grouped(report.entries)
            ),
            ..self.timed(start, 1)
        })
    }

    /// Closes and opens the store, as often as LevelDB does.
    fn reopen(&mut self, num: u64) -> Outcome<Counted> {
        self.open_store()?;
        let count = (num / 10_000).max(1);
        let start = self.env.clock.now();
        for _ in 0..count {
            self.leave_store()?;
            self.open_store()?;
        }
        Ok(self.timed(start, count))
    }

    fn timed(&self, start: Duration, done: u64) -> Counted {
        let end = self.env.clock.now();
        let seconds = end.saturating_sub(start).as_secs_f64();
        Counted { done, seconds, start, end, ..Counted::default() }
    }

    fn conclude(mut self) -> Outcome<()> {
        let stats = self.store.as_ref().map(|store| store.db.stats());
        self.leave_store()?;
        if let (true, Some(stats)) = (self.settings.statistics, &stats) {
            let text = format!("STATISTICS:\n{}\n", stats.to_string().trim_end());
            self.print(&text)?;
        }
        let mut text = self.filters.text();
        if self.settings.tour {
            text.push_str(&story(&self.settings, &self.story, &self.filters));
        }
        self.print(&text)?;
        if self.settings.json {
            let object = json!({
                "version": env!("CARGO_PKG_VERSION"),
                "date": header::date(self.env.clock.wall_micros() / 1_000_000),
                "settings": results::settings(&self.settings),
                "clock_ns": self.clock_nanos,
                "results": self.results,
                "filters": results::filters(&self.filters),
                "stats": stats.as_ref().map(statistics::to_json),
            });
            self.output.json(&object)?;
        }
        self.output.flush()
    }
}

fn closed() -> Failure {
    Failure::Store(umbel::Error::Closed)
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
    fn create(path: &Path, interval: Duration) -> Outcome<ReportFile> {
        let create = || {
            let mut file = File::create(path)?;
            writeln!(file, "secs_elapsed,interval_qps")?;
            Ok(file)
        };
        let file = create().map_err(|error| Failure::system("write", path, &error))?;
        Ok(ReportFile { file, interval, start: None, due: interval, reported: 0 })
    }

    /// A benchmark starts; its operations count from zero. Times go on.
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
