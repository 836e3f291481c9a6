//! Logs when the directory of a served store is moved, removed, or back at its path.
//!
//! The server goes on in the directory that it opened. An operator who swapped directories to
//! restore a store would otherwise believe that it serves the new one. A store whose directory was
//! removed takes no write from then on: no later open would find it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use umbel::DirectoryStats;

use crate::service::Service;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(5);

/// Where a directory was at the last look.
#[derive(Debug, Default)]
struct LastLook(DirectoryStats);

impl LastLook {
    /// Logs where the directory is now, if that has changed. Whether it was removed since then.
    fn compare(&mut self, what: &'static str, now: DirectoryStats) -> bool {
        fn place(stats: &DirectoryStats) -> (bool, bool, Option<&Path>) {
            (stats.is_removed, stats.is_moved, stats.path_now.as_deref())
        }
        let has_changed = place(&self.0) != place(&now);
        self.0 = now;
        if !has_changed {
            return false;
        }
        let now = &self.0;
        let path = now.path.display().to_string();
        let path_now = now.path_now.as_ref().map(|path| path.display().to_string());
        if now.is_removed {
            tracing::error!(path, "the directory of {what} was removed: stop the server, restore");
        } else if now.is_moved {
            tracing::warn!(
                path,
                path_now,
                "the directory of {what} was moved: the server goes on in it; restart the server \
                 to serve what is at the path now"
            );
        } else {
            tracing::warn!(path, "the directory of {what} is at its path again");
        }
        now.is_removed
    }
}

/// Looks at the directories of what is served until the server stops.
pub async fn watch(service: Arc<Service>, mut stopped: watch::Receiver<bool>) {
    let mut last = Default::default();
    loop {
        // A look takes as long as the file systems on the paths do; a stop does not wait for it.
        let round = async {
            look(&service, &mut last).await;
            tokio::time::sleep(EVERY).await;
        };
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = round => {}
        }
    }
}

async fn look(service: &Service, (events, keys): &mut (LastLook, LastLook)) {
    if let Ok(now) = service.store.blocking(|store| Ok(store.directory())).await
        && events.compare("the event store", now)
    {
        // A sync finds out by itself that the directory was removed, and ends writing.
        let _ = service.store.blocking(|store| store.sync()).await;
    }
    if let Some(kv) = &service.kv
        && let Some(now) = kv.directory().await
        && keys.compare("the store of keys and values", now)
    {
        let _ = kv.sync().await;
    }
}
