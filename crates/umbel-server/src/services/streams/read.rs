//! The call Read, which streams the events of a stream, or all events, a page at a time.

use std::iter;
use std::sync::Arc;

use tonic::{Request, Response, Status};
use umbel_events::{Direction, Source, StreamState};
use umbel_proto::streams::read_req::UuidForm;
use umbel_proto::streams::read_resp::{Content, StreamNotFound};
use umbel_proto::streams::{ReadReq, ReadResp};

use crate::auth::authorization::Caller;
use crate::event_store::event_pager::{EventPager, ReadRange};
use crate::event_store::event_resolution::resolved_bytes;
use crate::grpc::response_stream;
use crate::grpc::response_stream::{ResponseStream, stream_steps};
use crate::protocol::deadline::Deadline;
use crate::protocol::{grpc_status, proto_convert};
use crate::resources::outbound_call_share::OutboundShare;
use crate::server_context::ServerContext;
use crate::services::read_permission::{ALL_STREAM, ReadPermission};
use crate::services::streams::read_request::{self, ReadExtent, ReadRequest, ReadStart};
use crate::services::streams::subscription::CatchUpSubscription;

type ReadResult = Result<ReadResp, Status>;

/// The responses of a step, which are built as they are sent.
type ReadResponses = Box<dyn Iterator<Item = ReadResult> + Send>;

/// Responds with events, or with a subscription to them.
pub async fn read(
    service: Arc<ServerContext>,
    deadline: Deadline,
    request: Request<ReadReq>,
) -> Result<Response<ResponseStream<ReadResp>>, Status> {
    let held = service.outbound_quota.held_for(request.extensions());
    let caller = Caller::from_extensions(request.extensions());
    let mut parsed = ReadRequest::from_options(request.into_inner().options)?;
    let stream = parsed.source.name().cloned();
    let permission =
        ReadPermission::new(&service, caller, stream.as_deref().unwrap_or(ALL_STREAM)).await?;
    if let (Source::All, ReadStart::At(position)) = (&parsed.source, parsed.start)
        && !service.store.is_position(position)
    {
        return Err(read_request::invalid_position());
    }
    if let Some(filter) = &parsed.filter {
        parsed.source = Source::Filtered(service.store.compile_filter(filter.clone()).await?);
    }
    let unsent = held.unsent_page();
    let answers = match parsed.extent {
        ReadExtent::Count(count, direction) => {
            let from = match parsed.start {
                ReadStart::First => 0,
                ReadStart::Last => u64::MAX,
                ReadStart::At(number) => number,
            };
            let through = service.system_projections.limit_of(&parsed.source);
            let range = ReadRange { source: parsed.source, direction, from, through };
            let reading = ReadCall {
                service,
                quota_share: held,
                permission,
                deadline,
                form: parsed.form,
                reports_stream_ends: parsed.reports_stream_ends,
                stream,
                from,
                direction,
                pager: Some(EventPager::new(range, parsed.resolve_links)),
                left: count,
                has_responded: false,
            };
            stream_steps(reading, ReadCall::step)
        }
        ReadExtent::Subscription => {
            let subscription =
                CatchUpSubscription::new((service, held), permission, deadline, parsed);
            stream_steps(subscription, CatchUpSubscription::step)
        }
    };
    Ok(response_stream::with_pending_page(answers, unsent))
}

/// A read in progress.
struct ReadCall {
    service: Arc<ServerContext>,
    quota_share: OutboundShare,
    permission: ReadPermission,
    deadline: Deadline,
    form: UuidForm,
    reports_stream_ends: bool,
    stream: Option<Arc<str>>,
    from: u64,
    direction: Direction,
    /// Pager of the events; `None` while a page is read, and at the end.
    pager: Option<EventPager>,
    left: u64,
    has_responded: bool,
}

impl ReadCall {
    async fn step(mut self) -> (ReadResponses, Option<ReadCall>) {
        match self.next_page().await {
            Ok((answers, true)) => (answers, Some(self)),
            Ok((answers, false)) => (answers, None),
            Err(status) => (Box::new(iter::once(Err(status))), None),
        }
    }

    /// Reads the next responses; returns `true` if more responses may follow.
    async fn next_page(&mut self) -> Result<(ReadResponses, bool), Status> {
        if self.service.is_stopping() {
            return Err(grpc_status::shutting_down());
        }
        let Some(mut reader) = self.pager.take() else {
            return Ok((Box::new(iter::empty()), false));
        };
        let reservation = self.deadline.limit(self.quota_share.reserve_page()).await??;
        reader.set_readable_streams(self.permission.revalidate(&self.service).await?);
        let page = self.service.store.read_page(reader, self.left, reservation);
        let page = self.deadline.limit(page).await?;
        let (page, reservation) = page.map_err(|error| grpc_status::status(&error))?;
        self.quota_share.charge(reservation, page.events.iter().map(resolved_bytes).sum());
        self.left -= page.events.len() as u64;
        self.has_responded |= !page.events.is_empty();
        let form = self.form;
        let events = page.events.into_iter();
        let answers = events.map(move |event| Ok(proto_convert::event_response(event, form)));
        if let Some(reader) = page.pager.filter(|_| self.left > 0) {
            self.pager = Some(reader);
            return Ok((Box::new(answers), true));
        }
        let mut ends = Vec::new();
        if let (Some(name), Some(state)) = (&self.stream, page.state) {
            self.push_end(&mut ends, name, state)?;
        }
        Ok((Box::new(answers.chain(ends)), false))
    }

    /// Appends the responses about the stream itself, which follow its events.
    fn push_end(
        &self,
        answers: &mut Vec<ReadResult>,
        name: &str,
        state: StreamState,
    ) -> Result<(), Status> {
        match state {
            StreamState::Tombstoned => return Err(grpc_status::stream_deleted(name)),
            StreamState::Missing | StreamState::Deleted { .. } if !self.has_responded => {
                let stream_identifier = Some(proto_convert::stream_identifier(name));
                let missing = Content::StreamNotFound(StreamNotFound { stream_identifier });
                answers.push(Ok(proto_convert::read_response(missing)));
            }
            StreamState::Live { first, last } if self.reports_stream_ends => {
                let is_before = self.from < first;
                if !self.has_responded && is_before && self.direction == Direction::Forwards {
                    answers.push(Ok(proto_convert::read_response(Content::FirstStreamPosition(
                        first,
                    ))));
                }
                answers.push(Ok(proto_convert::read_response(Content::LastStreamPosition(last))));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
