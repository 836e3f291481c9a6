//! [`EventStore`]: the store as the calls see it. Nothing else names its functions.
//!
//! The store blocks; reads and deletions go to threads that may. One thread hands all appends to
//! the store in the order in which they came, and the store says by itself when each is done:
//! however many wait, none of them has a thread.

use std::sync::Arc;

use crate::limits::{PAGE_BYTES, PAGE_EVENTS_MAX};
use tokio::sync::{mpsc, oneshot};
use umbel_env::{Env, JoinHandle};
use umbel_events::{
    AllReader, Appended, Direction, Error, Expected, NewEvent, Position, RecordedEvent, Request,
    Revision, Stats, Store, StreamAppend, StreamReader, StreamState, Ticket, Watch, Watched,
};

use crate::budget::Share;
use crate::convert::Proposed;

/// The store as the calls see it.
#[derive(Debug)]
pub struct EventStore {
    store: Store,
    appends: mpsc::UnboundedSender<Job>,
}

/// Rings once, when more can be read than when it was made.
#[derive(Debug)]
pub struct Bell {
    rung: oneshot::Receiver<()>,
    _watch: Watch,
}

impl Bell {
    /// Waits until it rings.
    pub async fn rung(&mut self) {
        // An error would say that it never will: whoever waits has to look.
        let _ = (&mut self.rung).await;
    }
}

/// What an append comes to.
pub type AppendResult = Result<Appended, Error>;

/// An append, and who wants to know what it comes to.
type Job = (Append, oneshot::Sender<AppendResult>);

/// Events to be appended to a stream.
#[derive(Debug)]
pub struct Append {
    /// The stream.
    pub stream: String,
    /// What it must be at.
    pub expected: Expected,
    /// The events.
    pub events: Vec<Proposed>,
    /// What they hold of what all appends together may.
    #[expect(dead_code, reason = "it is held for as long as the events are")]
    pub share: Share,
}

/// How a stream is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// An append brings it back.
    Soft,
    /// For good.
    Tombstone,
}

/// Which events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Those of a stream, by their revisions.
    Stream(Arc<str>),
    /// All, by their positions.
    All,
}

/// A read on its way.
#[derive(Debug)]
pub struct Reader {
    source: Source,
    direction: Direction,
    /// The revision or position to begin at where nothing is open. It counts as well, but for
    /// positions backwards.
    from: u64,
    open: Option<Open>,
}

#[derive(Debug)]
enum Open {
    Stream(Box<StreamReader>),
    All(Box<AllReader>),
}

/// Some events that follow each other.
#[derive(Debug)]
pub struct Page {
    /// The events.
    pub events: Vec<RecordedEvent>,
    /// Goes on behind them.
    pub reader: Reader,
    /// Whether these were the last ones. A stream is read as it was when reading it began,
    pub is_last: bool,
    /// and this says whether no more could be seen when the page was asked for either.
    pub is_up_to_date: bool,
    /// What there was of the stream, where they are of one.
    pub state: Option<StreamState>,
}

impl Reader {
    /// Reads from a revision or a position on. It counts as well, but for positions backwards.
    pub fn new(source: Source, direction: Direction, from: u64) -> Reader {
        Reader { source, direction, from, open: None }
    }

    /// Which events it reads.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The number that the next event forwards has at least.
    pub fn next(&self) -> u64 {
        self.from
    }

    /// At most so many events, and no more than fit in memory at a time.
    fn page(mut self, store: &Store, most: usize) -> Result<Page, Error> {
        let (from, direction) = (self.from, self.direction);
        let was_open = self.open.is_some();
        let open = self.open.take().unwrap_or_else(|| match &self.source {
            Source::Stream(name) => {
                Open::Stream(Box::new(store.read(name, Revision(from), direction)))
            }
            Source::All => Open::All(Box::new(store.read_all(Position(from), direction))),
        });
        let (events, is_last, is_up_to_date, state);
        match open {
            Open::Stream(mut reader) => {
                state = reader.state();
                (events, is_last) = collect(reader.as_mut(), most)?;
                is_up_to_date = is_last && !was_open;
                self.open = (!is_last).then_some(Open::Stream(reader));
            }
            Open::All(mut reader) => {
                state = None;
                (events, is_last) = collect(reader.as_mut(), most)?;
                is_up_to_date = is_last;
                self.open = Some(Open::All(reader));
            }
        }
        if let (Some(last), Direction::Forwards) = (events.last(), direction) {
            let last = match self.source {
                Source::Stream(_) => last.revision,
                Source::All => last.position,
            };
            self.from = last.saturating_add(1);
        }
        Ok(Page { events, reader: self, is_last, is_up_to_date, state })
    }
}

