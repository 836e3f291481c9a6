//! Tells in the log when the directory of a served store is moved, removed, or back in its place.
//!
//! The server goes on in the directory that it opened. An operator who swapped directories to
//! restore a store would otherwise believe that it serves the new one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use umbel::DirectoryStats;

use crate::service::Service;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(5);

/// Where a directory is, as the log was told last.
#[derive(Debug, Default)]
struct Told(DirectoryStats);

impl Told {
    /// Tells the log where that is something new.
    fn look(&mut self, what: &'static str, now: DirectoryStats) {
        let before = std::mem::replace(&mut self.0, now);
        let now = &self.0;
        let place = |stats: &DirectoryStats| {
            (stats.is_removed, stats.is_moved, stats.path_now.as_deref().map(Path::to_path_buf))
        };
        if place(&before) == place(now) {
            return;
        }
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
    }
}

/// Looks at the directories of what is served until the server stops.
pub async fn watch(service: Arc<Service>, mut stopped: watch::Receiver<bool>) {
    let (mut events, mut keys) = (Told::default(), Told::default());
    loop {
        if let Ok(now) = service.store.blocking(|store| Ok(store.directory())).await {
            events.look("the event store", now);
        }
        if let Some(kv) = &service.kv
            && let Some(now) = kv.directory().await
        {
            keys.look("the store of keys and values", now);
        }
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}
