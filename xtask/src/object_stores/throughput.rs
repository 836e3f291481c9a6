//! Throughput of backups into an object store and of restores, beside plain transfers of the same
//! files, and of appends beside a backup.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use crate::checkout::file_tree;
use crate::clients::client_programs::Server;
use crate::object_stores::append_load::{self, AppendLoad};
use crate::object_stores::campaign;
use crate::object_stores::measured_run::{self, MeasuredRun, Usage};
use crate::object_stores::store_kind::StoreKind;
use crate::object_stores::store_process::StoreProcess;
use crate::object_stores::throughput_report::{self, AppendResult, RoundResult, ThroughputReport};
use crate::tools::built_programs;
use crate::tools::check_steps::{CheckReport, StepOutcome, now};

/// First port of the object store, which uses some ports after it.
const PORT: u16 = 18_433;
/// Characters of an event's data.
const EVENT_CHARACTERS: usize = 1_000_000;
/// Events of each gigabyte, some more than needed.
const EVENTS_PER_GIGABYTE: f64 = 1030.0;
/// Streams of the store.
const STREAMS: u64 = 16;
/// Copies of the store on disk at the end of a round: the store itself, two in the object store
/// and one download or restore.
const COPIES_MAX: u64 = 4;
/// Free bytes beyond the copies: appends, logs and what the object store keeps free.
const SPARE_BYTES: u64 = 4_000_000_000;
/// Letters of random text, 64 of them.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Clients that append beside a backup.
const APPEND_CLIENTS: usize = 4;
/// Seconds of a measurement of appends.
const APPEND_SECONDS: u64 = 20;
/// File system in memory.
const MEMORY_FILES: &str = "/dev/shm";
/// Time of appends before a measurement.
const WARM_UP: Duration = Duration::from_secs(3);
/// Time until a backup must have uploaded its first object.
const FIRST_UPLOAD_SECONDS_MAX: u32 = 180;

/// Arguments of `cargo xtask objects --throughput`.
#[derive(Debug, Clone, PartialEq)]
pub struct ThroughputOptions {
    /// Size of the store.
    gigabytes: f64,
    /// Rounds of transfers.
    rounds: u32,
    /// Pairs of measurements of appends.
    append_pairs: u32,
    /// Path of the report; `None` is the one of today in `docs/lab`.
    report: Option<PathBuf>,
}

impl ThroughputOptions {
    /// Usage of the arguments.
    pub const USAGE: &'static str =
        "--throughput [--gigabytes N] [--rounds N] [--append-pairs N] [--report FILE]";

    /// Parses the arguments after `--throughput`.
    ///
    /// # Errors
    /// An argument is unknown, or its value is missing or wrong.
    pub fn parse(arguments: &[&str]) -> Result<ThroughputOptions, String> {
        let mut options =
            ThroughputOptions { gigabytes: 10.0, rounds: 2, append_pairs: 4, report: None };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let value = rest.next();
            match *argument {
                "--gigabytes" => {
                    let number = value.and_then(|value| value.parse::<f64>().ok());
                    options.gigabytes = number
                        .filter(|number| (0.01..=10_000.0).contains(number))
                        .ok_or("--gigabytes needs a number from 0.01 to 10000")?;
                }
                "--rounds" => options.rounds = repetitions("--rounds", value)?,
                "--append-pairs" => {
                    options.append_pairs = repetitions("--append-pairs", value)?;
                }
                "--report" => {
                    let path = value.map(PathBuf::from);
                    options.report = Some(path.ok_or("--report needs the path of a file")?);
                }
                unknown => {
                    return Err(format!(
                        "unknown argument `{unknown}`; use {}",
                        ThroughputOptions::USAGE
                    ));
                }
            }
        }
        Ok(options)
    }

    fn events(&self) -> u64 {
        (self.gigabytes * EVENTS_PER_GIGABYTE).ceil() as u64
    }

    fn free_bytes_needed(&self) -> u64 {
        self.events() * EVENT_CHARACTERS as u64 * COPIES_MAX + SPARE_BYTES
    }

    fn report_path(&self) -> PathBuf {
        self.report.clone().unwrap_or_else(|| {
            let name = format!("docs/lab/objects-throughput-{}.md", throughput_report::today());
            file_tree::root().join(name)
        })
    }
}

/// Parses a number of repetitions.
fn repetitions(name: &str, value: Option<&&str>) -> Result<u32, String> {
    let number = value.and_then(|value| value.parse().ok()).filter(|number| *number <= 100);
    number.ok_or_else(|| format!("{name} needs a whole number up to 100"))
}

