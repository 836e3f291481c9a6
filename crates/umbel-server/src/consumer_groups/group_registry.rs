//! [`GroupRegistry`]: the stored consumer groups, and the groups whose tasks run.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};

use crate::consumer_groups::group_command::GroupCommand;
use crate::consumer_groups::group_config_log::{ConfigLog, GroupConfigs};
use crate::consumer_groups::group_reading::ReadingCache;
use crate::protocol::group_key::GroupKey;

/// The consumer groups of the server.
#[derive(Debug, Default)]
pub struct GroupRegistry {
    /// Locked during each lookup or change of a group.
    pub state: Mutex<RegistryState>,
    /// The last numbers of the groups for the metrics. Locked while they are read.
    pub readings: Mutex<ReadingCache>,
}

/// State of the registry.
#[derive(Debug, Default)]
pub struct RegistryState {
    /// The stored groups and the state of their stream; `None` before they are read, and after
    /// another writer changed them.
    pub configs: Option<(Arc<GroupConfigs>, ConfigLog)>,
    /// The running groups.
    pub running: HashMap<GroupKey, mpsc::Sender<GroupCommand>>,
}
