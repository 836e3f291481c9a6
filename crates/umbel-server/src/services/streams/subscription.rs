//! A subscription: all events after a position, existing ones first, then new ones.
//!
//! A subscription has no queue between the store and the subscriber. Each page is read from the
//! store once the subscriber has taken the page before. So a slow subscriber needs no memory, only
//! more time until it has caught up.
//!
//! The order of steps excludes gaps. A page registers the wake-up before it reads the store, so any
//! event that becomes visible later wakes the subscription. The subscription waits only after a
//! page whose read found no more events. Only events of its stream wake a subscription to a stream.
//!
//! A filtered subscription sends checkpoints: after the requested number of examined events, when
//! it has caught up, and soon after events that do not pass.

use std::future::poll_fn;
use std::iter;
use std::sync::Arc;

use tokio::time::Instant;
use tonic::Status;
use umbel_base::fail_point;
use umbel_env::Clock;
use umbel_events::{Position, Source, SubscriptionStart, Wakeup};
use umbel_proto::streams::ReadResp;
use umbel_proto::streams::read_req::UuidForm;
use umbel_proto::streams::read_resp::{Checkpoint, Content, Progress, SubscriptionConfirmation};

use crate::event_store::event_resolution::EventResolution;
use crate::event_store::subscription_pager::{
    SubscriptionItem, SubscriptionPage, SubscriptionPager,
};
use crate::limits::CHECKPOINT_TIME;
use crate::protocol::deadline::{self, Deadline};
use crate::protocol::{grpc_status, proto_convert};
use crate::resources::outbound_call_share::OutboundShare;
use crate::server_context::ServerContext;
use crate::services::read_permission::ReadPermission;
use crate::services::streams::read_request::{ReadRequest, ReadStart};

type SubscriptionResult = Result<ReadResp, Status>;

/// The responses of a step, which are built as they are sent.
type SubscriptionResponses = Box<dyn Iterator<Item = SubscriptionResult> + Send>;

/// Revision of a stream without events, as in other fields of the protocol. If the message had no
/// position, some clients would fail with a null pointer.
const EMPTY_STREAM_REVISION: i64 = -1;

/// A subscription in progress.
pub struct CatchUpSubscription {
    service: Arc<ServerContext>,
    held: OutboundShare,
    permission: ReadPermission,
    deadline: Deadline,
    request: ReadRequest,
    /// Number of examined events after which a filtered subscription sends a checkpoint.
    checkpoint_interval: Option<u64>,
    /// Pager of the events; `None` before the subscription is confirmed.
    pager: Option<SubscriptionPager>,
    /// Whether the read of the last page found no more events.
    is_caught_up: bool,
    has_sent_caught_up: bool,
    /// Last checkpoint sent to the client of a filtered subscription.
    last_checkpoint: Option<u64>,
    /// Time of the next checkpoint.
    checkpoint_due: Option<Instant>,
}

impl CatchUpSubscription {
    /// Creates the subscription that a request describes.
    pub fn new(
        (service, held): (Arc<ServerContext>, OutboundShare),
        permission: ReadPermission,
        deadline: Deadline,
        mut request: ReadRequest,
    ) -> CatchUpSubscription {
        // The filter may be long, and is compiled already.
        let interval = request.filter.take().map(|filter| filter.checkpoint_interval);
        CatchUpSubscription {
            service,
            held,
            permission,
            deadline,
            request,
            checkpoint_interval: interval,
            pager: None,
            is_caught_up: false,
            has_sent_caught_up: false,
            last_checkpoint: None,
            checkpoint_due: None,
        }
    }

    /// Returns the next responses, and the subscription if it continues.
    pub async fn step(mut self) -> (SubscriptionResponses, Option<CatchUpSubscription>) {
        match self.next_responses().await {
            Ok(answers) => (answers, Some(self)),
            Err(status) => (Box::new(iter::once(Err(status))), None),
        }
    }

