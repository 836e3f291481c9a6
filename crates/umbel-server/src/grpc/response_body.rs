//! [`ResponseBody`]: the body of a response, with the resources that it holds until it is written.
//!
//! A connection takes the frames of a response before the client has flow-control window for them.
//! The quota charge and the page slot of a frame therefore travel with its bytes, piece by piece.
//! So a client that takes only some pieces of a long frame still counts as reading.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Response;
use hyper::body::{Bytes, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use crate::resources::connection_registry::{OpenCall, PageSlot};
use crate::resources::outbound_quota::OutboundQuota;
use crate::resources::unsent_page::{FrameCharge, UnsentPage};
use crate::telemetry::response_end::ResponseEnd;

/// Maximum bytes that are passed to the connection at once.
const PIECE_BYTES: usize = 64 << 10;

/// The body of a response, with its open call.
#[derive(Debug)]
pub struct ResponseBody {
    body: Body,
    end: ResponseEnd,
    quota: Arc<OutboundQuota>,
    /// The page of the response, where it holds quota.
    unsent_page: Option<UnsentPage>,
    page_slot: Option<PageSlot>,
    open_call: OpenCall,
    /// The unsent remainder of a frame, with its quota charge.
    remainder: Option<(Bytes, Option<FrameCharge>)>,
}

/// Bytes of a page that are not written yet.
#[derive(Debug)]
struct PageBytes {
    bytes: Bytes,
    _page_slot: PageSlot,
}

impl ResponseBody {
    /// Wraps a response. The call counts as open until the end of the response. `end` records that
    /// end.
    pub fn wrap(
        call: OpenCall,
        unread: Arc<OutboundQuota>,
        answer: Response<Body>,
        end: ResponseEnd,
    ) -> Response<ResponseBody> {
        let unsent = answer.extensions().get::<UnsentPage>().cloned();
        let page_slot = answer.extensions().get::<PageSlot>().cloned();
        answer.map(|body| ResponseBody {
            body,
            end,
            quota: unread,
            unsent_page: unsent,
            page_slot,
            open_call: call,
            remainder: None,
        })
    }

    /// The quota charge of a frame.
    fn frame_charge(&self, bytes: &Bytes) -> Option<FrameCharge> {
        match &self.unsent_page {
            Some(unsent) => unsent.take_frame_charge().filter(|_| !bytes.is_empty()),
            None => {
                let charge = self.quota.charge_frame(bytes.len(), &self.open_call.connection());
                charge.map(FrameCharge::unreserved)
            }
        }
    }

    /// Removes and returns the first piece of these bytes.
    fn next_piece(&mut self, mut bytes: Bytes, carrier: Option<FrameCharge>) -> Bytes {
        let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
        let carried = match &carrier {
            Some(carrier) => carrier.attach(piece),
            None => piece,
        };
        self.remainder = (!bytes.is_empty()).then_some((bytes, carrier));
        match &self.page_slot {
            Some(slot) => Bytes::from_owner(PageBytes { bytes: carried, _page_slot: slot.clone() }),
            None => carried,
        }
    }
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some((bytes, carrier)) = self.remainder.take() {
            return Poll::Ready(Some(Ok(Frame::data(self.next_piece(bytes, carrier)))));
        }
        let mut polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(trailers) = frame.trailers_mut()
        {
            self.end.record_trailers(trailers);
        }
        polled.map_ok(|frame| {
            frame.map_data(|bytes| {
                let carrier = self.frame_charge(&bytes);
                self.next_piece(bytes, carrier)
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.remainder.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.remainder.as_ref().map_or(0, |(bytes, _)| bytes.len() as u64);
        let (body, mut hint) = (self.body.size_hint(), SizeHint::new());
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(body.lower() + rest);
        hint
    }
}

impl AsRef<[u8]> for PageBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        let is_complete = hyper::body::Body::is_end_stream(&*self);
        self.end.record_end(is_complete);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;
    use crate::resources::connection_registry::ConnectionRegistry;
    use crate::test_support::test_service::run_paused;

    /// Story: the quota of a long frame was held until its last byte was written. So a client that
    /// read the frame slowly looked like a client that reads nothing.
    #[test]
    fn long_frame_is_split_and_charged_until_its_last_piece() {
        run_paused(async {
            let registry = Arc::new(ConnectionRegistry::default());
            let slot = registry.register(None);
            let unread = Arc::new(OutboundQuota::new(0));
            let bytes: Vec<u8> = (0..3 * PIECE_BYTES + 5).map(|at| at as u8).collect();
            let body = Body::new(Full::new(Bytes::from(bytes.clone())));
            let answer = Response::new(body);
            let answer = ResponseBody::wrap(
                slot.connection.begin_call(),
                Arc::clone(&unread),
                answer,
                ResponseEnd::default(),
            );
            let (mut body, mut pieces) = (answer.into_body(), Vec::new());
            while let Some(frame) = body.frame().await {
                pieces.push(frame.unwrap().into_data().unwrap());
                let left = bytes.len() - pieces.iter().map(Bytes::len).sum::<usize>();
                assert_eq!(hyper::body::Body::size_hint(&body).exact(), Some(left as u64));
                assert_eq!(hyper::body::Body::is_end_stream(&body), left == 0);
            }
            assert_eq!((pieces.len(), pieces.concat()), (4, bytes));
            pieces.truncate(1);
            assert_eq!(unread.bytes(), 3 * PIECE_BYTES, "a piece holds the frame");
            pieces.clear();
            assert_eq!(unread.bytes(), 0);
        });
    }
}
