//! Time until the first appends are acknowledged by an event store whose process was killed.

use umbel_events::{EventId, ExpectedVersion, NewEvent, Store, StoreOptions};

use crate::engine::Result;
use crate::experiment::lab_context::MeasureContext;
use crate::experiment::{Figure, Subject};
use crate::experiments::killed_process::{KilledStore, fill_and_kill};
use crate::measure::now;
use crate::measure::page_cache::{evict, run_cold};
use crate::results::outcome::{Better, Scale};
use crate::results::sample_recorder::Recorder;
use crate::workload::stream_batch::{StreamBatch, absent};

/// Time until both appends were acknowledged.
pub const READY: Figure =
    Figure { name: "first appends answered", unit: "ms", better: Better::Lower, plot: false };
/// Bytes of the log that the open had to read again.
pub const BEHIND: Figure =
    Figure { name: "log not in the index", unit: "MiB", better: Better::Neither, plot: false };

/// The series.
pub const SERIES: &str = "event store";
/// Number of streams that are checked for loss.
const CHECKED_STREAMS: u64 = 1_000;

/// Returns the minimum number of streams.
pub fn streams(scale: Scale) -> u64 {
    scale.choose(300_000, 10_000_000)
}

/// Returns the method in words.
pub fn in_words(scale: Scale) -> String {
    format!(
        "a process creates {} streams and more, buffered, until its index is as far behind the log \
         as it ever is, and is killed then; the page cache is emptied; then the clock runs for the \
         open, an append to a stream that is there, which expects its revision, and one to a new \
         stream",
        streams(scale)
    )
}

/// Subject that measures an open after a kill.
pub struct OpenAfterKill {
    /// Folder for the store.
    pub place: MeasureContext,
    /// Scale.
    pub scale: Scale,
}

impl Subject for OpenAfterKill {
    fn name(&self) -> String {
        "after kill -9".to_string()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let folder = self.place.folder("killed")?;
        recorder.next("a process creates streams until it is killed")?;
        let killed = fill_and_kill(folder.path(), streams(self.scale), recorder)?;
        recorder.next("opening what it left")?;
        evict(folder.path())?;
        let mut last = StreamBatch::default();
        last.make(killed.streams - 1..killed.streams);
        let new = absent(0..1);
        let ((store, ready), flags) = run_cold(|| {
            let began = now();
            let store = Store::open(folder.path(), StoreOptions::default())?;
            let next = NewEvent::binary(EventId([7; 16]), "next", b"second");
            let there = store.append(last.name(0), ExpectedVersion::Exact(0), &[next])?;
            let created = store.append(new.name(0), ExpectedVersion::NoStream, &[new.event(0)])?;
            let ready = began.elapsed();
            if (there.first, created.first) != (Some(1), Some(0)) {
                return Err("the first appends were answered wrongly".into());
            }
            Ok((store, ready))
        })?;
        recorder.next("checking that no stream is lost")?;
        check_streams(&store, &killed, recorder)?;
        store.close()?;
        let x = format!("after kill -9, {} M streams", streams(self.scale) as f64 / 1e6);
        let ms = ready.as_secs_f64() * 1e3;
        recorder.record(SERIES, &x, READY.name, ms, flags);
        let behind = killed.behind_bytes as f64 / f64::from(1 << 20);
        recorder.record(SERIES, &x, BEHIND.name, behind, Vec::new());
        Ok(())
    }
}

/// Checks that acknowledged streams are refused as new ones: a sample of all, and the last ones.
fn check_streams(store: &Store, killed: &KilledStore, recorder: &Recorder<'_>) -> Result<()> {
    let mut made = StreamBatch::default();
    let spread = (0..CHECKED_STREAMS).map(|at| at * killed.streams / CHECKED_STREAMS);
    let latest = killed.streams - CHECKED_STREAMS..killed.streams;
    for number in spread.chain(latest) {
        recorder.check_stop()?;
        made.make(number..number + 1);
        let event = NewEvent::binary(EventId([9; 16]), "again", b"");
        let again = store.append(made.name(0), ExpectedVersion::NoStream, &[event]);
        if !matches!(again, Err(umbel_events::Error::WrongExpectedVersion { .. })) {
            return Err(format!(
                "{} was acknowledged before the kill and is missing: {again:?}",
                made.name(0)
            )
            .into());
        }
    }
    Ok(())
}
