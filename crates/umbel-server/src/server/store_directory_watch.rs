//! Logs when the directory of a served store is moved, removed, or back at its path.
//!
//! The server continues in the directory that it opened. Without the log line, an operator who
//! swaps directories to restore a store would believe that the server uses the new one. A store
//! whose directory is removed accepts no more writes, since no later open would find them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use umbel::DirectoryStats;

use crate::server_context::ServerContext;

/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// State of a directory at the last check.
#[derive(Debug, Default)]
struct DirectoryState(DirectoryStats);

impl DirectoryState {
    /// Logs the directory's state if it has changed. Returns whether the directory was removed
    /// since the last check.
    fn compare(&mut self, what: &'static str, now: DirectoryStats) -> bool {
        fn location(stats: &DirectoryStats) -> (bool, bool, Option<&Path>) {
            (stats.is_removed, stats.is_moved, stats.path_now.as_deref())
        }
        let has_changed = location(&self.0) != location(&now);
        self.0 = now;
        if !has_changed {
            return false;
        }
        let now = &self.0;
        let path = now.path.display().to_string();
        let path_now = now.path_now.as_ref().map(|path| path.display().to_string());
        if now.is_removed {
            tracing::error!(
                path,
                "the directory of {what} was removed: stop the server and restore the directory"
            );
        } else if now.is_moved {
            tracing::warn!(
                path,
                path_now,
                "the directory of {what} was moved: the server continues to use the moved \
                 directory; restart the server to use the directory now at the path"
            );
        } else {
            tracing::warn!(path, "the directory of {what} is at its path again");
        }
        now.is_removed
    }
}

/// Watches the directories of the served stores until the server stops.
pub async fn watch(service: Arc<ServerContext>, mut stopped: watch::Receiver<bool>) {
    let mut last = Default::default();
    loop {
        // A check takes as long as the file systems on the paths do; a stop does not wait for it.
        let round = async {
            check_directories(&service, &mut last).await;
            tokio::time::sleep(CHECK_INTERVAL).await;
        };
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = round => {}
        }
    }
}

async fn check_directories(
    service: &ServerContext,
    (events, keys): &mut (DirectoryState, DirectoryState),
) {
    if let Ok(now) = service.store.blocking(|store| Ok(store.directory())).await
        && events.compare("the event store", now)
    {
        // A sync notices by itself that the directory was removed, and ends writing.
        let _ = service.store.blocking(|store| store.sync()).await;
    }
    if let Some(kv) = &service.kv
        && let Some(now) = kv.directory().await
        && keys.compare("the key-value store", now)
    {
        let _ = kv.sync().await;
    }
}
