//! A subscription: every event after a place, those there are first, then those that come.
//!
//! There is no queue between the store and a subscriber: each page is read from the store when the
//! one before it was taken, so that a slow subscriber costs nothing but the time until it has
//! caught up. The order below keeps gaps out: a bell is hung up before the store is read, so that
//! whatever becomes visible later rings it; and it waits only behind a page that says that nothing
//! more could be seen when it was asked for. The bell of a subscription to a stream rings for that
//! stream's events and for no others.
//!
//! One with a filter is told how far it has looked: after so many events as it asked for, when it
//! has caught up, and soon after other events came that do not pass.

use std::sync::Arc;

use tokio::time::Instant;
use tonic::Status;
use umbel_events::{EventFilter, Since, Subscribed, is_view};
use umbel_proto::streams::ReadResp;
use umbel_proto::streams::read_resp::{Checkpoint, Content, Progress, SubscriptionConfirmation};

use crate::deadline::{self, Deadline};
use crate::follower::{Bell, Follower, Found};
use crate::limits::CHECKPOINT_TIME;
use crate::permit::Permit;
use crate::read_request::{Origin, ReadRequest, Start};
use crate::service::Service;
use crate::unread::Held;
use crate::{convert, failure};

type Answer = Result<ReadResp, Status>;

/// The revision of a stream without events, as the protocol's other numbers say it. Without a
/// place some clients take the message for a null pointer.
const NOWHERE: i64 = -1;

/// A subscription on its way.
pub struct Subscription {
    service: Arc<Service>,
    held: Held,
    permit: Permit,
    deadline: Deadline,
    asked: ReadRequest,
    filter: Option<Arc<EventFilter>>,
    /// After how many events that were looked at a filtered subscription is told how far it is.
    interval: Option<u64>,
    /// Hung up before the store was last read; `None` where it has rung.
    bell: Option<Bell>,
    /// `None` before the subscription is confirmed.
    follower: Option<Follower>,
    /// Whether nothing more could be seen when the last page was asked for.
    is_at_the_end: bool,
    has_told_so: bool,
    /// How far the client knows that a filtered subscription has come,
    told: Option<u64>,
    /// and when it is to be told that it is further.
    due: Option<Instant>,
}

