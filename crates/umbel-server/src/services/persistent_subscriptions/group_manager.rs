//! Creates, changes and finds consumer groups. Each group's task starts when a call first needs it.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tonic::Status;
use umbel_base::fail_point;
use umbel_events::Error;
use umbel_proto::persistent::SubscriptionInfo;

use crate::consumer_groups::checkpoint_store::{self, GroupConfigs};
use crate::consumer_groups::group_command::GroupCommand;
use crate::consumer_groups::group_config::{GroupConfig, StartFrom};
use crate::consumer_groups::group_registry::{GroupRegistry, RegistryState};
use crate::consumer_groups::group_stats;
use crate::limits::{GROUP_MESSAGES_MAX, GROUPS_MAX};
use crate::protocol::group_key::GroupKey;
use crate::protocol::grpc_status;
use crate::server_context::ServerContext;
use crate::services::persistent_subscriptions::group_task::{self, GroupTask};

/// A change of a consumer group.
#[derive(Debug)]
pub enum GroupChange {
    /// Create the group.
    Create(GroupConfig),
    /// Replace the settings of the group.
    Update(GroupConfig),
    /// Delete the group.
    Delete,
}

/// Fails if the group cannot be created beside the existing groups.
fn check_creatable(key: &GroupKey, configs: &GroupConfigs) -> Result<(), Status> {
    if configs.len() >= GROUPS_MAX {
        let full = format!(
            "The server has {GROUPS_MAX} groups, which is the limit; delete a group first."
        );
        return Err(grpc_status::group_failed(key, &full));
    }
    key.check_names()?;
    match configs.keys().find(|other| other.shares_streams_with(key)) {
        Some(other) => {
            let taken = format!(
                "The group's state streams would collide with the state streams of group '{}' on \
                 stream '{}'; choose another name.",
                other.group,
                other.source()
            );
            Err(grpc_status::group_failed(key, &taken))
        }
        None => Ok(()),
    }
}

/// Fails if a group cannot be changed as requested.
fn check_change(
    key: &GroupKey,
    change: &GroupChange,
    configs: &GroupConfigs,
) -> Result<(), Status> {
    match (change, configs.get(key)) {
        (GroupChange::Create(_), Some(_)) => Err(grpc_status::group_exists(key)),
        (GroupChange::Update(_) | GroupChange::Delete, None) => {
            Err(grpc_status::group_missing(key))
        }
        (GroupChange::Create(_), None) => check_creatable(key, configs),
        _ => Ok(()),
    }
}

fn insert_config(configs: &mut GroupConfigs, key: &GroupKey, config: GroupConfig) {
    fail_point!("group-forget-update", configs.contains_key(key), |_| ());
    configs.insert(key.clone(), config);
}

impl GroupRegistry {
    /// Creates, changes or deletes a group.
    ///
    /// REQUIRES: the caller polls the future to its end.
    pub async fn change(
        &self,
        service: &Arc<ServerContext>,
        key: &GroupKey,
        change: GroupChange,
    ) -> Result<(), Status> {
        if let GroupChange::Create(config) = &change {
            // An invalid filter fails here, and not for each consumer.
            let config = config.clone();
            let compiled = service.store.blocking(move |_| config.compile().map(drop)).await;
            compiled.map_err(|error| store_status(&error))?;
        }
        let mut kept = self.state.lock().await;
        let (loaded, last) =
            kept.load_configs(service).await.map_err(|error| store_status(&error))?;
        let mut configs = GroupConfigs::clone(&loaded);
        check_change(key, &change, &configs)?;
        let is_update = matches!(change, GroupChange::Update(_));
        match change {
            GroupChange::Create(config) | GroupChange::Update(config) => {
                let old = configs.get(key).and_then(|old| old.filter.clone());
                let filter = if is_update { old } else { config.filter.clone() };
                let after = start_position(service, key, config.start_from).await?;
                let config = GroupConfig { filter, start_after: after, ..config };
                insert_config(&mut configs, key, config);
            }
            GroupChange::Delete => drop(configs.remove(key)),
        }
        if is_update {
            kept.stop(key).await;
        }
        let configs = Arc::new(configs);
        let (written, updated) = (Arc::clone(&configs), service.env.clock.wall_micros());
        let of = key.clone();
        let write = service.store.blocking(move |store| {
            let made = written.contains_key(&of) && !is_update;
            if made {
                // Deletes the state that a deleted group of the same name left.
                checkpoint_store::delete_state(store, &of)?;
            }
            let last = checkpoint_store::write_configs(store, &written, last, updated)?;
            Ok(last)
        });
        match write.await {
            Ok(last) => kept.configs = Some((configs, last)),
            Err(error) => {
                kept.reload_configs(service).await;
                return Err(store_status(&error));
            }
        }
        if kept.configs.as_ref().is_some_and(|(configs, _)| !configs.contains_key(key)) {
            kept.stop(key).await;
            let of = key.clone();
            let forgetting =
                service.store.blocking(move |store| checkpoint_store::delete_state(store, &of));
            if let Err(error) = forgetting.await {
                // The group is deleted. A group that is created under its name clears the rest.
                let (stream, group) = (key.source(), &key.group);
                tracing::warn!(
                    stream,
                    group,
                    %error,
                    "the state of a deleted consumer group could not be deleted"
                );
            }
        }
        Ok(())
    }

