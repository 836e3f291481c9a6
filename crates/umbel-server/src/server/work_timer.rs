//! Starts scavenges at the times of the schedule, writes the history of scavenges and backups, and
//! stops both when the server stops.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::event_store::scavenging::ScavengePhase;
use crate::server_context::ServerContext;

/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit at exit for the end of a scavenge and a backup.
const STOP_TIME: Duration = Duration::from_secs(3);
/// Interval of the checks at exit.
const STOP_INTERVAL: Duration = Duration::from_millis(20);

/// Starts scavenges and writes the history until the server stops.
pub async fn run(service: Arc<ServerContext>, mut stopped: watch::Receiver<bool>) {
    loop {
        check(&service).await;
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => break,
            () = service.scavenge_history.changed.notified() => {}
            () = service.backups.history().changed.notified() => {}
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
    }
    service.scavenger.shut_down();
    service.backups.shut_down();
    let ended = async {
        while is_scavenging(&service) || service.backups.running_state().is_some() {
            tokio::time::sleep(STOP_INTERVAL).await;
        }
    };
    // The next start records what takes longer as interrupted.
    let _ = tokio::time::timeout(STOP_TIME, ended).await;
    write_history(&service).await;
}

/// Whether a scavenge is running. Records the outcome of one that has ended.
fn is_scavenging(service: &ServerContext) -> bool {
    let last = service.scavenger.last_state();
    last.is_some_and(|last| last.phase == ScavengePhase::InProgress)
}

async fn check(service: &Arc<ServerContext>) {
    // A follower gets the history and the settings of scavenges from the log.
    if !service.is_leader() {
        return;
    }
    let auto_scavenge = Arc::clone(&service.auto_scavenge);
    if auto_scavenge.is_due() {
        // An error means that the server is stopping.
        let _ = tokio::task::spawn_blocking(move || auto_scavenge.start_due()).await;
    }
    let last = service.scavenger.last_state();
    let is_removing =
        last.is_some_and(|last| last.removes_all && last.phase == ScavengePhase::InProgress);
    // A record can hide an older one, whose data a scavenge that removes all must find.
    if !is_removing {
        write_history(service).await;
    }
}

async fn write_history(service: &Arc<ServerContext>) {
    if !service.is_leader() {
        return;
    }
    for history in [&service.scavenge_history, service.backups.history()] {
        if history.has_unwritten() {
            let history = Arc::clone(history);
            // The history logs errors, and keeps what it could not write.
            let _ = service.store.blocking(move |store| history.flush(store)).await;
        }
    }
}
