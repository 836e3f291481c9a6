//! A subscription: every event after a place, those there are first, then those that come.
//!
//! There is no queue between the store and a subscriber: each page is read from the store when the
//! one before it was taken, so that a slow subscriber costs nothing but the time until it has
//! caught up. The order below keeps gaps out: what is visible is noted as seen before the store is
//! read, so that whatever becomes visible later wakes the next wait; and it waits only behind a
//! page that says that nothing more could be seen when it was asked for.

use std::sync::Arc;

use crate::limits::PAGE_EVENTS_MAX;
use tokio::sync::watch;
use tonic::Status;
use umbel_events::{Direction, StreamState};
use umbel_proto::streams::ReadResp;
use umbel_proto::streams::read_resp::{Content, Progress, SubscriptionConfirmation};

use crate::deadline::{self, Deadline};
use crate::read_request::{Origin, ReadRequest, Start};
use crate::service::Service;
use crate::store::{Reader, Source};
use crate::{convert, failure};

type Answer = Result<ReadResp, Status>;

/// A subscription on its way.
pub struct Subscription {
    service: Arc<Service>,
    deadline: Deadline,
    asked: ReadRequest,
    visible: watch::Receiver<u64>,
    /// `None` before the subscription is confirmed.
    reader: Option<Reader>,
    /// Whether nothing more could be seen when the last page was asked for.
    is_at_the_end: bool,
    has_told_so: bool,
}

impl Subscription {
    /// One that begins where the request says.
    pub fn new(service: Arc<Service>, deadline: Deadline, asked: ReadRequest) -> Subscription {
        let visible = service.store.watch();
        Subscription {
            service,
            deadline,
            asked,
            visible,
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
            self.visible.borrow_and_update();
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

    /// Waits until more is visible than when the store was last read.
    async fn wait(&mut self) -> Result<(), Status> {
        tokio::select! {
            more = self.visible.changed() => more.map_err(|_| failure::stopping()),
            () = self.service.stopping() => Err(failure::stopping()),
            () = self.deadline.passed() => Err(deadline::too_late()),
        }
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