impl EventStore {
    /// The store, and the thread that appends. It ends once this is dropped.
    pub fn new(store: Store, env: &Env) -> umbel::Result<(EventStore, Box<dyn JoinHandle>)> {
        // It holds no more than the calls do: each waits for the answer before it takes on more.
        let (appends, jobs) = mpsc::unbounded_channel();
        let appending = store.clone();
        let thread =
            env.threads.spawn("umbel-append", Box::new(move || append_all(&appending, jobs)))?;
        Ok((EventStore { store, appends }, thread))
    }

    /// The position of the newest event that can be read; 0 where there is none.
    pub fn visible(&self) -> u64 {
        self.store.visible().0
    }

    /// What the store consists of.
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.blocking(Store::stats).await
    }

    /// Rings when more of these events can be read than can be now.
    pub fn bell(&self, source: &Source) -> Bell {
        let watched = match source {
            Source::Stream(name) => Watched::Stream(name),
            Source::All => Watched::All,
        };
        let (sender, rung) = oneshot::channel();
        let watch = self.store.watch(watched, move |_| {
            // Whoever waited may just have gone away.
            let _ = sender.send(());
        });
        Bell { rung, _watch: watch }
    }

    /// Hands an append to the store. The answer comes once it is as durable as the store makes
    /// appends; it is an error of the channel where the store was closed before.
    pub fn submit(&self, append: Append) -> oneshot::Receiver<AppendResult> {
        let (sender, answer) = oneshot::channel();
        // Where the thread has ended, so has the sender, and whoever waits learns that.
        let _ = self.appends.send((append, sender));
        answer
    }

    /// Deletes a stream. The position of the deletion; `None` where there was nothing to write.
    pub async fn delete(
        &self,
        deletion: Deletion,
        stream: String,
        expected: Expected,
    ) -> Result<Option<u64>, Error> {
        self.blocking(move |store| {
            let done = match deletion {
                Deletion::Soft => store.delete(&stream, expected),
                Deletion::Tombstone => store.tombstone(&stream, expected),
            };
            Ok(done?.position)
        })
        .await
    }

    /// What there is of a stream.
    pub async fn stream(&self, name: Arc<str>) -> Result<StreamState, Error> {
        self.blocking(move |store| store.stream(&name)).await
    }

    /// At most so many events, and no more than fit in memory at a time.
    pub async fn page(&self, reader: Reader, most: u64) -> Result<Page, Error> {
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(PAGE_EVENTS_MAX);
        self.blocking(move |store| reader.page(store, most)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let store = self.store.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.unwrap_or_else(|_| Err(Error::Store(umbel::Error::Closed)))
    }
}

fn append_all(store: &Store, mut jobs: mpsc::UnboundedReceiver<Job>) {
    while let Some((append, sender)) = jobs.blocking_recv() {
        // Whoever asked may have gone away; the append is done all the same.
        match submit(store, &append) {
            #[cfg(feature = "canary")]
            Ok(ticket) if umbel_base::canary::Switch::ServerAnswersEarly.is_on() => {
                let _ = sender.send(Ok(ticket.answers_early()[0]));
            }
            Ok(ticket) => ticket.then(move |answers| {
                let _ = sender.send(answers.map(|answers| answers[0]));
            }),
            Err(error) => {
                let _ = sender.send(Err(error));
            }
        }
    }
}

fn submit(store: &Store, append: &Append) -> Result<Ticket, Error> {
    let events: Vec<NewEvent<'_>> = append.events.iter().map(Proposed::event).collect();
    let (stream, expected) = (append.stream.as_str(), append.expected);
    let appends = [StreamAppend { stream, expected, events: &events }];
    store.submit(&Request { appends: &appends, checks: &[] })
}

/// Some events, and whether there were no more.
fn collect(
    reader: &mut impl Iterator<Item = Result<RecordedEvent, Error>>,
    most: usize,
) -> Result<(Vec<RecordedEvent>, bool), Error> {
    let mut events: Vec<RecordedEvent> = Vec::new();
    let mut bytes = 0;
    while events.len() < most && bytes < PAGE_BYTES {
        let Some(event) = reader.next() else { return Ok((events, true)) };
        let event = event?;
        bytes += event.data.len() + event.metadata.len();
        events.push(event);
    }
    Ok((events, false))
}
