//! Subscribers that stay from the first event to the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use umbel_proto::read_options::{of_all, of_stream, subscription};
use umbel_proto::streams::read_req::{AllOption, RevisionOption};

use crate::serving::messages::now;
use crate::serving::soak::soak_context::{AnswerStream, SoakContext, SoakPhase, WorkResult};
use crate::serving::soak::soak_event::event_info;
use crate::serving::soak::soak_oracle::stream_name;
use crate::serving::soak::soak_plan::{SoakWork, WRITERS};
use crate::serving::soak::writer_order_check::WriterOrder;

/// Number of subscribers to all events.
const OF_ALL: usize = 2;
/// The position of one of this many events is kept.
const REMEMBERED: u64 = 512;

/// Progress of a subscriber.
#[derive(Debug)]
enum SubscriberProgress {
    /// Progress of a subscriber to all: number of events of each writer.
    Writers(Vec<AtomicU64>),
    /// Progress of a subscriber to a stream: number of events.
    Stream(usize, AtomicU64),
}

/// Subscribers that stay from the first event to the last.
#[derive(Debug)]
pub(super) struct LongSubscriptions(Vec<Arc<SubscriberProgress>>);

impl LongSubscriptions {
    /// Starts [`OF_ALL`] subscriptions to all, and one to every eighth growing stream.
    pub(super) async fn begin(context: &Arc<SoakContext>) -> WorkResult<LongSubscriptions> {
        let zeros = || (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        let mut all = Vec::new();
        all.extend((0..OF_ALL).map(|_| Arc::new(SubscriberProgress::Writers(zeros()))));
        let streams = (0..context.oracle.streams()).step_by(8);
        all.extend(
            streams.map(|stream| Arc::new(SubscriberProgress::Stream(stream, AtomicU64::new(0)))),
        );
        let connection = context.connect().await?;
        for (at, progress) in all.iter().enumerate() {
            let options = match &**progress {
                SubscriberProgress::Writers(_) => of_all(AllOption::Start(())),
                SubscriberProgress::Stream(stream, _) => {
                    of_stream(&stream_name(*stream), RevisionOption::Start(()))
                }
            };
            let mut answers = AnswerStream::open(&connection, subscription(options)).await?;
            answers.confirmed().await?;
            let (context, progress) = (Arc::clone(context), Arc::clone(progress));
            tokio::spawn(async move {
                let ended = follow(&context, &progress, at == 0, &mut answers).await;
                if !context.has_reached(SoakPhase::Ended) {
                    context.oracle.wrong(format!("a long subscription: {ended}"));
                }
            });
        }
        Ok(LongSubscriptions(all))
    }

    /// Waits until every subscriber has every event that was acknowledged before the call.
    pub(super) async fn catch_up(&self, context: &SoakContext, timeout: Duration) -> WorkResult {
        let acknowledged: Vec<u64> =
            (0..WRITERS).map(|writer| context.oracle.of(writer).0).collect();
        let is_behind = |progress: &SubscriberProgress| match progress {
            SubscriberProgress::Writers(seen) => (0..WRITERS)
                .any(|writer| seen[writer].load(Ordering::SeqCst) < acknowledged[writer]),
            SubscriberProgress::Stream(stream, seen) => {
                seen.load(Ordering::SeqCst) < context.oracle.in_stream(*stream)
            }
        };
        let all = async {
            while self.0.iter().any(|progress| is_behind(progress)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(timeout, all).await.map_err(|_| {
            let lagging: Vec<_> = self.0.iter().filter(|progress| is_behind(progress)).collect();
            format!("subscribers did not receive {acknowledged:?}: {lagging:?}")
        })
    }
}

/// Receives events until the end or an error. Returns the reason of the end.
async fn follow(
    context: &SoakContext,
    progress: &SubscriberProgress,
    remembers: bool,
    answers: &mut AnswerStream,
) -> String {
    let mut order = WriterOrder::from_start();
    for count in 0u64.. {
        let event = match answers.event().await {
            Ok(Some(event)) => event,
            Ok(None) => return "the subscription ended".to_string(),
            Err(text) => return text,
        };
        let (kind, info) = match progress {
            SubscriberProgress::Writers(seen) => match order.note_event(&event) {
                Ok(info) => {
                    if let Some(info) = info {
                        seen[info.writer].store(info.number + 1, Ordering::SeqCst);
                    }
                    (SoakWork::DeliveryAll, info)
                }
                Err(text) => return text,
            },
            SubscriberProgress::Stream(stream, seen) => {
                if event.stream_revision != count {
                    let revision = event.stream_revision;
                    return format!(
                        "{}: revision {revision} came in place of {count}",
                        stream_name(*stream)
                    );
                }
                seen.store(count + 1, Ordering::SeqCst);
                (SoakWork::DeliveryStream, event_info(&event.data))
            }
        };
        if let Some(info) = info {
            let time = now().saturating_sub(info.made_at);
            context.times.add(kind, Duration::from_micros(time));
        }
        if remembers && count.is_multiple_of(REMEMBERED) {
            context.oracle.remember(event.commit_position);
        }
    }
    "the count of events is exhausted".to_string()
}