/// Measures everything, as steps of a report, and writes the page after each step. A limit that is
/// not met is a result, and fails no step.
/// REQUIRES: the release build has `umbel`.
pub fn measure(report: &mut CheckReport, options: &ThroughputOptions) {
    let folder = built_programs::target().join("objects-throughput");
    measure_in(&folder, report, options);
    // The next run removes files that remain.
    fs::remove_dir_all(&folder).ok();
}

fn measure_in(folder: &Path, report: &mut CheckReport, options: &ThroughputOptions) {
    let mut made = None;
    report.step("a store", || {
        outcome(Throughput::prepare(folder, options).map(|throughput| made = Some(throughput)))
    });
    let Some(mut throughput) = made else { return };
    let path = options.report_path();
    for round in 1..=options.rounds {
        report.step(&format!("round {round}"), || {
            outcome(throughput.run_round(round).and_then(|()| throughput.results.write(&path)))
        });
    }
    for pair in 1..=options.append_pairs {
        report.step(&format!("appends, pair {pair}"), || {
            outcome(throughput.run_appends(pair).and_then(|()| throughput.results.write(&path)))
        });
    }
    println!("the report is {}", path.display());
}

fn outcome(result: Result<(), String>) -> StepOutcome {
    if let Err(reason) = &result {
        println!("   {reason}");
    }
    StepOutcome::of(result.is_ok())
}

/// An event store whose backups are measured.
struct Throughput {
    folder: PathBuf,
    results: ThroughputReport,
}

impl Throughput {
    /// Makes the store. Fails before that if the disk has not enough free space.
    fn prepare(folder: &Path, options: &ThroughputOptions) -> Result<Throughput, String> {
        if folder.exists() {
            remove(folder)?;
        }
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let (free, needed) = (measured_run::free_bytes(folder)?, options.free_bytes_needed());
        if free < needed {
            return Err(format!(
                "{} has {:.1} GB free, and {:.1} GB are needed: {COPIES_MAX} copies of the store, \
                 and {:.1} GB; use a smaller --gigabytes, or another CARGO_TARGET_DIR",
                folder.display(),
                free as f64 / 1e9,
                needed as f64 / 1e9,
                SPARE_BYTES as f64 / 1e9
            ));
        }
        let results = ThroughputReport {
            arguments: format!(
                "--throughput --gigabytes {} --rounds {} --append-pairs {}",
                options.gigabytes, options.rounds, options.append_pairs
            ),
            object_store: StoreKind::SeaweedFs.name(),
            umbel: version()?,
            is_cache_dropped: true,
            append_clients: APPEND_CLIENTS,
            append_seconds: APPEND_SECONDS,
            ..ThroughputReport::default()
        };
        let mut throughput = Throughput { folder: folder.to_path_buf(), results };
        fill(&throughput.source(), options.events())?;
        throughput.measure_size()?;
        Ok(throughput)
    }

    fn source(&self) -> PathBuf {
        self.folder.join("source")
    }

    fn chunks(&self) -> PathBuf {
        self.source().join("log")
    }

    fn measure_size(&mut self) -> Result<(), String> {
        let (chunks, store_bytes) = self.chunk_sizes()?;
        println!("   {:.2} GB in {chunks} chunks", store_bytes as f64 / 1e9);
        (self.results.chunks, self.results.store_bytes) = (chunks, store_bytes);
        Ok(())
    }