    async fn next_responses(&mut self) -> Result<SubscriptionResponses, Status> {
        let Some(mut follower) = self.pager.take() else {
            self.pager = Some(self.open_pager().await?);
            return Ok(Box::new(iter::once(Ok(self.confirmation()?))));
        };
        loop {
            self.held.release().await;
            if self.is_caught_up {
                self.wait_for_events(&follower.wakeup()).await?;
            }
            if self.service.is_stopping() {
                return Err(grpc_status::shutting_down());
            }
            follower.set_readable_streams(self.permission.revalidate(&self.service).await?);
            let through = self.visible_through();
            let page = self.deadline.limit(self.read_page(follower, through)).await??;
            self.service.store.count_read(page.items.len());
            // The page registers the wake-up after the limit was read. So it may not be used for
            // events that a higher limit shows.
            self.is_caught_up = page.is_caught_up && through == self.visible_through();
            page.items.iter().for_each(|found| self.note_item(found));
            follower = page.pager;
            let is_news = page.is_caught_up && !self.has_sent_caught_up;
            let mut last: Vec<ReadResp> =
                self.due_checkpoint(follower.position(), is_news).into_iter().collect();
            if is_news {
                self.has_sent_caught_up = true;
                last.push(self.caught_up_response(follower.position()));
            }
            if !page.items.is_empty() || !last.is_empty() {
                self.pager = Some(follower);
                let (clock, form) = (Arc::clone(&self.service.env.clock), self.request.form);
                let items = page.items.into_iter();
                let answers = items.map(move |found| item_response(found, &*clock, form));
                return Ok(Box::new(answers.chain(last).map(Ok)));
            }
        }
    }

    async fn read_page(
        &self,
        pager: SubscriptionPager,
        through: Position,
    ) -> Result<SubscriptionPage, Status> {
        let reservation = self.held.reserve_page().await?;
        let page = self.service.store.read_subscription(pager, through, reservation).await;
        let (page, reservation) = page.map_err(|error| grpc_status::status(&error))?;
        self.held.charge(reservation, page.bytes());
        Ok(page)
    }

    /// Opens the source after the event that the request names.
    async fn open_pager(&self) -> Result<SubscriptionPager, Status> {
        self.subscribe(self.request.source.clone(), subscription_start(self.request.start)).await
    }

    async fn subscribe(
        &self,
        source: Source,
        since: SubscriptionStart,
    ) -> Result<SubscriptionPager, Status> {
        let subscription = self.service.store.subscribe(source, since);
        let subscription = self
            .deadline
            .limit(subscription)
            .await?
            .map_err(|error| grpc_status::status(&error))?;
        let interval = self.checkpoint_interval;
        let resolution = EventResolution {
            resolve_links: self.request.resolve_links,
            hides_streams: self.request.source.is_by_position(),
            readable_streams: None,
        };
        Ok(SubscriptionPager::new(subscription, interval, resolution))
    }

    /// Position after which the source shows no events.
    fn visible_through(&self) -> Position {
        self.service.system_projections.limit_of(&self.request.source)
    }

    /// Waits until the subscription is woken or a checkpoint is due.
    async fn wait_for_events(&self, wakeup: &Wakeup) -> Result<(), Status> {
        tokio::select! {
            () = poll_fn(|context| wakeup.poll_wait(context)) => Ok(()),
            () = Deadline::at(self.checkpoint_due).wait() => Ok(()),
            () = self.service.wait_stopping() => Err(grpc_status::shutting_down()),
            () = self.deadline.wait() => Err(deadline::deadline_exceeded()),
        }
    }

    /// Records that an item is sent, which a client may use as a checkpoint.
    fn note_item(&mut self, found: &SubscriptionItem) {
        match found {
            SubscriptionItem::Event(event) => {
                let original = event.link.as_ref().or(event.event.as_ref());
                self.last_checkpoint =
                    original.map(|event| event.position).or(self.last_checkpoint);
            }
            SubscriptionItem::Checkpoint(position) => {
                (self.last_checkpoint, self.checkpoint_due) = (Some(*position), None);
            }
        }
    }

    /// Returns the checkpoint of a filtered subscription, if one is due.
    fn due_checkpoint(&mut self, position: Option<u64>, is_news: bool) -> Option<ReadResp> {
        self.checkpoint_interval?;
        if position <= self.last_checkpoint {
            self.checkpoint_due = None;
        } else if self.checkpoint_due.is_none() {
            self.checkpoint_due = Instant::now().checked_add(CHECKPOINT_TIME);
        }
        if !is_news && !Deadline::at(self.checkpoint_due).has_passed() {
            return None;
        }
        (self.last_checkpoint, self.checkpoint_due) = (position, None);
        Some(checkpoint_response(position.unwrap_or(0), &*self.service.env.clock))
    }

    fn confirmation(&self) -> Result<ReadResp, Status> {
        let id = self.service.new_id().map_err(|error| grpc_status::status(&error.into()))?;
        let subscription_id = id.to_string();
        Ok(proto_convert::read_response(Content::Confirmation(SubscriptionConfirmation {
            subscription_id,
        })))
    }

