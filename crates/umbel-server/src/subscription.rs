//! A subscription: every event after a place, those there are first, then those that come.
//!
//! There is no queue between the store and a subscriber: each page is read from the store when the
//! one before it was taken, so that a slow subscriber costs nothing but the time until it has
//! caught up. The order below keeps gaps out: a bell is hung up before the store is read, so that
//! whatever becomes visible later rings it; and it waits only behind a page that says that nothing
//! more could be seen when it was asked for. The bell of a subscription to a stream rings for that
//! stream's events and for no others.

use std::sync::Arc;

use crate::limits::PAGE_EVENTS_MAX;
use tonic::Status;
use umbel_events::{Direction, StreamState};
use umbel_proto::streams::ReadResp;
use umbel_proto::streams::read_resp::{Content, Progress, SubscriptionConfirmation};

use crate::deadline::{self, Deadline};
use crate::read_request::{Origin, ReadRequest, Start};
use crate::service::Service;
use crate::store::{Bell, Reader, Source};
use crate::{convert, failure};

type Answer = Result<ReadResp, Status>;

/// A subscription on its way.
pub struct Subscription {
    service: Arc<Service>,
    deadline: Deadline,
    asked: ReadRequest,
    /// Hung up before the store was last read; `None` where it has rung.
    bell: Option<Bell>,
    /// `None` before the subscription is confirmed.
    reader: Option<Reader>,
    /// Whether nothing more could be seen when the last page was asked for.
    is_at_the_end: bool,
    has_told_so: bool,
}

impl Subscription {
    /// One that begins where the request says.
    pub fn new(service: Arc<Service>, deadline: Deadline, asked: ReadRequest) -> Subscription {
        Subscription {
            service,
            deadline,
            asked,
            bell: None,
            reader: None,
            is_at_the_end: false,
            has_told_so: false,
        }
    }

    /// The next answers.
    pub async fn step(mut self) -> (Vec<Answer>, Option<Subscription>) {
        match self.answers().await {
            Ok(answers) => (answers.into_iter().map(Ok).collect(), Some(self)),
            Err(status) => (vec![Err(status)], None),
        }
    }

    async fn answers(&mut self) -> Result<Vec<ReadResp>, Status> {
        let Some(mut reader) = self.reader.take() else {
            self.reader = Some(self.begin().await?);
            return Ok(vec![self.confirmation()?]);
        };
        loop {
            if self.is_at_the_end {
                self.wait().await?;
            }
            if self.bell.is_none() {
                self.bell = Some(self.service.store.bell(reader.source()));
            }
            let page = self.service.store.page(reader, PAGE_EVENTS_MAX as u64);
            let page = self.deadline.limit(page).await?.map_err(|error| failure::status(&error))?;
            self.is_at_the_end = page.is_up_to_date;
            let events = page.events.into_iter();
            let mut answers: Vec<ReadResp> =
                events.map(|event| convert::read_event(event, self.asked.form)).collect();
            reader = page.reader;
            #[cfg(feature = "canary")]
            if umbel_base::canary::Switch::ServerSubscriptionSkips.is_on()
                && self.is_at_the_end
                && matches!(self.asked.origin, Origin::All(_))
            {
                let behind = self.service.store.visible().saturating_add(1);
                reader = Reader::new(Source::All, Direction::Forwards, behind);
            }
            if page.is_up_to_date && !self.has_told_so {
                self.has_told_so = true;
                answers.push(self.caught_up(reader.next()));
            }
            if !answers.is_empty() {
                self.reader = Some(reader);
                return Ok(answers);
            }
        }
    }

