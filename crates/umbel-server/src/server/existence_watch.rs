//! Logs that damaged lines of the existence filter were rebuilt, and that journals were damaged.
//!
//! A rebuild takes seconds, so that the gauge of damaged lines can be 0 at every scrape. The number
//! of rebuilt lines is in the metrics and in `/stats`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::server_context::ServerContext;

/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Watches the store's existence filter until the server stops.
pub async fn watch(service: Arc<ServerContext>, mut stopped: watch::Receiver<bool>) {
    let journals = service.store.damaged_filter_journals();
    if journals > 0 {
        tracing::warn!(
            journals,
            "journals of the existence filter were damaged, and their streams were read again; no \
             event is concerned: check the disk"
        );
    }
    let mut known = 0;
    loop {
        let rebuilt = service.store.rebuilt_filter_lines();
        if rebuilt > known {
            tracing::warn!(
                lines = rebuilt - known,
                "files of the existence filter were damaged, and were rebuilt from the index; no \
                 event is concerned: check the disk"
            );
        }
        known = rebuilt;
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
    }
}
