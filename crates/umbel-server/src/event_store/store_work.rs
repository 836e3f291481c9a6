//! [`StoreWork`]: work on a store beside the calls of clients: built-in projections, scavenges and
//! backups.

use std::path::PathBuf;
use std::sync::Arc;

use umbel_env::Env;
use umbel_events::{Error, Store};

use crate::event_store::auto_scavenge::AutoScavenge;
use crate::event_store::backups::Backups;
use crate::event_store::scavenge_schedule::ScavengeSchedule;
use crate::event_store::scavenging::{Scavenger, StoreScavenger};
use crate::event_store::system_projections::SystemProjections;
use crate::event_store::work_history::{WorkHistory, WorkKind};

/// Work on a store beside the calls of clients.
#[derive(Debug)]
pub struct StoreWork {
    /// State of the built-in projections.
    pub projections: SystemProjections,
    /// Starts and stops scavenges.
    pub scavenger: Arc<dyn Scavenger>,
    /// Outcomes of scavenges.
    pub scavenge_history: Arc<WorkHistory>,
    /// Scavenges that a schedule starts.
    pub auto_scavenge: Arc<AutoScavenge>,
    /// Online backups.
    pub backups: Backups,
}

impl StoreWork {
    /// Loads the state of the work from a store.
    ///
    /// # Errors
    /// Errors of reads.
    pub fn read(
        store: &Store,
        env: &Env,
        backup_directory: Option<PathBuf>,
        schedule: Option<ScavengeSchedule>,
    ) -> Result<StoreWork, Error> {
        let history = |kind| WorkHistory::read(kind, store, Arc::clone(&env.clock)).map(Arc::new);
        let scavenge_history = history(WorkKind::Scavenge)?;
        let scavenger = StoreScavenger::new(store.clone(), Arc::clone(&scavenge_history));
        let scavenger: Arc<dyn Scavenger> = Arc::new(scavenger);
        let work = (Arc::clone(&scavenger), Arc::clone(&scavenge_history));
        let auto_scavenge = AutoScavenge::read(store, Arc::clone(&env.clock), work, schedule)?;
        let backup_history = history(WorkKind::Backup)?;
        let backups = Backups::new(store.clone(), env, backup_directory, backup_history);
        Ok(StoreWork {
            projections: SystemProjections::read(store)?,
            scavenger,
            scavenge_history,
            auto_scavenge: Arc::new(auto_scavenge),
            backups,
        })
    }
}
