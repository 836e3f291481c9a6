//! [`AppendSubmitter`]: the entry of appends to the store.
//!
//! One thread submits appends to the store in the order of their arrival. A small append runs
//! inline if no other append waits before it and it need not wait itself. The store resolves each
//! completion, so a waiting append occupies no thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use umbel_env::{Env, JoinHandle};
use umbel_events::{
    AppendRequest, Error, NewEvent, PendingAppend, Store, StreamAppend, StreamCheck,
};

use crate::access_control::acl_cache::AclCache;
use crate::event_store::append_command::{AppendCommand, stream_appends};
use crate::event_store::append_completion::{AppendCompletion, AppendResult};
use crate::limits::{INLINE_BYTES_MAX, INLINE_EVENTS_MAX};
use crate::protocol::proto_convert::ProposedEvent;
use crate::resources::inline_execution::InlinePolicy;

/// Number of appends in a group after which no further job joins the group.
const APPENDS_PER_GROUP: usize = 64;

/// The entry of appends to the store.
#[derive(Debug)]
pub struct AppendSubmitter {
    store: Store,
    acl_cache: Arc<AclCache>,
    inline_appends: InlinePolicy,
    jobs: mpsc::UnboundedSender<AppendJob>,
    /// Number of jobs that are queued for, or being executed by, the appender thread.
    queued_jobs: Arc<AtomicUsize>,
}

/// Appends with their completions.
#[derive(Debug)]
enum AppendJob {
    Single(AppendCommand, AppendCompletion),
    /// Appends of one call.
    Many(Vec<(AppendCommand, AppendCompletion)>),
}

impl AppendSubmitter {
    /// Starts the appender thread, which ends once the submitter is dropped.
    pub fn start(
        store: &Store,
        acl_cache: &Arc<AclCache>,
        env: &Env,
    ) -> umbel::Result<(AppendSubmitter, Box<dyn JoinHandle>)> {
        // Calls bound the queue: each waits for its result before it takes on more.
        let (jobs, received) = mpsc::unbounded_channel();
        let submitter = AppendSubmitter {
            store: store.clone(),
            acl_cache: Arc::clone(acl_cache),
            inline_appends: InlinePolicy::new(env),
            jobs,
            queued_jobs: Arc::default(),
        };
        let (store, acl_cache) = (store.clone(), Arc::clone(acl_cache));
        let queued_jobs = Arc::clone(&submitter.queued_jobs);
        let run = move || run_appender(&store, &acl_cache, received, &queued_jobs);
        let thread = env.threads.spawn("umbel-append", Box::new(run))?;
        Ok((submitter, thread))
    }

    /// Submits an append. The future resolves once the append has the store's durability. A
    /// submitted append continues if the future is dropped.
    pub async fn submit(&self, append: AppendCommand) -> AppendResult {
        let [append] = check_metadata([append]).await?;
        let (completion, result) = AppendCompletion::single();
        match self.try_append_inline(&append) {
            Some(pending) => complete(&self.acl_cache, append, Ok(pending), completion),
            None => self.enqueue(AppendJob::Single(append, completion)),
        }
        result.await.unwrap_or(Err(Error::Store(umbel::Error::Closed)))
    }

    /// Submits the appends of one call, which receives the results in batches.
    pub async fn submit_all(&self, appends: Vec<(AppendCommand, AppendCompletion)>) {
        // Where the runtime ended, the completions are dropped, which reports a closed store.
        let Ok(appends) = check_metadata(appends).await else { return };
        self.enqueue(AppendJob::Many(appends));
    }

    /// Appends a few events on the calling thread if the append need not wait, since waking the
    /// appender thread takes longer.
    fn try_append_inline(&self, append: &AppendCommand) -> Option<PendingAppend> {
        // Earlier appends are not overtaken.
        let comes_first = self.queued_jobs.load(Ordering::Acquire) == 0;
        let [target] = append.streams() else { return None };
        if !comes_first
            || append.has_checked_metadata()
            || target.events.len() > INLINE_EVENTS_MAX
            || !append.checks.is_empty()
            || !self.inline_appends.is_allowed()
        {
            return None;
        }
        let events: Vec<NewEvent<'_>> =
            target.events.iter().map(ProposedEvent::as_new_event).collect();
        let bytes = events.iter().map(|event| event.data.len() + event.metadata.len());
        if bytes.sum::<usize>() > INLINE_BYTES_MAX {
            return None;
        }
        let (stream, expected) = (target.stream.as_str(), target.expected);
        let appends = [StreamAppend { stream, expected, events: &events }];
        let request = AppendRequest { appends: &appends, checks: &[] };
        self.inline_appends.run(|| self.store.try_submit(&request))
    }