    fn caught_up_response(&self, reached: Option<u64>) -> ReadResp {
        let timestamp = Some(proto_convert::to_timestamp(self.service.env.clock.wall_micros()));
        let (stream_revision, position) = match self.request.source.is_by_position() {
            false => {
                (Some(reached.map_or(EMPTY_STREAM_REVISION, |revision| revision as i64)), None)
            }
            true => (None, Some(proto_convert::all_position(reached.unwrap_or(0)))),
        };
        proto_convert::read_response(Content::CaughtUp(Progress {
            timestamp,
            stream_revision,
            position,
        }))
    }
}

fn item_response(found: SubscriptionItem, clock: &dyn Clock, form: UuidForm) -> ReadResp {
    match found {
        SubscriptionItem::Event(event) => proto_convert::event_response(event, form),
        SubscriptionItem::Checkpoint(position) => checkpoint_response(position, clock),
    }
}

fn checkpoint_response(position: u64, clock: &dyn Clock) -> ReadResp {
    let timestamp = Some(proto_convert::to_timestamp(clock.wall_micros()));
    let (commit_position, prepare_position) = (position, position);
    proto_convert::read_response(Content::Checkpoint(Checkpoint {
        commit_position,
        prepare_position,
        timestamp,
    }))
}

fn subscription_start(start: ReadStart) -> SubscriptionStart {
    match start {
        ReadStart::First => SubscriptionStart::Start,
        ReadStart::At(position) => start_after(position),
        ReadStart::Last => SubscriptionStart::End,
    }
}

fn start_after(position: u64) -> SubscriptionStart {
    fail_point!("subscribe-repeat-event", |_| {
        position.checked_sub(1).map_or(SubscriptionStart::Start, SubscriptionStart::After)
    });
    SubscriptionStart::After(position)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use futures_util::StreamExt;
    use umbel_events::{ExpectedVersion, NewEvent};

    use super::*;
    use crate::auth::authorization::Caller;
    use crate::grpc::response_stream::stream_steps;
    use crate::services::streams::read_request::ReadExtent;
    use crate::test_support::test_service::{TestService, run_paused};

    /// Counts the wake-ups of a task.
    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Story: every append to the store woke every subscription, which then searched for events of
    /// its stream.
    #[test]
    fn subscription_wakes_only_for_its_stream() {
        let fixture = TestService::new();
        let append = |stream: &str| {
            let event = NewEvent::json(fixture.store.new_id().unwrap(), "Happened", b"{}");
            fixture.store.append(stream, ExpectedVersion::Any, &[event]).unwrap();
        };
        run_paused(async {
            for (source, by_others) in [(Source::named("cart"), 0), (Source::All, 1)] {
                let request = ReadRequest {
                    source,
                    start: ReadStart::First,
                    extent: ReadExtent::Subscription,
                    form: UuidForm::String(()),
                    reports_stream_ends: false,
                    resolve_links: false,
                    filter: None,
                };
                append("cart");
                let service = Arc::clone(&fixture.service);
                let permission =
                    ReadPermission::new(&service, Caller::Trusted, "cart").await.unwrap();
                let held = service.outbound_quota.new_share(None);
                let (never, of) = (Deadline::NEVER, (service, held));
                let subscription = CatchUpSubscription::new(of, permission, never, request);
                let mut answers = stream_steps(subscription, CatchUpSubscription::step);
                while !matches!(
                    answers.next().await.unwrap().unwrap().content,
                    Some(Content::CaughtUp(_))
                ) {}
                let woken = Arc::new(WakeCounter::default());
                let waker = Waker::from(Arc::clone(&woken));
                let mut context = Context::from_waker(&waker);
                let times = || woken.0.load(Ordering::SeqCst);
                // It yields once, so that its responses are sent.
                assert!(answers.poll_next_unpin(&mut context).is_pending());
                assert_eq!(woken.0.swap(0, Ordering::SeqCst), 1);
                assert!(answers.poll_next_unpin(&mut context).is_pending());
                (0..10).for_each(|number| append(&format!("other-{number}")));
                assert_eq!(times(), by_others);
                append("cart");
                assert_eq!(times(), 1, "once, however much is there when it is woken");
                let next = answers.next().await.unwrap().unwrap().content;
                assert!(matches!(next, Some(Content::Event(_))), "{next:?}");
            }
        });
    }
}