    /// Where the first event is that comes: after the one that the request names.
    async fn begin(&self) -> Result<Reader, Status> {
        let (source, from) = match &self.asked.origin {
            Origin::All(start) => {
                let from = match start {
                    Start::First => 0,
                    Start::At(position) => position.saturating_add(1),
                    Start::Last => self.service.store.visible().saturating_add(1),
                };
                (Source::All, from)
            }
            Origin::Stream(name, start) => {
                let from = match start {
                    Start::First => 0,
                    Start::At(revision) => revision.saturating_add(1),
                    Start::Last => self.behind_the_last(name).await?,
                };
                (Source::Stream(Arc::clone(name)), from)
            }
        };
        #[cfg(feature = "canary")]
        let from = match umbel_base::canary::Switch::ServerSubscriptionRepeats.is_on() {
            true => from.saturating_sub(1),
            false => from,
        };
        Ok(Reader::new(source, Direction::Forwards, from))
    }

    async fn behind_the_last(&self, name: &Arc<str>) -> Result<u64, Status> {
        let state = self.service.store.stream(Arc::clone(name));
        match self.deadline.limit(state).await?.map_err(|error| failure::status(&error))? {
            StreamState::Missing => Ok(0),
            StreamState::Live { last, .. } | StreamState::Deleted { last } => Ok(last + 1),
            StreamState::Tombstoned => Err(failure::stream_deleted(name)),
        }
    }

    /// Waits until more can be read than when the bell was hung up.
    async fn wait(&mut self) -> Result<(), Status> {
        if let Some(bell) = &mut self.bell {
            tokio::select! {
                () = bell.rung() => {}
                () = self.service.stopping() => return Err(failure::stopping()),
                () = self.deadline.passed() => return Err(deadline::too_late()),
            }
        }
        self.bell = None;
        Ok(())
    }

    fn confirmation(&self) -> Result<ReadResp, Status> {
        let id = self.service.new_id().map_err(|error| failure::status(&error.into()))?;
        let subscription_id = id.to_string();
        Ok(convert::answer(Content::Confirmation(SubscriptionConfirmation { subscription_id })))
    }

    /// `next` is the number that the next event has at least.
    fn caught_up(&self, next: u64) -> ReadResp {
        let last = next.checked_sub(1);
        let timestamp = Some(convert::timestamp(self.service.env.clock.wall_micros()));
        let (stream_revision, position) = match self.asked.origin {
            Origin::Stream(..) => (last.map(|last| last as i64), None),
            Origin::All(_) => (None, last.map(convert::position)),
        };
        convert::answer(Content::CaughtUp(Progress { timestamp, stream_revision, position }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use futures_util::StreamExt;
    use umbel_events::{Expected, NewEvent};
    use umbel_proto::streams::read_req::UuidForm;

    use super::*;
    use crate::answers::in_steps;
    use crate::read_request::Extent;
    use crate::stage::{Stage, run};

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Every append of the store woke every subscription, which looked for events of its stream.
    #[test]
    fn a_subscription_to_a_stream_is_woken_by_that_stream_alone() {
        let stage = Stage::new();
        let append = |stream: &str| {
            let event = NewEvent::json(stage.store.new_id().unwrap(), "Happened", b"{}");
            stage.store.append(stream, Expected::Any, &[event]).unwrap();
        };
        run(async {
            let origin = |stream: Option<&str>| match stream {
                Some(stream) => Origin::Stream(stream.into(), Start::First),
                None => Origin::All(Start::First),
            };
            for (stream, by_others) in [(Some("cart"), 0), (None, 1)] {
                let asked = ReadRequest {
                    origin: origin(stream),
                    extent: Extent::Subscription,
                    form: UuidForm::String(()),
                    tells_ends: false,
                };
                append("cart");
                let service = Arc::clone(&stage.service);
                let subscription = Subscription::new(service, Deadline::NEVER, asked);
                let mut answers = in_steps(subscription, Subscription::step);
                while !matches!(
                    answers.next().await.unwrap().unwrap().content,
                    Some(Content::CaughtUp(_))
                ) {}
                let woken = Arc::new(Woken::default());
                let waker = Waker::from(Arc::clone(&woken));
                let mut context = Context::from_waker(&waker);
                assert!(answers.poll_next_unpin(&mut context).is_pending());
                let times = || woken.0.load(Ordering::SeqCst);
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
