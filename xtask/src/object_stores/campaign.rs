//! Campaign of backups into object stores: probes, kills of the process that backs up, kills of the
//! store, and restores that are compared event by event.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use crate::object_stores::campaign_options::{CampaignOptions, Repetitions};
use crate::object_stores::campaign_report::{self, StoreResult};
use crate::object_stores::object_server::without_cloud_variables;
use crate::object_stores::store_kind::StoreKind;
use crate::object_stores::store_process::StoreProcess;
use crate::tools::built_programs;
use crate::tools::check_steps::{self, CheckReport, cargo};

/// First port of the servers, and number of ports of each.
const FIRST_PORT: u16 = 18_333;
const PORTS_OF_STORE: u16 = 10;
/// Data of the event after which a backup must upload no more than what is new.
const NEW_BYTES: usize = 2_500_000;
/// Bytes that a backup may add to new events: one percent, and its manifest.
const ADDED_BYTES_MAX: usize = NEW_BYTES / 100 + 4096;
/// Time until a backup must succeed after its store was killed.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

/// Runs the campaign, and writes the report unless it is a trial. Returns whether nothing failed.
pub fn run(options: &CampaignOptions) -> bool {
    let mut report = CheckReport::default();
    report.step("build", || {
        let mut build = cargo();
        // As the tests are built, so that nothing is built twice.
        build.args(["build", "--workspace", "--bins", "--examples"]);
        check_steps::run(&mut build)
    });
    built_programs::use_test_build();
    let folder = std::env::temp_dir().join(format!("umbel-objects-{}", std::process::id()));
    let mut results = Vec::new();
    let mut is_written = true;
    for kind in options.stores() {
        report.step(&kind.name(), || {
            let folder = folder.join(kind.argument());
            let result = use_store(kind, &folder, port(kind), options.repetitions());
            // A full disk would fail the next store. The name is this process's own.
            fs::remove_dir_all(&folder).ok();
            let outcome = result.outcome();
            results.push(result);
            outcome
        });
        // Each store takes long: the results so far stay if a later one is interrupted.
        if !options.is_small
            && let Err(error) = campaign_report::write(&results, options)
        {
            println!("the report was not written: {error}");
            is_written = false;
        }
    }
    fs::remove_dir_all(&folder).ok();
    report.finish() && is_written
}

/// Returns the first port of a store, which is its own, so that campaigns can use several stores at
/// the same time.
fn port(kind: StoreKind) -> u16 {
    let at = StoreKind::ALL.into_iter().position(|other| other == kind).unwrap_or(0);
    FIRST_PORT + u16::try_from(at).unwrap_or(0) * PORTS_OF_STORE
}

fn use_store(kind: StoreKind, folder: &Path, port: u16, repetitions: Repetitions) -> StoreResult {
    let mut result = StoreResult::new(kind);
    let mut store = match StoreProcess::start(kind, &folder.join("server"), port) {
        Ok(store) => store,
        Err(reason) => {
            result.skip(reason);
            return result;
        }
    };
    if kind == StoreKind::MotoWithoutConditions {
        result.note("probe", refuse(&store, repetitions.probes));
        return result;
    }
    result.note("probe", probe(&store, repetitions.probes));
    let campaign = Campaign { source: folder.join("source"), url: prefix(&store, "backups") };
    result.note("kills", campaign.kill_loads(&store, repetitions.kills));
    match kind.reason_not_to_kill() {
        Some(reason) => result.leave_out("store kills", reason),
        None => {
            result.note("store kills", campaign.kill_store(&mut store, repetitions.store_kills));
        }
    }
    result.note("new bytes only", campaign.back_up_new_bytes(&store));
    result.note("restore", campaign.restore_all(&store));
    result
}

/// Returns the URL of a prefix. A directory must exist.
fn prefix(store: &StoreProcess, name: &str) -> String {
    let url = format!("{}/{name}", store.url);
    if let Some(directory) = url.strip_prefix("file://") {
        // A failure shows in the first use.
        fs::create_dir_all(directory).ok();
    }
    url
}

fn umbel(store: &StoreProcess, arguments: &[&str]) -> Result<Output, String> {
    let mut command = Command::new(built_programs::umbel_program());
    without_cloud_variables(&mut command).args(arguments).env_remove("UMBEL_DB");
    command.envs(store.variables.iter().map(|(name, value)| (name, value)));
    command.output().map_err(|error| format!("`umbel` did not start: {error}"))
}

