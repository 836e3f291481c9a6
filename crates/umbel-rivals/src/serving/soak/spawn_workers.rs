//! Starts all workers.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::serving::soak::admin_workers;
use crate::serving::soak::append_workers::{self, BatchAppender};
use crate::serving::soak::consumer_groups;
use crate::serving::soak::read_workers;
use crate::serving::soak::soak_context::{SoakContext, SoakPhase, WorkResult};
use crate::serving::soak::soak_plan::{ALL, SoakWork, first_writer};
use umbel_testing::server_connection::Connection;

/// Starts all workers, each with its own connection.
pub(super) async fn begin(context: &Arc<SoakContext>) -> WorkResult<JoinSet<()>> {
    let mut workers = JoinSet::new();
    for kind in ALL {
        for worker in 0..kind.workers() {
            let connection = context.connect().await?;
            workers.spawn(work(Arc::clone(context), connection, kind, worker));
        }
    }
    Ok(workers)
}

async fn work(context: Arc<SoakContext>, connection: Connection, kind: SoakWork, worker: usize) {
    let writer = first_writer(kind).unwrap_or_default() + worker;
    let (context, connection) = (&*context, &connection);
    let until = if kind == SoakWork::AppendNew { SoakPhase::Stopped } else { SoakPhase::Stopping };
    match kind {
        SoakWork::Batch => {
            let batcher = &Mutex::new(BatchAppender::new(connection.clone(), writer));
            let once = |call| async move { batcher.lock().await.append_batch(context, call).await };
            context.wait_for_turn(kind, worker, until, once).await;
        }
        SoakWork::AppendNew | SoakWork::AppendOld => {
            let is_new = kind == SoakWork::AppendNew;
            let once = |call| append_workers::append_one(context, connection, writer, call, is_new);
            context.wait_for_turn(kind, worker, until, once).await;
        }
        SoakWork::Metadata => {
            let once = |call| admin_workers::change_metadata(context, connection, writer, call);
            context.wait_for_turn(kind, worker, until, once).await;
        }
        SoakWork::Delete => {
            let once = |call| admin_workers::delete_stream(context, connection, writer, call);
            context.wait_for_turn(kind, worker, until, once).await;
        }
        SoakWork::User => {
            context
                .wait_for_turn(kind, worker, until, |call| {
                    admin_workers::change_user(context, connection, call)
                })
                .await;
        }
        SoakWork::Group => {
            let once = |call| consumer_groups::use_short_group(context, connection, call);
            context.wait_for_turn(kind, worker, until, once).await;
        }
        _ => {
            let once = |call| read_workers::read_one(context, connection, kind, call);
            context.wait_for_turn(kind, worker, until, once).await;
        }
    }
}
