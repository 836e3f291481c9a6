//! Sets everybody to work.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::appends::{self, Batcher};
use super::changes;
use super::ground::{Done, Ground, Phase};
use super::groups;
use super::plan::{ALL, Kind, first_writer};
use super::reads;
use crate::serving::connection::Connection;

/// Begins all workers, each with a connection of its own.
pub(super) async fn begin(ground: &Arc<Ground>) -> Done<JoinSet<()>> {
    let mut workers = JoinSet::new();
    for kind in ALL {
        for worker in 0..kind.workers() {
            let connection = ground.connect().await?;
            workers.spawn(work(Arc::clone(ground), connection, kind, worker));
        }
    }
    Ok(workers)
}

async fn work(ground: Arc<Ground>, connection: Connection, kind: Kind, worker: usize) {
    let writer = first_writer(kind).unwrap_or_default() + worker;
    let (ground, connection) = (&*ground, &connection);
    let until = if kind == Kind::AppendNew { Phase::Gone } else { Phase::Stopping };
    match kind {
        Kind::Batch => {
            let batcher = &Mutex::new(Batcher::new(connection.clone(), writer));
            let once = |call| async move { batcher.lock().await.one(ground, call).await };
            ground.pace(kind, worker, until, once).await;
        }
        Kind::AppendNew | Kind::AppendOld => {
            let is_new = kind == Kind::AppendNew;
            let once = |call| appends::one(ground, connection, writer, call, is_new);
            ground.pace(kind, worker, until, once).await;
        }
        Kind::Metadata => {
            let once = |call| changes::metadata(ground, connection, writer, call);
            ground.pace(kind, worker, until, once).await;
        }
        Kind::Delete => {
            let once = |call| changes::delete(ground, connection, writer, call);
            ground.pace(kind, worker, until, once).await;
        }
        Kind::User => {
            ground.pace(kind, worker, until, |call| changes::user(ground, connection, call)).await;
        }
        Kind::Group => {
            let once = |call| groups::come_and_go(ground, connection, call);
            ground.pace(kind, worker, until, once).await;
        }
        _ => {
            let once = |call| reads::one(ground, connection, kind, call);
            ground.pace(kind, worker, until, once).await;
        }
    }
}
