//! The call Watch, which streams changes of keys, after the present entries if requested.

use prost::Message;
use tonic::{Request, Response, Status};
use umbel_proto::kv::{Entries, Started, WatchEvent, WatchRequest, WatchResponse};

use crate::auth::authorization::Caller;
use crate::grpc::response_stream::{ResponseStream, stream_steps, with_pending_page};
use crate::kv_store::{ScanRange, Scanner, WatchFilter, Watcher};
use crate::protocol::deadline::deadline_exceeded;
use crate::protocol::grpc_status;
use crate::resources::outbound_call_share::OutboundShare;
use crate::services::kv::kv_call_context::KvCallContext;
use crate::services::kv::kv_scan::ScanPages;
use crate::services::kv::operator_permission::OperatorPermission;
use crate::services::kv::request_checks;

type WatchResult = Result<WatchResponse, Status>;

/// A watch in progress.
#[derive(Debug)]
struct WatchCall {
    call: KvCallContext,
    watcher: Watcher,
    /// Writes up to this sequence number are not sent.
    sequence: u64,
    stage: WatchStage,
}

#[derive(Debug)]
enum WatchStage {
    /// The watch sends the present entries.
    Entries(Box<ScanPages>),
    /// The watch has sent the present entries, if requested.
    Starting(OutboundShare, OperatorPermission),
    /// The watch sends changes.
    Changes(OutboundShare, OperatorPermission),
}

/// Responds with changes.
pub async fn watch(
    call: KvCallContext,
    request: Request<WatchRequest>,
) -> Result<Response<ResponseStream<WatchResponse>>, Status> {
    let held = call.service.outbound_quota.held_for(request.extensions());
    let unsent = held.unsent_page();
    let permission = OperatorPermission::new(Caller::from_extensions(request.extensions()));
    let WatchRequest { keyspace, prefix, with_entries, keys_only } = request.into_inner();
    request_checks::check_bound("prefix", &prefix)?;
    let found = request_checks::find_keyspace(&call.kv, &keyspace)?;
    let name = request_checks::keyspace_name(&keyspace).to_string();
    let watched = WatchFilter { keyspace: name, prefix: prefix.clone(), keys_only };
    let begun = call.kv.watch(watched).await.map_err(|_| grpc_status::shutting_down())?;
    let (watcher, snapshot) = begun?;
    let sequence = snapshot.sequence();
    let stage = match with_entries {
        true => {
            let range = ScanRange::new(&prefix, Vec::new(), Vec::new());
            let scanner = Scanner::new(found, range, 0).without_values(keys_only);
            let pages = ScanPages::new(call.clone(), (held, permission), scanner, snapshot);
            WatchStage::Entries(Box::new(pages))
        }
        false => WatchStage::Starting(held, permission),
    };
    let watch = WatchCall { call, watcher, sequence, stage };
    Ok(with_pending_page(stream_steps(watch, step), unsent))
}

async fn step(watch: WatchCall) -> (Vec<WatchResult>, Option<WatchCall>) {
    match next(watch).await {
        Ok((event, watch)) => (vec![Ok(WatchResponse { event: Some(event) })], Some(watch)),
        Err(status) => (vec![Err(status)], None),
    }
}

async fn next(mut watch: WatchCall) -> Result<(WatchEvent, WatchCall), Status> {
    let (held, permission) = match watch.stage {
        WatchStage::Entries(mut pages) => match pages.next().await? {
            Some(page) if !page.entries.is_empty() => {
                watch.stage = WatchStage::Entries(pages);
                let entries = Entries { entries: page.entries };
                return Ok((WatchEvent::Entries(entries), watch));
            }
            _ => pages.into_grant(),
        },
        WatchStage::Starting(held, permission) => (held, permission),
        WatchStage::Changes(held, mut permission) => {
            held.release().await;
            let KvCallContext { service, deadline, .. } = &watch.call;
            let update = tokio::select! {
                update = watch.watcher.next() => update?,
                () = service.wait_stopping() => return Err(grpc_status::shutting_down()),
                () = deadline.wait() => return Err(deadline_exceeded()),
            };
            let bytes = update.encoded_len();
            let reservation = deadline.limit(held.reserve(bytes)).await??;
            permission.revalidate(service).await?;
            held.charge(reservation, bytes);
            watch.stage = WatchStage::Changes(held, permission);
            return Ok((WatchEvent::Changes(update), watch));
        }
    };
    watch.stage = WatchStage::Changes(held, permission);
    let started = Started { sequence: watch.sequence };
    Ok((WatchEvent::Started(started), watch))
}
