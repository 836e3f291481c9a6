//! [`EventStore`]: the store as the calls see it. Nothing else names its functions.
//!
//! The store blocks; reads and deletions go to threads that may, but for reads of few events while
//! such are quick. One thread hands appends to the store in the order in which they came, but for
//! one of few events that finds nobody before it and need not wait; and the store says by itself
//! when each is done: however many wait, none of them has a thread.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};
use tonic::Status;
use umbel_env::{Env, JoinHandle};
use umbel_events::{
    Error, EventFilter, Expected, NewEvent, Request, Since, Stats, Store, StreamAppend, Subscribed,
    Subscription, Ticket,
};

use crate::budget::Share;
use crate::convert::Proposed;
use crate::failure;
use crate::filter_request::FilterRequest;
use crate::filters::Filters;
use crate::follower::{Followed, Follower};
use crate::limits::{EXAMINED_MAX, PAGE_EVENTS_MAX, QUICK_BYTES_MAX, QUICK_EVENTS_MAX};
use crate::outcomes::{AppendResult, Teller};
use crate::quick::Quick;
use crate::reader::{Page, Reader};
use crate::rules::Rules;
use crate::unread::Room;

/// The store as the calls see it.
#[derive(Debug)]
pub struct EventStore {
    store: Store,
    appends: mpsc::UnboundedSender<Job>,
    quick: Quick,
    quick_append: Quick,
    /// How many jobs the thread that appends has, or will have.
    handed: Arc<AtomicUsize>,
    rules: Arc<Rules>,
    filters: Arc<Filters>,
}

/// How many appends that came meanwhile are done together, and a job more.
const DONE_TOGETHER: usize = 64;

/// Appends, and who wants to know what they come to.
#[derive(Debug)]
enum Job {
    One(Append, oneshot::Sender<AppendResult>),
    /// Those of one call.
    Many(Vec<(Append, Teller)>),
}

/// Who wants to know what an append comes to.
#[derive(Debug)]
enum Tell {
    One(oneshot::Sender<AppendResult>),
    Many(Teller),
}

impl Tell {
    fn tell(self, result: AppendResult) {
        match self {
            // Whoever asked may have gone away; the append is done all the same.
            Tell::One(sender) => drop(sender.send(result)),
            Tell::Many(teller) => teller.tell(result),
        }
    }
}

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

impl Append {
    /// Its stream; gives back what it held.
    fn into_stream(self) -> String {
        self.stream
    }
}

/// How a stream is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// An append brings it back.
    Soft,
    /// For good.
    Tombstone,
}

impl EventStore {
    /// The store, and the thread that appends. It ends once this is dropped.
    pub fn new(store: Store, env: &Env) -> umbel::Result<(EventStore, Box<dyn JoinHandle>)> {
        // It holds no more than the calls do: each waits for the answer before it takes on more.
        let (appends, jobs) = mpsc::unbounded_channel();
        let (appending, rules) = (store.clone(), Arc::new(Rules::default()));
        let changing = Arc::clone(&rules);
        let handed = Arc::new(AtomicUsize::new(0));
        let undone = Arc::clone(&handed);
        let append = move || append_all(&appending, &changing, jobs, &undone);
        let thread = env.threads.spawn("umbel-append", Box::new(append))?;
        let (quick, quick_append) = (Quick::new(env), Quick::new(env));
        let filters = Arc::default();
        Ok((EventStore { store, appends, quick, quick_append, handed, rules, filters }, thread))
    }

    /// Why no append is taken any more until the server is started again, if none is.
    pub fn failure(&self) -> Option<String> {
        self.store.failure()
    }

    /// What the store says about users and rights.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// The position of the newest event that can be read; 0 where there is none.
    pub fn visible(&self) -> u64 {
        self.store.visible().0
    }

