//! How long the first appends wait for an event store whose process was killed.

use umbel_events::{EventId, Expected, NewEvent, Store, StoreOptions};

use crate::engine::Result;
use crate::experiment::{Figure, Subject};
use crate::kill::{Killed, filled_by_killed};
use crate::lab::Place;
use crate::measure::now;
use crate::outcome::{Better, Scale};
use crate::page_cache::{cold, forget};
use crate::recorder::Recorder;
use crate::streams::{NewStreams, absent};

/// Until both were answered.
pub const READY: Figure =
    Figure { name: "first appends answered", unit: "ms", better: Better::Lower, plot: false };
/// What the open had to read again.
pub const BEHIND: Figure =
    Figure { name: "log not in the index", unit: "MiB", better: Better::Neither, plot: false };

/// The series.
pub const SERIES: &str = "event store";
/// Streams of which it is seen that they are all there.
const LOOKED_FOR: u64 = 1_000;

/// How many streams there are at least.
pub fn streams(scale: Scale) -> u64 {
    scale.choose(300_000, 10_000_000)
}

/// The same in words.
pub fn in_words(scale: Scale) -> String {
    format!(
        "a process creates {} streams and more, buffered, until its index is as far behind the log \
         as it ever is, and is killed then; the page cache is emptied; then the clock runs for the \
         open, an append to a stream that is there, which expects its revision, and one to a new \
         stream",
        streams(scale)
    )
}

/// Measures it.
pub struct AfterKill {
    /// Where.
    pub place: Place,
    /// How much.
    pub scale: Scale,
}

impl Subject for AfterKill {
    fn name(&self) -> String {
        "after kill -9".to_string()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let folder = self.place.folder("killed")?;
        recorder.next("a process creates streams until it is killed")?;
        let killed = filled_by_killed(folder.path(), streams(self.scale), recorder)?;
        recorder.next("opening what it left")?;
        forget(folder.path())?;
        let mut last = NewStreams::default();
        last.make(killed.streams - 1..killed.streams);
        let new = absent(0..1);
        let ((store, ready), flags) = cold(|| {
            let began = now();
            let store = Store::open(folder.path(), StoreOptions::default())?;
            let next = NewEvent::binary(EventId([7; 16]), "next", b"second");
            let there = store.append(last.name(0), Expected::Exact(0), &[next])?;
            let created = store.append(new.name(0), Expected::NoStream, &[new.event(0)])?;
            let ready = began.elapsed();
            if (there.first, created.first) != (Some(1), Some(0)) {
                return Err("the first appends were answered wrongly".into());
            }
            Ok((store, ready))
        })?;
        recorder.next("looking whether all streams are there")?;
        look(&store, &killed, recorder)?;
        store.close()?;
        let x = format!("after kill -9, {} M streams", streams(self.scale) as f64 / 1e6);
        let ms = ready.as_secs_f64() * 1e3;
        recorder.record(SERIES, &x, READY.name, ms, flags);
        let behind = killed.behind_bytes as f64 / f64::from(1 << 20);
        recorder.record(SERIES, &x, BEHIND.name, behind, Vec::new());
        Ok(())
    }
}

/// Streams that were acknowledged are refused as new ones: some from everywhere, and the last ones.
fn look(store: &Store, killed: &Killed, recorder: &Recorder<'_>) -> Result<()> {
    let mut made = NewStreams::default();
    let spread = (0..LOOKED_FOR).map(|at| at * killed.streams / LOOKED_FOR);
    let latest = killed.streams - LOOKED_FOR..killed.streams;
    for number in spread.chain(latest) {
        recorder.go_on()?;
        made.make(number..number + 1);
        let event = NewEvent::binary(EventId([9; 16]), "again", b"");
        let again = store.append(made.name(0), Expected::NoStream, &[event]);
        if !matches!(again, Err(umbel_events::Error::WrongExpected { .. })) {
            return Err(format!(
                "{} was acknowledged before the kill and is not there: {again:?}",
                made.name(0)
            )
            .into());
        }
    }
    Ok(())
}
