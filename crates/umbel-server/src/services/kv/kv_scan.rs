//! Scan: a range of keys in one state.

use tonic::{Request, Response, Status};
use umbel_proto::kv::{ScanRequest, ScanResponse};

use super::lease::Lease;
use super::permit::Permit;
use super::{Call, request};
use crate::access::Caller;
use crate::answers::{Answers, counted, in_steps};
use crate::deadline::{Deadline, too_late};
use crate::failure;
use crate::kv_store::{ScanPage, Scanner};
use crate::planted::{Bug, planted};
use crate::unread::Held;

type Answer = Result<ScanResponse, Status>;

/// Answers with the keys of a range.
pub async fn scan(
    call: Call,
    asked: Request<ScanRequest>,
) -> Result<Response<Answers<ScanResponse>>, Status> {
    let held = call.service.unread.held_for(asked.extensions());
    let permit = Permit::new(Caller::of(asked.extensions()));
    let mut asked = asked.into_inner();
    let range = request::range(&mut asked)?;
    let keyspace = request::keyspace(&call.kv, &asked.keyspace)?;
    let scanner = Scanner::new(keyspace, range, asked.limit)
        .reversed(asked.reverse && !planted(Bug::ReverseForgotten))
        .without_values(asked.keys_only);
    let snapshot = call.kv.snapshot();
    let unsent = held.unsent();
    let pages = Pages::new(call, (held, permit), scanner, snapshot);
    Ok(counted(in_steps(pages, step), unsent))
}

async fn step(mut pages: Pages) -> (Vec<Answer>, Option<Pages>) {
    let sequence = pages.sequence();
    match pages.next().await {
        Ok(Some(page)) => (vec![Ok(ScanResponse { entries: page.entries, sequence })], Some(pages)),
        Ok(None) => (Vec::new(), None),
        Err(status) => (vec![Err(status)], None),
    }
}

/// The pages of a scan on its way.
#[derive(Debug)]
pub struct Pages {
    call: Call,
    held: Held,
    permit: Permit,
    lease: Lease,
    /// When the state is no longer kept.
    until: Deadline,
    /// Taken away while it reads, and at the end.
    scanner: Option<Scanner>,
}

impl Pages {
    /// Those of `scanner` in the state of `snapshot`.
    pub fn new(
        call: Call,
        (held, permit): (Held, Permit),
        scanner: Scanner,
        snapshot: umbel::Snapshot,
    ) -> Pages {
        let until = call.deadline.earlier(Deadline::after(call.kv.scan_time()));
        let lease = Lease::new(snapshot, until);
        Pages { call, held, permit, lease, until, scanner: Some(scanner) }
    }

    /// The newest write that they show.
    pub fn sequence(&self) -> u64 {
        self.lease.sequence()
    }

    /// The next page; nothing behind the last one.
    pub async fn next(&mut self) -> Result<Option<ScanPage>, Status> {
        let Some(scanner) = self.scanner.take() else { return Ok(None) };
        if self.call.service.is_stopping() {
            return Err(failure::stopping());
        }
        let room = self.until.limit(self.held.room()).await.map_err(|_| self.late())??;
        self.permit.renewed(&self.call.service).await?;
        let snapshot = self.lease.snapshot().ok_or_else(|| self.late())?;
        let page = self.until.limit(self.call.kv.page(scanner, snapshot, room)).await;
        let ((page, scanner), room) = page.map_err(|_| self.late())??;
        self.held.hold(room, page.bytes);
        self.scanner = (!page.is_last).then_some(scanner);
        Ok(Some(page))
    }

    /// Lets go of the state, and gives back what is held and who may go on.
    pub fn into_rest(self) -> (Held, Permit) {
        (self.held, self.permit)
    }

    fn late(&self) -> Status {
        if self.call.deadline.has_passed() {
            return too_late();
        }
        let seconds = self.call.kv.scan_time().as_secs();
        Status::aborted(format!(
            "what the scan shows is kept for {seconds} seconds, and those are over; scan on from \
             behind the last key that came"
        ))
    }
}