    /// What the store consists of.
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.blocking(Store::stats).await
    }

    /// Hands an append to the store. The answer comes once it is as durable as the store makes
    /// appends; it is an error of the channel where the store was closed before.
    pub fn submit(&self, append: Append) -> oneshot::Receiver<AppendResult> {
        let (sender, answer) = oneshot::channel();
        match self.append_here(&append) {
            Some(ticket) => tell(&self.rules, &append.stream, Ok(ticket), Tell::One(sender)),
            None => {
                // Where the thread has ended, so has the sender, and whoever waits learns that.
                self.hand(Job::One(append, sender));
            }
        }
        answer
    }

    /// Does an append of few events without the thread that appends, whose waking takes longer, if
    /// that need not wait.
    fn append_here(&self, append: &Append) -> Option<Ticket> {
        // Who came before is not overtaken.
        let comes_first = self.handed.load(Ordering::Acquire) == 0;
        if !comes_first || append.events.len() > QUICK_EVENTS_MAX || !self.quick_append.may() {
            return None;
        }
        let events: Vec<NewEvent<'_>> = append.events.iter().map(Proposed::event).collect();
        let bytes = events.iter().map(|event| event.data.len() + event.metadata.len());
        if bytes.sum::<usize>() > QUICK_BYTES_MAX {
            return None;
        }
        let (stream, expected) = (append.stream.as_str(), append.expected);
        let appends = [StreamAppend { stream, expected, events: &events }];
        let request = Request { appends: &appends, checks: &[] };
        self.quick_append.time(|| self.store.try_submit(&request))
    }

    /// Hands appends of one call to the store as [`EventStore::submit`] does each; what they come
    /// to is told by the tellers, which tell the same call.
    pub fn submit_all(&self, appends: Vec<(Append, Teller)>) {
        // Where the thread has ended, the tellers are dropped, and tell that.
        self.hand(Job::Many(appends));
    }

    fn hand(&self, job: Job) {
        self.handed.fetch_add(1, Ordering::AcqRel);
        let _ = self.appends.send(job);
    }

    /// Deletes a stream. The position of the deletion; `None` where there was nothing to write.
    pub async fn delete(
        &self,
        deletion: Deletion,
        stream: String,
        expected: Expected,
    ) -> Result<Option<u64>, Error> {
        let rules = Arc::clone(&self.rules);
        self.blocking(move |store| {
            let done = match deletion {
                Deletion::Soft => store.delete(&stream, expected),
                Deletion::Tombstone => store.tombstone(&stream, expected),
            };
            rules.forget(&stream);
            Ok(done?.position)
        })
        .await
    }

    /// The filter that a read asks for.
    pub async fn filter(&self, asked: FilterRequest) -> Result<Arc<EventFilter>, Status> {
        let filters = Arc::clone(&self.filters);
        let found = self.blocking(move |_| Ok(filters.get(&asked))).await;
        found.unwrap_or_else(|error| Err(failure::status(&error)))
    }

    /// Subscribes.
    pub async fn subscribe(&self, what: Subscribed, since: Since) -> Result<Subscription, Error> {
        self.blocking(move |store| store.subscribe(what, since)).await
    }

    /// At most so many events, and no more than fit in this room.
    pub async fn page(&self, reader: Reader, most: u64, room: Room) -> Result<(Page, Room), Error> {
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(PAGE_EVENTS_MAX);
        if most <= QUICK_EVENTS_MAX && reader.is_quick() && self.quick.may() {
            let page = self.quick.time(|| reader.page(&self.store, most, QUICK_EVENTS_MAX))?;
            return Ok((page, room));
        }
        self.blocking_in(room, move |store| reader.page(store, most, EXAMINED_MAX)).await
    }

    /// What a subscription brings next, no more than fits in this room.
    pub async fn follow(&self, follower: Follower, room: Room) -> Result<(Followed, Room), Error> {
        self.blocking_in(room, move |store| follower.page(store)).await
    }

    /// Does work that blocks with the store, and holds this room until it is done, whether somebody
    /// waits for it or not.
    async fn blocking_in<T: Send + 'static>(
        &self,
        room: Room,
        work: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<(T, Room), Error> {
        // It may have to wait for a thread.
        room.is_made();
        self.blocking(move |store| {
            let (done, room) = room.during(|| work(store));
            Ok((done?, room))
        })
        .await
    }

    /// Does work that blocks with the store.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let store = self.store.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.unwrap_or_else(|_| Err(Error::Store(umbel::Error::Closed)))
    }
}

fn append_all(
    store: &Store,
    rules: &Arc<Rules>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    handed: &AtomicUsize,
) {
    while let Some(job) = jobs.blocking_recv() {
        let mut count = 0;
        let (mut appends, mut tellers, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
        let mut next = Some(job);
        while let Some(job) = next {
            count += 1;
            match job {
                Job::One(append, sender) => {
                    appends.push(append);
                    tellers.push(Tell::One(sender));
                }
                Job::Many(many) => {
                    outcomes
                        .extend(many.first().and_then(|(_, teller)| teller.outcomes()).cloned());
                    for (append, teller) in many {
                        appends.push(append);
                        tellers.push(Tell::Many(teller));
                    }
                }
            }
            next = (appends.len() < DONE_TOGETHER).then(|| jobs.try_recv().ok()).flatten();
        }
        let _held: Vec<_> = outcomes.iter().map(|outcomes| outcomes.hold()).collect();
        append_each(store, rules, tellers, appends);
        handed.fetch_sub(count, Ordering::AcqRel);
    }
}

/// Does appends one after the other, and has each told what it came to. By then it holds nothing of
/// the budget any more.
fn append_each(store: &Store, rules: &Arc<Rules>, tellers: Vec<Tell>, appends: Vec<Append>) {
    let tickets = submit_each(store, &appends);
    for ((append, ticket), teller) in appends.into_iter().zip(tickets).zip(tellers) {
        tell(rules, &append.into_stream(), ticket, teller);
    }
}

/// Hands appends to the store, one after the other.
fn submit_each(store: &Store, appends: &[Append]) -> Vec<Result<Ticket, Error>> {
    let events = appends.iter().flat_map(|append| &append.events).map(Proposed::event);
    let events: Vec<NewEvent<'_>> = events.collect();
    let mut rest = &events[..];
    let mut next = |append: &'_ Append| {
        let (own, others) = rest.split_at(append.events.len());
        rest = others;
        own
    };
    let parts: Vec<StreamAppend<'_>> = appends
        .iter()
        .map(|append| {
            let (stream, expected) = (append.stream.as_str(), append.expected);
            StreamAppend { stream, expected, events: next(append) }
        })
        .collect();
    let requests = parts.iter().map(|part| Request { appends: slice::from_ref(part), checks: &[] });
    let requests: Vec<Request<'_>> = requests.collect();
    store.submit_each(&requests)
}

/// Tells what an append to this stream comes to, once it has.
fn tell(rules: &Arc<Rules>, stream: &str, ticket: Result<Ticket, Error>, teller: Tell) {
    match ticket {
        #[cfg(feature = "canary")]
        Ok(ticket) if umbel_base::canary::Switch::ServerAnswersEarly.is_on() => {
            teller.tell(Ok(ticket.answers_early()[0]));
        }
        Ok(ticket) if stream.starts_with('$') => {
            let (rules, stream) = (Arc::clone(rules), stream.to_string());
            ticket.then(move |answers| {
                rules.forget(&stream);
                teller.tell(answers.map(|answers| answers[0]));
            });
        }
        Ok(ticket) => {
            ticket.then(move |answers| teller.tell(answers.map(|answers| answers[0])));
        }
        Err(error) => teller.tell(Err(error)),
    }
}