    /// Returns the command sender of the group's task; starts the task if needed.
    pub async fn command_sender(
        &self,
        service: &Arc<ServerContext>,
        key: &GroupKey,
    ) -> Result<mpsc::Sender<GroupCommand>, Status> {
        let mut kept = self.state.lock().await;
        let (configs, _) =
            kept.load_configs(service).await.map_err(|error| store_status(&error))?;
        let Some(config) = configs.get(key) else { return Err(grpc_status::group_missing(key)) };
        if let Some(sender) = kept.running.get(key)
            && !sender.is_closed()
        {
            return Ok(sender.clone());
        }
        let group = GroupTask::open(Arc::clone(service), key.clone(), config.clone()).await;
        let group = group.map_err(|error| store_status(&error))?;
        let (sender, messages) = mpsc::channel(GROUP_MESSAGES_MAX);
        tokio::spawn(group.run(messages));
        kept.running.insert(key.clone(), sender.clone());
        Ok(sender)
    }

    /// Statistics of a group.
    pub async fn info(
        &self,
        service: &Arc<ServerContext>,
        key: &GroupKey,
    ) -> Result<SubscriptionInfo, Status> {
        let sender = self.command_sender(service, key).await?;
        let (answer, receiver) = oneshot::channel();
        // If the group ended meanwhile, the reply sender is dropped.
        let _ = sender.send(GroupCommand::Info(answer)).await;
        receiver.await.map_err(|_| grpc_status::group_missing(key))
    }

    /// The groups, in order. Starts no group.
    pub async fn keys(&self, service: &Arc<ServerContext>) -> Result<Vec<GroupKey>, Status> {
        let configs = self.state.lock().await.load_configs(service).await;
        let (configs, _) = configs.map_err(|error| store_status(&error))?;
        Ok(configs.keys().cloned().collect())
    }

    /// Statistics of all groups, of the groups of one stream, or of the groups of all events.
    pub async fn list(
        &self,
        service: &Arc<ServerContext>,
        of: Option<&Option<String>>,
    ) -> Result<Vec<SubscriptionInfo>, Status> {
        let configs = self.state.lock().await.load_configs(service).await;
        let (configs, _) = configs.map_err(|error| store_status(&error))?;
        let mut infos = Vec::new();
        for (key, config) in configs.iter() {
            if of.is_none_or(|stream| *stream == key.stream) {
                // A group that cannot be started shows its settings only.
                let info = self.info(service, key).await;
                infos.push(info.unwrap_or_else(|_| group_stats::config_info(key, config)));
            }
        }
        Ok(infos)
    }

    /// Ends every group and drops its consumers; each group restarts when a call next needs it.
    pub async fn restart(&self) {
        let mut kept = self.state.lock().await;
        let keys: Vec<GroupKey> = kept.running.keys().cloned().collect();
        for key in keys {
            kept.stop(&key).await;
        }
        kept.configs = None;
    }
}

impl RegistryState {
    /// Loads the groups' settings, and the revision of the event that holds the settings.
    pub async fn load_configs(
        &mut self,
        service: &ServerContext,
    ) -> Result<(Arc<GroupConfigs>, Option<u64>), Error> {
        if let Some(kept) = &self.configs {
            return Ok(kept.clone());
        }
        let (configs, last) = service.store.blocking(checkpoint_store::read_configs).await?;
        let read = (Arc::new(configs), last);
        self.configs = Some(read.clone());
        Ok(read)
    }

    /// Loads the groups' settings again after a failed write, which may have taken effect. Where
    /// the store has none that is valid, those in memory stay.
    async fn reload_configs(&mut self, service: &ServerContext) {
        let read = service.store.blocking(checkpoint_store::read_valid_configs).await;
        if let Ok(Some((configs, last))) = read {
            self.configs = Some((Arc::new(configs), last));
        }
    }

    /// Ends a running group and drops its consumers.
    async fn stop(&mut self, key: &GroupKey) {
        let Some(sender) = self.running.remove(key) else { return };
        let (ended, end) = oneshot::channel();
        // A group that ended by itself does not reply.
        let _ = sender.send(GroupCommand::End(ended)).await;
        let _ = end.await;
    }
}

/// Last event before the group's start; `None` for a start at the first event.
async fn start_position(
    service: &ServerContext,
    key: &GroupKey,
    begin: StartFrom,
) -> Result<Option<u64>, Status> {
    match begin {
        StartFrom::First => Ok(None),
        StartFrom::At(number) => Ok(number.checked_sub(1)),
        StartFrom::Last => {
            let of = key.clone();
            let end = service.store.blocking(move |store| group_task::last_position(store, &of));
            end.await.map_err(|error| store_status(&error))
        }
    }
}

fn store_status(error: &Error) -> Status {
    grpc_status::status(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_service::TestService;

    /// Story: each call about a group copied the settings of all groups, up to 1000 of them with
    /// their filters.
    #[test]
    fn calls_share_the_settings_of_all_groups() {
        let fixture = TestService::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut state = RegistryState::default();
            let (first, _) = state.load_configs(&fixture.service).await.unwrap();
            for _ in 0..3 {
                let (again, _) = state.load_configs(&fixture.service).await.unwrap();
                assert!(Arc::ptr_eq(&first, &again));
            }
        });
    }
}
