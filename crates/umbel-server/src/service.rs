//! [`Service`]: what every call of one server shares.

use std::sync::Arc;

use tokio::sync::watch;
use umbel_env::Env;
use umbel_events::EventId;

use crate::budget::Budget;
use crate::store::EventStore;

/// What every call of one server shares.
#[derive(Debug)]
pub struct Service {
    /// The store.
    pub store: EventStore,
    /// What appends may hold in memory.
    pub budget: Arc<Budget>,
    /// The clock.
    pub env: Env,
    /// Chosen anew at each start.
    pub instance: EventId,
    /// The host and the port under which clients are told to reach it.
    pub advertise: Option<(String, u16)>,
    /// The port it listens on.
    pub port: u16,
    stop: watch::Receiver<bool>,
}

impl Service {
    /// `stop` becomes true once, when no call may begin to wait any more.
    pub fn new(
        store: EventStore,
        env: Env,
        advertise: Option<(String, u16)>,
        port: u16,
        stop: watch::Receiver<bool>,
    ) -> umbel::Result<Service> {
        let mut random = [0; 16];
        env.entropy.fill(&mut random)?;
        let instance = EventId::from_random(random);
        let budget = Arc::new(Budget::default());
        Ok(Service { store, budget, env, instance, advertise, port, stop })
    }

    /// A new identifier for what needs one.
    pub fn new_id(&self) -> umbel::Result<EventId> {
        let mut random = [0; 16];
        self.env.entropy.fill(&mut random)?;
        Ok(EventId::from_random(random))
    }

    /// Whether the server is about to stop.
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until the server is about to stop.
    pub async fn stopping(&self) {
        // An error says that nobody can tell it to stop any more: it has.
        let _ = self.stop.clone().wait_for(|stop| *stop).await;
    }
}
