//! A process that fills an event store and is killed, as `kill -9` does it, when an open will have
//! the most to do.

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
use crate::recorder::Recorder;
use crate::streams::NewStreams;

/// Streams that are created between two looks at how far the index is behind.
const STEP: u64 = 2_000;
/// From this part of the streams on it is learned how far it ever is behind.
const LEARNS_FROM: f64 = 0.5;
/// As far as this part of that is far enough, once all streams are there.
const FAR: f64 = 0.97;
/// How many more streams than asked for are created in wait for that moment.
const MORE_MOST: f64 = 0.2;
/// How often the child is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// How far a store was when its process was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Killed {
    /// Streams whose first event was acknowledged: those with the first numbers.
    pub streams: u64,
    /// Bytes of the log that the index did not hold durably.
    pub behind_bytes: u64,
    /// The most that these had been before.
    pub behind_bytes_max: u64,
}

/// Creates at least so many streams in a folder, writes how far it came to `output` and kills its
/// own process just before the index is flushed, which is when most of the log has to be read
/// again.
///
/// # Errors
/// What the store says, or that somebody asked to stop. It never returns otherwise.
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
    let Killed { streams, behind_bytes, behind_bytes_max } = killed;
    writeln!(output, "{streams} {behind_bytes} {behind_bytes_max}")
        .and_then(|()| output.flush())
        .map_err(|error| failed(&error))?;
    kill_process(getpid(), Signal::KILL).map_err(|error| failed(&error))
}

/// Creates streams until the index is as far behind as it ever gets. `None`: somebody asked to
/// stop.
fn fill(store: &Store, streams: u64, stop: &AtomicBool) -> Result<Option<Killed>> {
    let (mut made, mut done, mut most) = (NewStreams::default(), 0, 0);
    let learns_from = (streams as f64 * LEARNS_FROM) as u64;
    let last = streams + (streams as f64 * MORE_MOST) as u64;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        made.make(done..done + STEP);
        made.append(store)?;
        done += STEP;
        if done < learns_from {
            continue;
        }
        let stats = store.stats()?;
        let behind = stats.position.saturating_sub(stats.indexed_through);
        let is_far = behind as f64 >= most as f64 * FAR;
        if done >= last || (done >= streams && is_far) {
            let behind_bytes_max = most.max(behind);
            return Ok(Some(Killed { streams: done, behind_bytes: behind, behind_bytes_max }));
        }
        most = most.max(behind);
    }
}

/// Runs [`fill_and_die`] in a process of its own and waits for its end.
///
/// # Errors
/// That it ended in another way, or that somebody asked to stop.
pub fn filled_by_killed(folder: &Path, streams: u64, recorder: &Recorder<'_>) -> Result<Killed> {
    let mut child = Command::new(program()?)
        .args(["lab", "fill-and-die"])
        .arg(folder)
        .arg(streams.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let waited = wait(&mut child, recorder);
    if waited.is_err() {
        // It may have ended meanwhile.
        let _ = child.kill();
        let _ = child.wait();
    }
    waited?;
    let ended = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    if std::os::unix::process::ExitStatusExt::signal(&ended.status) != Some(9) {
        recorder.go_on()?;
        return Err(format!(
            "the process that was to be killed ended with {} and said `{}`",
            ended.status,
            said.trim()
        )
        .into());
    }
    parse(&said).ok_or_else(|| format!("the killed process said `{}`", said.trim()).into())
}

/// This very program: it knows how to fill a store.
fn program() -> Result<PathBuf> {
    Ok(std::env::current_exe()?)
}

fn wait(child: &mut Child, recorder: &Recorder<'_>) -> Result<()> {
    while child.try_wait()?.is_none() {
        recorder.go_on()?;
        pause(LOOK_INTERVAL);
    }
    Ok(())
}

fn parse(said: &str) -> Option<Killed> {
    let mut numbers = said.split_whitespace().map(|word| word.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    Some(Killed { streams: next()?, behind_bytes: next()?, behind_bytes_max: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_killed_when_the_index_is_far_behind() {
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
    fn what_the_child_says_is_read() {
        let killed = Killed { streams: 5, behind_bytes: 6, behind_bytes_max: 7 };
        assert_eq!(parse("5 6 7\n"), Some(killed));
        assert_eq!(parse("running 0 tests"), None);
        assert_eq!(parse("5 6"), None);
    }
}
