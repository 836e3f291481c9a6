//! The call Scan, which streams a range of keys from one snapshot.

use tonic::{Request, Response, Status};
use umbel_base::fail_point;
use umbel_proto::kv::{ScanRequest, ScanResponse};

use crate::auth::authorization::Caller;
use crate::grpc::response_stream::{ResponseStream, stream_steps, with_pending_page};
use crate::kv_store::{ScanPage, Scanner};
use crate::protocol::deadline::{Deadline, deadline_exceeded};
use crate::protocol::grpc_status;
use crate::resources::outbound_call_share::OutboundShare;
use crate::services::kv::kv_call_context::KvCallContext;
use crate::services::kv::operator_permission::OperatorPermission;
use crate::services::kv::request_checks;
use crate::services::kv::snapshot_lease::SnapshotLease;

type ScanResult = Result<ScanResponse, Status>;

/// Responds with the keys of a range.
pub async fn scan(
    call: KvCallContext,
    request: Request<ScanRequest>,
) -> Result<Response<ResponseStream<ScanResponse>>, Status> {
    let held = call.service.outbound_quota.held_for(request.extensions());
    let permission = OperatorPermission::new(Caller::from_extensions(request.extensions()));
    let mut request = request.into_inner();
    let range = request_checks::scan_range(&mut request)?;
    let keyspace = request_checks::find_keyspace(&call.kv, &request.keyspace)?;
    let scanner = Scanner::new(keyspace, range, request.limit)
        .reversed(is_reversed(&request))
        .without_values(request.keys_only);
    let snapshot = call.kv.snapshot();
    let unsent = held.unsent_page();
    let pages = ScanPages::new(call, (held, permission), scanner, snapshot);
    Ok(with_pending_page(stream_steps(pages, step), unsent))
}

/// Whether the keys come in descending order.
fn is_reversed(request: &ScanRequest) -> bool {
    fail_point!("kv-scan-ignore-reverse", |_| false);
    request.reverse
}

async fn step(mut pages: ScanPages) -> (Vec<ScanResult>, Option<ScanPages>) {
    let sequence = pages.sequence();
    match pages.next().await {
        Ok(Some(page)) => (vec![Ok(ScanResponse { entries: page.entries, sequence })], Some(pages)),
        Ok(None) => (Vec::new(), None),
        Err(status) => (vec![Err(status)], None),
    }
}

/// Pages of a scan in progress.
#[derive(Debug)]
pub struct ScanPages {
    call: KvCallContext,
    quota_share: OutboundShare,
    permission: OperatorPermission,
    lease: SnapshotLease,
    /// Time at which the snapshot is released.
    deadline: Deadline,
    /// Scanner of the next page; `None` while a page is read, and at the end.
    scanner: Option<Scanner>,
}

impl ScanPages {
    /// Creates the pages of `scanner` in `snapshot`.
    pub fn new(
        call: KvCallContext,
        (held, permission): (OutboundShare, OperatorPermission),
        scanner: Scanner,
        snapshot: umbel::Snapshot,
    ) -> ScanPages {
        let until = call.deadline.earlier(Deadline::after(call.kv.scan_time()));
        let lease = SnapshotLease::new(snapshot, until);
        ScanPages {
            call,
            quota_share: held,
            permission,
            lease,
            deadline: until,
            scanner: Some(scanner),
        }
    }

    /// Sequence number of the newest write in the snapshot.
    pub fn sequence(&self) -> u64 {
        self.lease.sequence()
    }

    /// Reads the next page; `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<ScanPage>, Status> {
        let Some(scanner) = self.scanner.take() else { return Ok(None) };
        if self.call.service.is_stopping() {
            return Err(grpc_status::shutting_down());
        }
        let reservation = self
            .deadline
            .limit(self.quota_share.reserve_page())
            .await
            .map_err(|_| self.expired_status())??;
        self.permission.revalidate(&self.call.service).await?;
        let snapshot = self.lease.snapshot().ok_or_else(|| self.expired_status())?;
        let page = self.deadline.limit(self.call.kv.page(scanner, snapshot, reservation)).await;
        let ((page, scanner), reservation) = page.map_err(|_| self.expired_status())??;
        self.quota_share.charge(reservation, page.bytes);
        self.scanner = (!page.is_last).then_some(scanner);
        Ok(Some(page))
    }

    /// Releases the snapshot, and returns the scan's quota share and permission.
    pub fn into_grant(self) -> (OutboundShare, OperatorPermission) {
        (self.quota_share, self.permission)
    }

    fn expired_status(&self) -> Status {
        if self.call.deadline.has_passed() {
            return deadline_exceeded();
        }
        let seconds = self.call.kv.scan_time().as_secs();
        Status::aborted(format!(
            "the scan took longer than {seconds} seconds, the time limit of its snapshot; \
             continue with a new scan after the last received key"
        ))
    }
}
