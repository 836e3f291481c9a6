//! [`Groups`]: which groups of consumers there are, and which are being served.

use std::collections::HashMap;

use tokio::sync::{Mutex, mpsc};

use crate::group_keep::Configs;
use crate::group_key::GroupKey;
use crate::group_message::Message;

/// Which groups of consumers there are.
#[derive(Debug, Default)]
pub struct Groups {
    /// Held by whoever looks for one or changes one.
    pub kept: Mutex<Kept>,
}

/// What is known of them.
#[derive(Debug, Default)]
pub struct Kept {
    /// `None` before it was read, and where somebody else wrote.
    pub configs: Option<(Configs, Option<u64>)>,
    /// Those that are being served.
    pub served: HashMap<GroupKey, mpsc::Sender<Message>>,
}
