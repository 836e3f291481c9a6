//! Watch: what changes, behind what there was where that is wanted.

use prost::Message;
use tonic::{Request, Response, Status};
use umbel_proto::kv::{Entries, Started, WatchEvent, WatchRequest, WatchResponse};

use super::permit::Permit;
use super::scan::Pages;
use super::{Call, request};
use crate::access::Caller;
use crate::answers::{Answers, counted, in_steps};
use crate::deadline::too_late;
use crate::failure;
use crate::kv_store::{Range, Scanner, Watched, Watcher};
use crate::unread::Held;

type Answer = Result<WatchResponse, Status>;

/// A watch on its way.
#[derive(Debug)]
struct Watch {
    call: Call,
    watcher: Watcher,
    /// Everything up to this write is not told.
    sequence: u64,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Tells what there was.
    Entries(Box<Pages>),
    /// Has told that, if it was to.
    Starting(Held, Permit),
    /// Tells what changes.
    Changes(Held, Permit),
}

/// Answers with what changes.
pub async fn watch(
    call: Call,
    asked: Request<WatchRequest>,
) -> Result<Response<Answers<WatchResponse>>, Status> {
    let held = call.service.unread.held_for(asked.extensions());
    let unsent = held.unsent();
    let permit = Permit::new(Caller::of(asked.extensions()));
    let WatchRequest { keyspace, prefix, with_entries, keys_only } = asked.into_inner();
    request::check_bound("prefix", &prefix)?;
    let found = request::keyspace(&call.kv, &keyspace)?;
    let name = request::name(&keyspace).to_string();
    let watched = Watched { keyspace: name, prefix: prefix.clone(), keys_only };
    let begun = call.kv.watch(watched).await.map_err(|_| failure::stopping())?;
    let (watcher, snapshot) = begun?;
    let sequence = snapshot.sequence();
    let stage = match with_entries {
        true => {
            let range = Range::new(&prefix, Vec::new(), Vec::new());
            let scanner = Scanner::new(found, range, 0).without_values(keys_only);
            let pages = Pages::new(call.clone(), (held, permit), scanner, snapshot);
            Stage::Entries(Box::new(pages))
        }
        false => Stage::Starting(held, permit),
    };
    let watch = Watch { call, watcher, sequence, stage };
    Ok(counted(in_steps(watch, step), unsent))
}

async fn step(watch: Watch) -> (Vec<Answer>, Option<Watch>) {
    match next(watch).await {
        Ok((event, watch)) => (vec![Ok(WatchResponse { event: Some(event) })], Some(watch)),
        Err(status) => (vec![Err(status)], None),
    }
}

async fn next(mut watch: Watch) -> Result<(WatchEvent, Watch), Status> {
    let (held, permit) = match watch.stage {
        Stage::Entries(mut pages) => match pages.next().await? {
            Some(page) if !page.entries.is_empty() => {
                watch.stage = Stage::Entries(pages);
                let entries = Entries { entries: page.entries };
                return Ok((WatchEvent::Entries(entries), watch));
            }
            _ => pages.into_rest(),
        },
        Stage::Starting(held, permit) => (held, permit),
        Stage::Changes(held, mut permit) => {
            held.give_back().await;
            let Call { service, deadline, .. } = &watch.call;
            let told = tokio::select! {
                told = watch.watcher.next() => told?,
                () = service.stopping() => return Err(failure::stopping()),
                () = deadline.passed() => return Err(too_late()),
            };
            let bytes = told.encoded_len();
            let room = deadline.limit(held.room_for(bytes)).await??;
            permit.renewed(service).await?;
            held.hold(room, bytes);
            watch.stage = Stage::Changes(held, permit);
            return Ok((WatchEvent::Changes(told), watch));
        }
    };
    watch.stage = Stage::Changes(held, permit);
    let started = Started { sequence: watch.sequence };
    Ok((WatchEvent::Started(started), watch))
}
