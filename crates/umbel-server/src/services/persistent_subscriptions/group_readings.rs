//! Reads the numbers of all consumer groups for the metrics. Starts no group.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};
use umbel_events::Error;

use crate::consumer_groups::group_command::GroupCommand;
use crate::consumer_groups::group_reading::{
    GroupReading, GroupReadings, GroupRequest, GroupState, ReadingCache,
};
use crate::consumer_groups::group_registry::GroupRegistry;
use crate::limits::{GROUP_READING_INTERVAL, GROUP_READING_TIME};
use crate::protocol::group_key::GroupKey;
use crate::server_context::ServerContext;

impl GroupRegistry {
    /// The numbers of the groups, at most some seconds old. `None` if they could not be read in
    /// time for the first time.
    pub async fn readings(&self, service: &ServerContext) -> Option<Arc<GroupReadings>> {
        let mut cache = self.readings.lock().await;
        let now = service.env.clock.now();
        if let Some((at, readings)) = &cache.last
            && now.saturating_sub(*at) < GROUP_READING_INTERVAL
        {
            return Some(Arc::clone(readings));
        }
        let reading = self.read_all(service, &mut cache);
        match tokio::time::timeout(GROUP_READING_TIME, reading).await {
            Ok(Ok(readings)) => cache.last = Some((now, Arc::new(readings))),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the consumer groups could not be read for the metrics");
            }
            // The next request tries again; the last numbers are served until then.
            Err(_) => {}
        }
        cache.last.as_ref().map(|(_, readings)| Arc::clone(readings))
    }

    async fn read_all(
        &self,
        service: &ServerContext,
        cache: &mut ReadingCache,
    ) -> Result<GroupReadings, Error> {
        let (configs, senders) = {
            let mut state = self.state.lock().await;
            let (configs, _) = state.load_configs(service).await?;
            let running = state.running.iter().filter(|(_, sender)| !sender.is_closed());
            let senders: Vec<_> =
                running.map(|(key, sender)| (key.clone(), sender.clone())).collect();
            (configs, senders)
        };
        if !cache.configs.as_ref().is_some_and(|known| Arc::ptr_eq(known, &configs)) {
            (cache.configs, cache.stored) = (Some(Arc::clone(&configs)), HashMap::new());
        }
        for (key, _) in &senders {
            cache.stored.remove(key);
        }
        let states = join_all(senders.into_iter().map(|(key, sender)| state(key, sender))).await;
        let mut states: HashMap<GroupKey, GroupState> = states.into_iter().flatten().collect();
        let requests = configs.iter().map(|(key, config)| GroupRequest {
            key: key.clone(),
            start_after: config.start_after,
            through: service.system_projections.limit_of(&key.event_source()),
            state: states.remove(key).or_else(|| cache.stored.get(key).cloned()),
        });
        let requests: Vec<GroupRequest> = requests.collect();
        let is_stored = |request: &GroupRequest| request.state.is_none();
        let unread: Vec<GroupKey> =
            requests.iter().filter(|one| is_stored(one)).map(|one| one.key.clone()).collect();
        let total = requests.len();
        let read = service.store.blocking(move |store| {
            // Once for all groups: a walk through the chunks for each one takes too long.
            let log = store.log_bytes();
            // A group whose state cannot be read counts as left out.
            let groups =
                requests.iter().filter_map(|one| GroupReading::read(store, &log, one).ok());
            Ok(groups.collect::<Vec<_>>())
        });
        let groups = read.await?;
        let by_key: HashMap<&GroupKey, &GroupState> =
            groups.iter().map(|group| (&group.key, &group.state)).collect();
        for key in unread {
            if let Some(state) = by_key.get(&key) {
                cache.stored.insert(key, (*state).clone());
            }
        }
        Ok(GroupReadings::select(groups, total))
    }
}

/// The state of a running group; `None` if it ended meanwhile.
async fn state(
    key: GroupKey,
    sender: mpsc::Sender<GroupCommand>,
) -> Option<(GroupKey, GroupState)> {
    let (answer, receiver) = oneshot::channel();
    sender.send(GroupCommand::ReadState(answer)).await.ok()?;
    Some((key, receiver.await.ok()?))
}
