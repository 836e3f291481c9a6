//! A child process that fills an event store and is killed, as by `kill -9`, at a moment when the
//! next open has the most work.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use umbel_events::{Store, StoreOptions};

use crate::engine::Result;
use crate::lab_error::LabError;
use crate::measure::pause;
use crate::results::sample_recorder::Recorder;
use crate::workload::stream_batch::StreamBatch;

/// Streams created between two measurements of the index's lag.
const STREAMS_PER_STEP: u64 = 2_000;
/// Share of the streams after which the largest lag is recorded.
const LAG_LEARNING_FROM: f64 = 0.5;
/// Share of the largest lag at which the process is killed, once all streams exist.
const LAG_TARGET: f64 = 0.97;
/// Largest share of additional streams that are created until the lag reaches that target.
const EXTRA_STREAMS_MAX: f64 = 0.2;
/// Polling interval of the child process.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Progress of a store when its process was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KilledStore {
    /// Number of streams whose first event was acknowledged: those with the lowest numbers.
    pub streams: u64,
    /// Bytes of the log that were not yet durable in the index.
    pub behind_bytes: u64,
    /// Largest earlier value of `behind_bytes`.
    pub behind_bytes_max: u64,
}

/// Creates at least this many streams in a folder and writes its progress to `output`. Then it
/// kills its own process just before a flush of the index, when the open must read most of the log
/// again.
///
/// # Errors
/// An error of the store, or a stop by the operator. Without an error the function never returns.
pub fn fill_and_die(
    folder: &Path,
    streams: u64,
    stop: &AtomicBool,
    output: &mut dyn Write,
) -> std::result::Result<(), LabError> {
    let failed = |error: &dyn std::fmt::Display| LabError::Failed(error.to_string());
    let store = Store::open(folder, StoreOptions::default()).map_err(|error| failed(&error))?;
    let killed = fill(&store, streams, stop).map_err(|error| failed(&error))?;
    let Some(killed) = killed else {
        return Err(LabError::Stopped("stopped while streams were created".to_string()));
    };
    let KilledStore { streams, behind_bytes, behind_bytes_max } = killed;
    writeln!(output, "{streams} {behind_bytes} {behind_bytes_max}")
        .and_then(|()| output.flush())
        .map_err(|error| failed(&error))?;
    kill_process(getpid(), Signal::KILL).map_err(|error| failed(&error))
}

/// Creates streams until the index's lag is near its maximum. `None`: the operator stopped the run.
fn fill(store: &Store, streams: u64, stop: &AtomicBool) -> Result<Option<KilledStore>> {
    let (mut made, mut done, mut lag_bytes_max) = (StreamBatch::default(), 0, 0);
    let learns_from = (streams as f64 * LAG_LEARNING_FROM) as u64;
    let last = streams + (streams as f64 * EXTRA_STREAMS_MAX) as u64;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        made.make(done..done + STREAMS_PER_STEP);
        made.append(store)?;
        done += STREAMS_PER_STEP;
        if done < learns_from {
            continue;
        }
        let stats = store.stats()?;
        let behind = stats.position.saturating_sub(stats.indexed_through);
        let is_far = behind as f64 >= lag_bytes_max as f64 * LAG_TARGET;
        if done >= last || (done >= streams && is_far) {
            let behind_bytes_max = lag_bytes_max.max(behind);
            return Ok(Some(KilledStore { streams: done, behind_bytes: behind, behind_bytes_max }));
        }
        lag_bytes_max = lag_bytes_max.max(behind);
    }
}

/// Runs [`fill_and_die`] in a child process and waits for the child's end.
///
/// # Errors
/// An error if the child ends other than by its own kill, or a stop by the operator.
pub fn fill_and_kill(folder: &Path, streams: u64, recorder: &Recorder<'_>) -> Result<KilledStore> {
    let mut child = Command::new(program()?)
        .args(["lab", "fill-and-die"])
        .arg(folder)
        .arg(streams.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let waited = wait(&mut child, recorder);
    if waited.is_err() {
        // It may have ended already.
        let _ = child.kill();
        let _ = child.wait();
    }
    waited?;
    let ended = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    if std::os::unix::process::ExitStatusExt::signal(&ended.status) != Some(9) {
        recorder.check_stop()?;
        return Err(format!(
            "the process that was to be killed ended with {} and printed `{}`",
            ended.status,
            text.trim()
        )
        .into());
    }
    parse(&text).ok_or_else(|| format!("the killed process printed `{}`", text.trim()).into())
}

/// Returns the path of this program, which has the command that fills a store.
fn program() -> Result<PathBuf> {
    Ok(std::env::current_exe()?)
}

fn wait(child: &mut Child, recorder: &Recorder<'_>) -> Result<()> {
    while child.try_wait()?.is_none() {
        recorder.check_stop()?;
        pause(POLL_INTERVAL);
    }
    Ok(())
}

fn parse(text: &str) -> Option<KilledStore> {
    let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    Some(KilledStore { streams: next()?, behind_bytes: next()?, behind_bytes_max: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_is_killed_while_the_index_lags() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(folder.path().join("s"), StoreOptions::default()).expect("opened");
        let never = AtomicBool::new(false);
        let killed = fill(&store, 60_000, &never).expect("filled").expect("not stopped");
        assert!(killed.streams >= 60_000 && killed.streams <= 72_000, "{killed:?}");
        assert!(killed.behind_bytes as f64 >= killed.behind_bytes_max as f64 * 0.25, "{killed:?}");
        assert!(killed.behind_bytes > 0);
        store.close().expect("closed");

        let store = Store::open(folder.path().join("t"), StoreOptions::default()).expect("opened");
        let stop = AtomicBool::new(true);
        assert_eq!(fill(&store, 60_000, &stop).expect("nothing failed"), None);
    }

    #[test]
    fn child_output_is_parsed() {
        let killed = KilledStore { streams: 5, behind_bytes: 6, behind_bytes_max: 7 };
        assert_eq!(parse("5 6 7\n"), Some(killed));
        assert_eq!(parse("running 0 tests"), None);
        assert_eq!(parse("5 6"), None);
    }
}