    /// Returns the number of chunk files and their bytes.
    fn chunk_sizes(&self) -> Result<(usize, u64), String> {
        let folder = self.chunks();
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        let (mut chunks, mut bytes) = (0, 0);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.path().extension().is_some_and(|extension| extension == "chunk") {
                chunks += 1;
                bytes += entry.metadata().map_err(failed)?.len();
            }
        }
        Ok((chunks, bytes))
    }

    /// Measures everything once, in an object store that is empty before and removed after. Every
    /// second round begins with Umbel.
    fn run_round(&mut self, number: u32) -> Result<(), String> {
        let store = self.start_store()?;
        let mut round = RoundResult::default();
        if number.is_multiple_of(2) {
            self.back_up(&store, &mut round)?;
            self.upload(&store, &mut round)?;
            self.restore(&store, &mut round)?;
            self.download(&store, &mut round)?;
        } else {
            self.upload(&store, &mut round)?;
            self.back_up(&store, &mut round)?;
            self.download(&store, &mut round)?;
            self.restore(&store, &mut round)?;
        }
        self.results.rounds.push(round);
        drop(store);
        self.remove_copies()
    }

    /// Starts an empty object store.
    fn start_store(&self) -> Result<StoreProcess, String> {
        // A round that failed leaves its copies.
        self.remove_copies()?;
        StoreProcess::start(StoreKind::SeaweedFs, &self.folder.join("server"), PORT)
    }

    /// Removes everything but the event store.
    fn remove_copies(&self) -> Result<(), String> {
        let copies = ["server", "downloaded", "restored"].map(|name| self.folder.join(name));
        copies.iter().filter(|copy| copy.exists()).try_for_each(|copy| remove(copy))
    }

    fn upload(&mut self, store: &StoreProcess, round: &mut RoundResult) -> Result<(), String> {
        self.drop_page_cache();
        let run = MeasuredRun::transfer(store, "upload", "plain", &self.chunks())?;
        self.check_size("upload", &run)?;
        self.results.client = run.setting("client").unwrap_or_default().to_string();
        round.upload = show("plain upload", run.usage);
        Ok(())
    }

    fn back_up(&mut self, store: &StoreProcess, round: &mut RoundResult) -> Result<(), String> {
        self.drop_page_cache();
        let (source, url) = (self.source(), format!("{}/backup", store.url));
        let to = ["--db", path_text(&source)?, "backup", "--to", &url, "--json"];
        let run = MeasuredRun::umbel(store, &to)?;
        let printed = |name| campaign::number(&run.output, name).unwrap_or(0);
        round.backup_position = printed("position");
        round.backup_bytes = printed("uploaded_bytes");
        round.backup = show("backup with its probe", run.usage);
        self.drop_page_cache();
        let url = format!("{}/probe", store.url);
        let probe = MeasuredRun::umbel(store, &["store", "probe", &url])?;
        round.probe = show("probe alone", probe.usage);
        Ok(())
    }

    fn download(&mut self, store: &StoreProcess, round: &mut RoundResult) -> Result<(), String> {
        self.drop_page_cache();
        let target = self.folder.join("downloaded");
        let run = MeasuredRun::transfer(store, "download", "plain", &target)?;
        self.check_size("download", &run)?;
        round.synced_download_seconds = run.number("synced_seconds")?;
        round.download = show("plain download", run.usage);
        remove(&target)
    }

    fn restore(&mut self, store: &StoreProcess, round: &mut RoundResult) -> Result<(), String> {
        self.drop_page_cache();
        let (target, url) = (self.folder.join("restored"), format!("{}/backup", store.url));
        let from = ["restore", "--from", &url, "--db", path_text(&target)?, "--json"];
        let run = MeasuredRun::umbel(store, &from)?;
        let position = campaign::number(&run.output, "position").unwrap_or(0);
        if position != round.backup_position || position == 0 {
            let backed_up = round.backup_position;
            return Err(format!("restored up to {position}, but {backed_up} was backed up"));
        }
        round.restore = show("restore", run.usage);
        remove(&target)
    }

    fn check_size(&self, name: &str, run: &MeasuredRun) -> Result<(), String> {
        let (copied, wanted) = (run.number("bytes")?, self.results.store_bytes);
        match copied as u64 == wanted {
            true => Ok(()),
            false => Err(format!("the {name} copied {copied} of {wanted} bytes")),
        }
    }

    fn drop_page_cache(&mut self) {
        self.results.is_cache_dropped &= drop_page_cache();
    }

    /// Measures appends without a backup and beside the first backup into an empty object store.
    /// Each second pair begins beside the backup. The object store takes as little as possible from
    /// the appends: it has the lowest priority, and its files are in memory.
    fn run_appends(&mut self, pair: u32) -> Result<(), String> {
        self.remove_copies()?;
        let folder = MemoryFolder::create(self.results.store_bytes)?;
        let store = StoreProcess::start_idle(StoreKind::SeaweedFs, &folder.0, PORT)?;
        let url = format!("{}/backup", store.url);
        let mut window = |name: &str, url: Option<&str>| {
            self.drop_page_cache();
            let window = self.append(&store, url)?;
            println!("   {name}: {:.0} events/s", window.rate);
            Ok::<_, String>(window)
        };
        let (alone, beside) = match pair.is_multiple_of(2) {
            true => {
                let beside = window("beside a backup", Some(&url))?;
                (window("alone", None)?, beside)
            }
            false => (window("alone", None)?, window("beside a backup", Some(&url))?),
        };
        self.results.appends.push(AppendResult {
            rate_alone: alone.rate,
            rate_beside_backup: beside.rate,
            uploaded_bytes: beside.uploaded_bytes,
            store_processors: beside.store_processors,
            is_beside_whole_window: beside.is_backup_unfinished,
        });
        Ok(())
    }

    fn append(&self, store: &StoreProcess, url: Option<&str>) -> Result<AppendWindow, String> {
        let server = Server::start(&self.source(), |command| {
            command.args(["--insecure", "--durability", "synced"]).stderr(Stdio::null());
            if let Some(url) = url {
                command.args(["--backup-to", url]);
            }
            command.envs(store.variables.iter().map(|(name, value)| (name, value)))
        })?;
        let measured = self.append_at(&server, store, url.is_some());
        let stopped = server.stop();
        match stopped.counts.failed {
            0 => measured,
            _ => measured.and(Err("`umbel serve` failed on SIGTERM".to_string())),
        }
    }

    fn append_at(
        &self,
        server: &Server,
        store: &StoreProcess,
        is_backed_up: bool,
    ) -> Result<AppendWindow, String> {
        let port = server.port().ok_or("`umbel serve` printed no port")?;
        let uploaded = || append_load::metric(port, "umbel_object_backup_uploaded_bytes_total");
        let mut load = AppendLoad::start(&server.connection, APPEND_CLIENTS)?;
        campaign::pause(WARM_UP);
        if is_backed_up {
            wait_for_upload(uploaded)?;
        }
        let (start, events, bytes) = (now(), load.acknowledged(), uploaded()?);
        let used = store.processor_seconds();
        campaign::pause(Duration::from_secs(APPEND_SECONDS));
        let used = store.processor_seconds().zip(used).map(|(end, start)| end - start);
        let (seconds, appended) = (start.elapsed().as_secs_f64(), load.acknowledged() - events);
        let bytes_at_end = uploaded()?;
        let ended_runs = append_load::metric(port, "umbel_object_backup_runs_total")?;
        load.check()?;
        Ok(AppendWindow {
            rate: appended as f64 / seconds,
            uploaded_bytes: bytes_at_end - bytes,
            store_processors: used.unwrap_or(0.0) / seconds,
            is_backup_unfinished: ended_runs == 0.0,
        })
    }
}