    fn enqueue(&self, job: AppendJob) {
        self.queued_jobs.fetch_add(1, Ordering::AcqRel);
        // Where the thread has ended, the completions are dropped, which reports a closed store.
        let _ = self.jobs.send(job);
    }
}

/// Checks long metadata of the appends on a thread that may be busy.
async fn check_metadata<A>(mut appends: A) -> Result<A, Error>
where
    A: AsCommands + Send + 'static,
{
    if !appends.commands().any(|append| append.has_long_metadata()) {
        return Ok(appends);
    }
    let check = move || {
        appends.commands().for_each(AppendCommand::check_metadata);
        appends
    };
    tokio::task::spawn_blocking(check).await.map_err(|_| Error::Store(umbel::Error::Closed))
}

/// A collection of appends.
trait AsCommands {
    fn commands(&mut self) -> impl Iterator<Item = &mut AppendCommand>;
}

impl AsCommands for [AppendCommand; 1] {
    fn commands(&mut self) -> impl Iterator<Item = &mut AppendCommand> {
        self.iter_mut()
    }
}

impl AsCommands for Vec<(AppendCommand, AppendCompletion)> {
    fn commands(&mut self) -> impl Iterator<Item = &mut AppendCommand> {
        self.iter_mut().map(|(append, _)| append)
    }
}

fn run_appender(
    store: &Store,
    acl_cache: &Arc<AclCache>,
    mut jobs: mpsc::UnboundedReceiver<AppendJob>,
    queued_jobs: &AtomicUsize,
) {
    while let Some(job) = jobs.blocking_recv() {
        let mut count = 0;
        let (mut appends, mut completions, mut results) = (Vec::new(), Vec::new(), Vec::new());
        let mut next = Some(job);
        while let Some(job) = next {
            count += 1;
            match job {
                AppendJob::Single(append, completion) => {
                    appends.push(append);
                    completions.push(completion);
                }
                AppendJob::Many(many) => {
                    let first = many.first();
                    results.extend(first.and_then(|(_, first)| first.batch_results()).cloned());
                    for (append, completion) in many {
                        appends.push(append);
                        completions.push(completion);
                    }
                }
            }
            next = (appends.len() < APPENDS_PER_GROUP).then(|| jobs.try_recv().ok()).flatten();
        }
        let _deferred: Vec<_> = results.iter().map(|results| results.defer_wakeup()).collect();
        let submitted = submit_each(store, &mut appends);
        for ((append, pending), completion) in appends.into_iter().zip(submitted).zip(completions) {
            complete(acl_cache, append, pending, completion);
        }
        queued_jobs.fetch_sub(count, Ordering::AcqRel);
    }
}

/// Submits appends to the store in order.
fn submit_each(store: &Store, commands: &mut [AppendCommand]) -> Vec<Result<PendingAppend, Error>> {
    let checked: Vec<_> = commands.iter_mut().map(AppendCommand::take_checked_metadata).collect();
    let events = commands.iter().flat_map(AppendCommand::events).map(ProposedEvent::as_new_event);
    let events: Vec<NewEvent<'_>> = events.collect();
    let targets = commands.iter().flat_map(AppendCommand::streams);
    // Most commands have one target.
    let mut appends: Vec<StreamAppend<'_>> = Vec::with_capacity(commands.len());
    appends.extend(stream_appends(targets, &events));
    let checks = commands.iter().flat_map(|command| &command.checks);
    let checks: Vec<StreamCheck<'_>> =
        checks.map(|(stream, expected)| StreamCheck { stream, expected: *expected }).collect();
    let (mut rest, mut rest_checks) = (&appends[..], &checks[..]);
    let requests = commands
        .iter()
        .zip(checked)
        .map(|(command, checked)| {
            let (appends, others) = rest.split_at(command.streams().len());
            let (checks, other_checks) = rest_checks.split_at(command.checks.len());
            (rest, rest_checks) = (others, other_checks);
            let request = AppendRequest { appends, checks };
            (request, checked.unwrap_or_else(|| request.check_metadata()))
        })
        .collect();
    store.submit_each_checked(requests)
}

/// Resolves the completion once the append is acknowledged. Releases the append's quota share
/// before.
fn complete(
    acl_cache: &Arc<AclCache>,
    append: AppendCommand,
    pending: Result<PendingAppend, Error>,
    completion: AppendCompletion,
) {
    let system_streams = append.into_system_streams();
    match pending {
        Ok(pending) if system_streams.is_empty() => {
            pending.on_acknowledged(move |results| completion.resolve(results));
        }
        Ok(pending) => {
            let acl_cache = Arc::clone(acl_cache);
            pending.on_acknowledged(move |results| {
                system_streams.iter().for_each(|stream| acl_cache.invalidate(stream));
                completion.resolve(results);
            });
        }
        Err(error) => completion.resolve(Err(error)),
    }
}