/// Runs a command that must succeed, and returns its output.
fn umbel_text(store: &StoreProcess, arguments: &[&str]) -> Result<String, String> {
    let output = umbel(store, arguments)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("`umbel {}`: {}", arguments.join(" "), errors.trim()))
}

/// Returns a number of a JSON text.
pub fn number(text: &str, key: &str) -> Option<u64> {
    let (_, rest) = text.split_once(&format!("\"{key}\":"))?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

fn probe(store: &StoreProcess, probes: u32) -> Result<String, String> {
    let url = prefix(store, "probed");
    for number in 1..=probes {
        let text = umbel_text(store, &["store", "probe", &url, "--json"])
            .map_err(|reason| format!("probe {number}: {reason}"))?;
        if !text.contains("\"suitable\"") {
            return Err(format!("probe {number}: {text}"));
        }
    }
    Ok(format!("{probes} of {probes} suitable"))
}

/// Probes a store that ignores conditions, which must be refused each time.
fn refuse(store: &StoreProcess, probes: u32) -> Result<String, String> {
    let url = prefix(store, "probed");
    for number in 1..=probes {
        let output = umbel(store, &["store", "probe", &url])?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() != Some(2) || !errors.contains("create-if-absent") {
            return Err(format!("probe {number} was not refused: {errors}"));
        }
    }
    Ok(format!("{probes} of {probes} refused"))
}

/// A store of events, and the prefix of its backups.
struct Campaign {
    source: PathBuf,
    url: String,
}

impl Campaign {
    fn source(&self) -> &str {
        self.source.to_str().unwrap_or_default()
    }

    /// Kills the process that appends and backs up. After each kill the restored events are the
    /// first ones of the source, and all that a backup had reported.
    fn kill_loads(&self, store: &StoreProcess, kills: u32) -> Result<String, String> {
        let (mut reported, mut with_backup) = (None, 0);
        for kill in 1..=kills {
            let load = Load::start(self.source(), &self.url, store)?;
            pause(Duration::from_millis(300 + u64::from(kill * 7919 % 1300)));
            reported = load.kill().or(reported);
            let failed = |reason: String| format!("after kill {kill}: {reason}");
            let Some(reported) = reported else { continue };
            with_backup += 1;
            self.check_restore(store, reported, false).map_err(failed)?;
        }
        Ok(format!("{kills} kills, {with_backup} restores equal"))
    }

    /// Kills the store while a process appends and backs up. Each time a later backup succeeds.
    fn kill_store(&self, store: &mut StoreProcess, kills: u32) -> Result<String, String> {
        let mut load = Load::start(self.source(), &self.url, store)?;
        for kill in 1..=kills {
            pause(Duration::from_millis(300 + u64::from(kill * 7919 % 1300)));
            let failed = |reason: String| format!("after kill {kill}: {reason}");
            store.kill_and_restart().map_err(failed)?;
            load.wait_for_backup().map_err(failed)?;
        }
        let reported = load.end()?;
        self.check_restore(store, reported, true)?;
        Ok(format!("{kills} kills, all events restored"))
    }

    /// Backs up one long event, for which no more than its bytes may be uploaded.
    fn back_up_new_bytes(&self, store: &StoreProcess) -> Result<String, String> {
        let to = ["--db", self.source(), "backup", "--to", &self.url, "--json"];
        umbel_text(store, &to)?;
        let event = self.source.with_file_name("event");
        let text = format!(
            "{{\"stream\":\"long\",\"type\":\"Filled\",\"data\":\"{}\"}}\n",
            "x".repeat(NEW_BYTES - 2)
        );
        fs::write(&event, text).map_err(|error| error.to_string())?;
        let input = fs::File::open(&event).map_err(|error| error.to_string())?;
        let appended = Command::new(built_programs::umbel_program())
            .args(["--db", self.source(), "append"])
            .env_remove("UMBEL_DB")
            .stdin(input)
            .output();
        crate::tools::tool_install::succeeded("umbel append", appended)?;
        let report = umbel_text(store, &to)?;
        let uploaded = number(&report, "uploaded_bytes").unwrap_or(u64::MAX);
        let uploaded = usize::try_from(uploaded).unwrap_or(usize::MAX);
        let text = format!("{uploaded} bytes for an event of {NEW_BYTES}");
        match (NEW_BYTES..=NEW_BYTES + ADDED_BYTES_MAX).contains(&uploaded) {
            true => Ok(text),
            false => Err(text),
        }
    }

    fn restore_all(&self, store: &StoreProcess) -> Result<String, String> {
        umbel_text(store, &["verify", "--from", &self.url])?;
        let events = self.check_restore(store, 0, true)?;
        Ok(format!("{events} events equal"))
    }

    /// Restores the newest backup, and compares its events with those of the source. Returns their
    /// number.
    fn check_restore(
        &self,
        store: &StoreProcess,
        reported: u64,
        is_complete: bool,
    ) -> Result<usize, String> {
        let target = self.source.with_file_name("restored");
        let target_text = target.to_str().unwrap_or_default();
        let restore = ["restore", "--from", &self.url, "--db", target_text, "--json"];
        let report = umbel_text(store, &restore)?;
        let position = number(&report, "position").unwrap_or(0);
        if position < reported {
            return Err(format!("restored up to {position}, but {reported} was backed up"));
        }
        let read = |directory: &str| umbel_text(store, &["--db", directory, "read", "--all"]);
        let (restored, source) = (read(target_text)?, read(self.source())?);
        // The next restore needs an absent directory.
        fs::remove_dir_all(&target).map_err(|error| error.to_string())?;
        let is_equal = match is_complete {
            true => restored == source,
            false => source.starts_with(&restored),
        };
        match is_equal {
            true => Ok(restored.lines().count()),
            false => Err(format!(
                "{} restored events differ from {} of the source",
                restored.lines().count(),
                source.lines().count()
            )),
        }
    }
}

/// A process that appends and backs up.
struct Load {
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Load {
    #[expect(clippy::disallowed_methods, reason = "no test owns the threads of this command")]
    fn start(source: &str, url: &str, store: &StoreProcess) -> Result<Load, String> {
        let mut command = Command::new(built_programs::checked_program("examples/backup_load"));
        without_cloud_variables(&mut command).args([source, url]);
        command.envs(store.variables.iter().map(|(name, value)| (name, value)));
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = spawned.map_err(|error| format!("backup_load: {error}"))?;
        let (sender, lines) = mpsc::channel();
        if let Some(stdout) = process.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // Without a receiver the load was dropped.
                    let _ = sender.send(line);
                }
            });
        }
        let input = process.stdin.take();
        Ok(Load { process, input, lines })
    }

    /// Kills the process, and returns the position of its last backup.
    fn kill(mut self) -> Option<u64> {
        // A process that has ended is the aim.
        self.process.kill().ok();
        self.process.wait().ok();
        let backups = self.lines.iter().filter_map(|line| backed_up(&line));
        backups.last()
    }

    /// Waits for a backup that succeeds from now on.
    fn wait_for_backup(&mut self) -> Result<(), String> {
        // Backups before this moment do not count.
        while self.lines.try_recv().is_ok() {}
        let mut last = String::from("no answer");
        while let Ok(line) = self.lines.recv_timeout(RECOVERY_MAX) {
            if backed_up(&line).is_some() {
                return Ok(());
            }
            last = line;
        }
        Err(format!("no backup succeeded: {last}"))
    }

    /// Ends the load after a last backup, and returns its position.
    fn end(mut self) -> Result<u64, String> {
        drop(self.input.take());
        let status = self.process.wait().map_err(|error| error.to_string())?;
        let lines: Vec<String> = self.lines.iter().collect();
        let last = lines.last().cloned().unwrap_or_default();
        match backed_up(&last) {
            Some(position) if status.success() => Ok(position),
            _ => Err(format!("the load ended with {status}: {last}")),
        }
    }
}

impl Drop for Load {
    /// Ends a process that still runs, since it has the lock of the event store.
    fn drop(&mut self) {
        // A process that has ended is the aim.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn backed_up(line: &str) -> Option<u64> {
    line.strip_prefix("backed up ")?.parse().ok()
}

/// Waits for a time of the real clock.
#[expect(clippy::disallowed_methods, reason = "the moment of a kill is a moment of real time")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_programs_are_read() {
        assert_eq!(number("{\"position\": 17,\"x\":2}", "position"), Some(17));
        assert_eq!(number("{\"uploaded_bytes\":250}", "uploaded_bytes"), Some(250));
        assert_eq!(number("{}", "position"), None);
        assert_eq!(backed_up("backed up 7"), Some(7));
        assert_eq!(backed_up("failed x"), None);
    }
}
