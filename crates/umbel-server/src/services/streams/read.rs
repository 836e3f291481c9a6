//! Read: some events of a stream or of all, one page of the store after the other.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use umbel_events::{Direction, EventFilter, StreamState, is_view};
use umbel_proto::streams::read_req::UuidForm;
use umbel_proto::streams::read_resp::{Content, StreamNotFound};
use umbel_proto::streams::{ReadReq, ReadResp};

use crate::access::Caller;
use crate::answers::{Answers, in_steps};
use crate::deadline::Deadline;
use crate::permit::{ALL_STREAM, Permit};
use crate::read_request::{self, Extent, Origin, ReadRequest, Start};
use crate::reader::{Reader, Source, bytes_of};
use crate::service::Service;
use crate::subscription::Subscription;
use crate::unread::Held;
use crate::{answers, convert, failure};

type Answer = Result<ReadResp, Status>;

/// Answers with events, or with a subscription to them.
pub async fn read(
    service: Arc<Service>,
    deadline: Deadline,
    request: Request<ReadReq>,
) -> Result<Response<Answers<ReadResp>>, Status> {
    let held = service.unread.held_for(request.extensions());
    let caller = Caller::of(request.extensions());
    let asked = ReadRequest::read(request.into_inner().options)?;
    let stream = match &asked.origin {
        Origin::Stream(name, _) => Arc::clone(name),
        Origin::All(_) => ALL_STREAM.into(),
    };
    let permit = Permit::new(&service, caller, &stream).await?;
    if let Origin::All(Start::At(position)) = asked.origin
        && position > service.store.visible()
    {
        return Err(read_request::invalid_position());
    }
    let filter = match &asked.filter {
        Some(filter) => Some(service.store.filter(filter.clone()).await?),
        None => None,
    };
    let unsent = held.unsent();
    let answers = match asked.extent {
        Extent::Count(count, direction) => {
            let (source, from) = begin(&service, &asked.origin, filter);
            let stream = match &source {
                Source::Stream(name) | Source::View(name, _) => Some(Arc::clone(name)),
                Source::All | Source::Filtered(_) => None,
            };
            let reading = Reading {
                service,
                held,
                permit,
                deadline,
                form: asked.form,
                tells_ends: asked.tells_ends,
                stream,
                from,
                direction,
                reader: Some(Reader::new(source, direction, from, asked.resolves)),
                left: count,
                has_answered: false,
            };
            in_steps(reading, Reading::step)
        }
        Extent::Subscription => {
            let subscription = Subscription::new((service, held), permit, deadline, asked, filter);
            in_steps(subscription, Subscription::step)
        }
    };
    Ok(answers::counted(answers, unsent))
}

/// What a read is of, and where it begins.
fn begin(service: &Service, origin: &Origin, filter: Option<Arc<EventFilter>>) -> (Source, u64) {
    let (source, start) = match (origin, filter) {
        (Origin::Stream(name, start), _) if is_view(name) => {
            (Source::View(Arc::clone(name), service.gates.through(name)), start)
        }
        (Origin::Stream(name, start), _) => (Source::Stream(Arc::clone(name)), start),
        (Origin::All(start), None) => (Source::All, start),
        (Origin::All(start), Some(filter)) => (Source::Filtered(filter), start),
    };
    let from = match start {
        Start::First => 0,
        Start::Last => u64::MAX,
        Start::At(number) => *number,
    };
    (source, from)
}

/// A read on its way.
struct Reading {
    service: Arc<Service>,
    held: Held,
    permit: Permit,
    deadline: Deadline,
    form: UuidForm,
    tells_ends: bool,
    stream: Option<Arc<str>>,
    from: u64,
    direction: Direction,
    /// Taken away while it reads, and at the end.
    reader: Option<Reader>,
    left: u64,
    has_answered: bool,
}

impl Reading {
    async fn step(mut self) -> (Vec<Answer>, Option<Reading>) {
        match self.page().await {
            Ok((answers, true)) => (answers, Some(self)),
            Ok((answers, false)) => (answers, None),
            Err(status) => (vec![Err(status)], None),
        }
    }

    /// The next answers, and whether more may come.
    async fn page(&mut self) -> Result<(Vec<Answer>, bool), Status> {
        if self.service.is_stopping() {
            return Err(failure::stopping());
        }
        let Some(mut reader) = self.reader.take() else { return Ok((Vec::new(), false)) };
        let room = self.deadline.limit(self.held.room()).await??;
        reader.show(self.permit.renewed(&self.service).await?);
        let page = self.service.store.page(reader, self.left, room);
        let page = self.deadline.limit(page).await?;
        let (page, room) = page.map_err(|error| failure::status(&error))?;
        self.held.hold(room, page.events.iter().map(bytes_of).sum());
        self.left -= page.events.len() as u64;
        self.has_answered |= !page.events.is_empty();
        let form = self.form;
        let events = page.events.into_iter();
        let mut answers = events.map(|event| Ok(convert::read_event(event, form))).collect();
        if let Some(reader) = page.reader.filter(|_| self.left > 0) {
            self.reader = Some(reader);
            return Ok((answers, true));
        }
        if let (Some(name), Some(state)) = (&self.stream, page.state) {
            self.end(&mut answers, name, state)?;
        }
        Ok((answers, false))
    }

    /// What is said of the stream itself, after its events.
    fn end(&self, answers: &mut Vec<Answer>, name: &str, state: StreamState) -> Result<(), Status> {
        match state {
            StreamState::Tombstoned => return Err(failure::stream_deleted(name)),
            StreamState::Missing | StreamState::Deleted { .. } if !self.has_answered => {
                let stream_identifier = Some(convert::identifier(name));
                let missing = Content::StreamNotFound(StreamNotFound { stream_identifier });
                answers.push(Ok(convert::answer(missing)));
            }
            StreamState::Live { first, last } if self.tells_ends => {
                let is_before = self.from < first;
                if !self.has_answered && is_before && self.direction == Direction::Forwards {
                    answers.push(Ok(convert::answer(Content::FirstStreamPosition(first))));
                }
                answers.push(Ok(convert::answer(Content::LastStreamPosition(last))));
            }
            _ => {}
        }
        Ok(())
    }
}