/// A new folder of a file system in memory, which is removed when this value is dropped.
struct MemoryFolder(PathBuf);

impl MemoryFolder {
    /// Creates the folder. Fails if the file system has not this many bytes free.
    fn create(bytes: u64) -> Result<MemoryFolder, String> {
        let parent = Path::new(MEMORY_FILES);
        let failed = |error: std::io::Error| format!("{}: {error}", parent.display());
        let folder = parent.join(format!("umbel-objects-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(failed)?;
        let folder = MemoryFolder(folder);
        let free = measured_run::free_bytes(parent)?;
        match free >= bytes {
            true => Ok(folder),
            false => Err(format!("{MEMORY_FILES} has {free} bytes free, and {bytes} are needed")),
        }
    }
}

impl Drop for MemoryFolder {
    fn drop(&mut self) {
        // A folder that remains shows in the next check of free space.
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Appends of some seconds at a server.
struct AppendWindow {
    /// Events a second.
    rate: f64,
    uploaded_bytes: f64,
    /// Processors that the object store used.
    store_processors: f64,
    /// Whether the first run of the backup had not ended at the end.
    is_backup_unfinished: bool,
}

fn wait_for_upload(uploaded: impl Fn() -> Result<f64, String>) -> Result<(), String> {
    for _ in 0..FIRST_UPLOAD_SECONDS_MAX * 10 {
        if uploaded()? > 0.0 {
            return Ok(());
        }
        campaign::pause(Duration::from_millis(100));
    }
    Err(format!("the backup uploaded nothing in {FIRST_UPLOAD_SECONDS_MAX} s"))
}

/// Empties the page cache. Returns whether that was possible.
fn drop_page_cache() -> bool {
    let is_synced = Command::new("sync").status().is_ok_and(|status| status.success());
    is_synced && fs::write("/proc/sys/vm/drop_caches", "3\n").is_ok()
}

fn show(name: &str, usage: Usage) -> Usage {
    let Usage { seconds, processor_seconds, memory_bytes, .. } = usage;
    let memory = memory_bytes >> 20;
    println!("   {name}: {seconds:.1} s, processor {processor_seconds:.1} s, {memory} MiB");
    usage
}

fn path_text(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("{} is no UTF-8", path.display()))
}

fn remove(folder: &Path) -> Result<(), String> {
    fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn version() -> Result<String, String> {
    let program = built_programs::released_program("umbel");
    let output = Command::new(&program).arg("--version").output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Appends random events to a new store.
fn fill(source: &Path, events: u64) -> Result<(), String> {
    let mut process = Command::new(built_programs::released_program("umbel"))
        .arg("--db")
        .arg(source)
        .arg("append")
        .env_remove("UMBEL_DB")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("`umbel append` did not start: {error}"))?;
    // A program that has ended is reported with its status.
    let written = process.stdin.take().map_or(Ok(()), |input| write_events(input, events));
    let status = process.wait().map_err(|error| error.to_string())?;
    match (status.success(), written) {
        (true, Ok(())) => Ok(()),
        (true, Err(error)) => Err(format!("`umbel append`: {error}")),
        (false, _) => Err(format!("`umbel append` failed: {status}")),
    }
}

fn write_events(input: ChildStdin, events: u64) -> std::io::Result<()> {
    let mut input = BufWriter::new(input);
    let mut letters = RandomLetters { state: 1 };
    let mut data = Vec::with_capacity(EVENT_CHARACTERS);
    for event in 0..events {
        letters.fill(&mut data);
        let stream = event % STREAMS;
        write!(input, "{{\"stream\":\"filled-{stream}\",\"type\":\"Filled\",\"data\":\"")?;
        input.write_all(&data)?;
        input.write_all(b"\"}\n")?;
    }
    input.flush()
}

/// Letters with 6 random bits each, the same ones in each run.
struct RandomLetters {
    /// State of SplitMix64.
    state: u64,
}

impl RandomLetters {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Replaces the data of an event.
    fn fill(&mut self, data: &mut Vec<u8>) {
        data.clear();
        while data.len() < EVENT_CHARACTERS {
            let bits = self.next();
            let letters = (0..10).map(|letter| LETTERS[(bits >> (letter * 6)) as usize & 63]);
            data.extend(letters);
        }
        data.truncate(EVENT_CHARACTERS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_defaults() {
        let parsed = ThroughputOptions::parse(&[]).unwrap();
        let defaults =
            ThroughputOptions { gigabytes: 10.0, rounds: 2, append_pairs: 4, report: None };
        assert_eq!(parsed, defaults);
        let path = parsed.report_path().display().to_string();
        assert!(path.contains("docs/lab/objects-throughput-20"), "{path}");
        let line = "--rounds 0 --gigabytes 0.2 --append-pairs 6 --report x.md";
        let words: Vec<&str> = line.split(' ').collect();
        let report = Some(PathBuf::from("x.md"));
        assert_eq!(
            ThroughputOptions::parse(&words),
            Ok(ThroughputOptions { gigabytes: 0.2, rounds: 0, append_pairs: 6, report })
        );
    }

    #[test]
    fn wrong_arguments_are_refused_by_name() {
        for (words, named) in [
            (&["--gigabytes", "0"][..], "--gigabytes"),
            (&["--gigabytes", "NaN"], "--gigabytes"),
            (&["--gigabytes"], "--gigabytes"),
            (&["--rounds", "101"], "--rounds"),
            (&["--append-pairs", "-1"], "--append-pairs"),
            (&["--rounds", "1.5"], "--rounds"),
            (&["--report"], "--report"),
            (&["--small"], "`--small`"),
        ] {
            let error = ThroughputOptions::parse(words).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn the_disk_needs_four_copies_of_the_store() {
        let options = ThroughputOptions::parse(&["--gigabytes", "10"]).unwrap();
        assert_eq!(options.events(), 10_300);
        assert_eq!(options.free_bytes_needed(), 45_200_000_000);
    }

    #[test]
    fn random_letters_use_the_whole_alphabet_and_never_repeat() {
        let mut letters = RandomLetters { state: 1 };
        let (mut first, mut second) = (Vec::new(), Vec::new());
        letters.fill(&mut first);
        letters.fill(&mut second);
        assert_eq!((first.len(), second.len()), (EVENT_CHARACTERS, EVENT_CHARACTERS));
        assert_ne!(first, second);
        for letter in LETTERS {
            let count = first.iter().filter(|found| *found == letter).count();
            assert!((14_000..17_500).contains(&count), "{count} of {letter}");
        }
    }
}