impl Subscription {
    /// One that begins where the request says.
    pub fn new(
        (service, held): (Arc<Service>, Held),
        permit: Permit,
        deadline: Deadline,
        mut asked: ReadRequest,
        filter: Option<Arc<EventFilter>>,
    ) -> Subscription {
        // What was asked for may be long, and is in the filter.
        let interval = asked.filter.take().map(|filter| filter.interval);
        Subscription {
            service,
            held,
            permit,
            deadline,
            asked,
            filter,
            interval,
            bell: None,
            follower: None,
            is_at_the_end: false,
            has_told_so: false,
            told: None,
            due: None,
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
        let Some(mut follower) = self.follower.take() else {
            self.follower = Some(self.begin().await?);
            return Ok(vec![self.confirmation()?]);
        };
        loop {
            self.held.give_back().await;
            if self.is_at_the_end {
                self.wait().await?;
            }
            if self.service.is_stopping() {
                return Err(failure::stopping());
            }
            if self.bell.is_none() {
                self.bell = Some(follower.bell());
            }
            follower.show(self.permit.renewed(&self.service).await?);
            if let Origin::Stream(name, _) = &self.asked.origin {
                follower.show_through(self.service.gates.through(name));
            }
            let room = self.deadline.limit(self.held.room()).await??;
            let page = self.service.store.follow(follower, room);
            let page = self.deadline.limit(page).await?;
            let (page, room) = page.map_err(|error| failure::status(&error))?;
            self.held.hold(room, page.bytes());
            self.is_at_the_end = page.is_caught_up;
            let mut answers: Vec<ReadResp> =
                page.found.into_iter().map(|found| self.found(found)).collect();
            follower = page.follower;
            #[cfg(feature = "canary")]
            if umbel_base::canary::Switch::ServerSubscriptionSkips.is_on()
                && self.is_at_the_end
                && matches!(self.asked.origin, Origin::All(_))
            {
                follower = self.follow(Subscribed::All, Since::End).await?;
            }
            let is_news = page.is_caught_up && !self.has_told_so;
            answers.extend(self.checkpoint(follower.place(), is_news));
            if is_news {
                self.has_told_so = true;
                answers.push(self.caught_up(follower.place()));
            }
            if !answers.is_empty() {
                self.follower = Some(follower);
                return Ok(answers);
            }
        }
    }

    /// Begins after the event that the request names.
    async fn begin(&self) -> Result<Follower, Status> {
        let (what, start) = match (&self.asked.origin, &self.filter) {
            (Origin::Stream(name, start), _) if is_view(name) => {
                (Subscribed::View(name.to_string()), start)
            }
            (Origin::Stream(name, start), _) => (Subscribed::Stream(name.to_string()), start),
            (Origin::All(start), None) => (Subscribed::All, start),
            (Origin::All(start), Some(filter)) => (Subscribed::Filtered(Arc::clone(filter)), start),
        };
        let since = match start {
            Start::First => Since::Start,
            Start::At(place) => Since::After(*place),
            Start::Last => Since::End,
        };
        #[cfg(feature = "canary")]
        let since = match since {
            Since::After(place)
                if umbel_base::canary::Switch::ServerSubscriptionRepeats.is_on() =>
            {
                place.checked_sub(1).map_or(Since::Start, Since::After)
            }
            since => since,
        };
        self.follow(what, since).await
    }

    async fn follow(&self, what: Subscribed, since: Since) -> Result<Follower, Status> {
        let subscription = self.service.store.subscribe(what, since);
        let subscription =
            self.deadline.limit(subscription).await?.map_err(|error| failure::status(&error))?;
        let interval = self.interval;
        let clock = &self.service.env.clock;
        let is_of_all = matches!(self.asked.origin, Origin::All(_));
        Ok(Follower::new(subscription, clock, interval, self.asked.resolves, is_of_all))
    }

    /// Waits until more can be read than when the bell was hung up, or the client is to be told
    /// how far it is.
    async fn wait(&mut self) -> Result<(), Status> {
        if let Some(bell) = &mut self.bell {
            tokio::select! {
                () = bell.rung() => {}
                () = Deadline::at(self.due).passed() => {}
                () = self.service.stopping() => return Err(failure::stopping()),
                () = self.deadline.passed() => return Err(deadline::too_late()),
            }
        }
        self.bell = None;
        Ok(())
    }

    fn found(&mut self, found: Found) -> ReadResp {
        match found {
            Found::Event(event) => {
                let original = event.link.as_ref().or(event.event.as_ref());
                self.told = original.map(|event| event.position).or(self.told);
                convert::read_event(event, self.asked.form)
            }
            Found::Checkpoint(position) => {
                (self.told, self.due) = (Some(position), None);
                self.checkpoint_at(position)
            }
        }
    }

    /// How far a filtered subscription has come, where the client is to be told.
    fn checkpoint(&mut self, place: Option<u64>, is_news: bool) -> Option<ReadResp> {
        self.filter.as_ref()?;
        if place <= self.told {
            self.due = None;
        } else if self.due.is_none() {
            self.due = Instant::now().checked_add(CHECKPOINT_TIME);
        }
        if !is_news && !Deadline::at(self.due).has_passed() {
            return None;
        }
        (self.told, self.due) = (place, None);
        Some(self.checkpoint_at(place.unwrap_or(0)))
    }

    fn checkpoint_at(&self, position: u64) -> ReadResp {
        let timestamp = Some(convert::timestamp(self.service.env.clock.wall_micros()));
        let (commit_position, prepare_position) = (position, position);
        convert::answer(Content::Checkpoint(Checkpoint {
            commit_position,
            prepare_position,
            timestamp,
        }))
    }

    fn confirmation(&self) -> Result<ReadResp, Status> {
        let id = self.service.new_id().map_err(|error| failure::status(&error.into()))?;
        let subscription_id = id.to_string();
        Ok(convert::answer(Content::Confirmation(SubscriptionConfirmation { subscription_id })))
    }

    fn caught_up(&self, place: Option<u64>) -> ReadResp {
        let timestamp = Some(convert::timestamp(self.service.env.clock.wall_micros()));
        let (stream_revision, position) = match self.asked.origin {
            Origin::Stream(..) => (Some(place.map_or(NOWHERE, |revision| revision as i64)), None),
            Origin::All(_) => (None, Some(convert::position(place.unwrap_or(0)))),
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
    use crate::access::Caller;
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
                    resolves: false,
                    filter: None,
                };
                append("cart");
                let service = Arc::clone(&stage.service);
                let permit = Permit::new(&service, Caller::Trusted, "cart").await.unwrap();
                let held = service.unread.held(None);
                let (never, of) = (Deadline::NEVER, (service, held));
                let subscription = Subscription::new(of, permit, never, asked, None);
                let mut answers = in_steps(subscription, Subscription::step);
                while !matches!(
                    answers.next().await.unwrap().unwrap().content,
                    Some(Content::CaughtUp(_))
                ) {}
                let woken = Arc::new(Woken::default());
                let waker = Waker::from(Arc::clone(&woken));
                let mut context = Context::from_waker(&waker);
                let times = || woken.0.load(Ordering::SeqCst);
                // It pauses once, so that what it said goes.
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
