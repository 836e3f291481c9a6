//! Creates, changes and finds consumer groups. Each group's task starts when a consumer or a call
//! about parked events first needs it.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tonic::Status;
use umbel_base::fail_point;
use umbel_events::Error;

use crate::consumer_groups::checkpoint_store;
use crate::consumer_groups::group_command::GroupCommand;
use crate::consumer_groups::group_config::{GroupConfig, StartFrom};
use crate::consumer_groups::group_config_log::{self, ConfigChange, ConfigLog, GroupConfigs};
use crate::consumer_groups::group_registry::{GroupRegistry, RegistryState};
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
    match key.keys_with_same_streams().find(|other| configs.contains_key(other)) {
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

/// The settings that a group gets. An update keeps the filter.
fn new_config(old: Option<&GroupConfig>, config: GroupConfig, after: Option<u64>) -> GroupConfig {
    fail_point!("group-forget-update", old.is_some(), |_| old.cloned().unwrap_or(config));
    let filter = match old {
        Some(old) => old.filter.clone(),
        None => config.filter,
    };
    GroupConfig { filter, start_after: after, ..config }
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
        let (configs, _) =
            kept.load_configs(service).await.map_err(|error| store_status(&error))?;
        check_change(key, &change, &configs)?;
        let is_create = matches!(change, GroupChange::Create(_));
        let config = match change {
            GroupChange::Create(config) | GroupChange::Update(config) => {
                let after = start_position(service, key, config.start_from).await?;
                Some(new_config(configs.get(key), config, after))
            }
            GroupChange::Delete => None,
        };
        let is_delete = config.is_none();
        if !is_create && !is_delete {
            kept.stop(key).await;
        }
        drop(configs);
        let written = kept.write_change(service, (key.clone(), config), is_create).await;
        written.map_err(|error| store_status(&error))?;
        if is_delete {
            kept.stop(key).await;
            delete_state(service, key).await;
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
        service.tasks.spawn(group.run(messages));
        kept.running.insert(key.clone(), sender.clone());
        Ok(sender)
    }

    /// The groups with their settings. Starts no group.
    pub async fn configs(&self, service: &ServerContext) -> Result<Arc<GroupConfigs>, Status> {
        let configs = self.state.lock().await.load_configs(service).await;
        configs.map(|(configs, _)| configs).map_err(|error| store_status(&error))
    }

    /// Writes the list of all groups if changes followed the last list, so that an earlier version
    /// of the server finds all groups. A failure is only reported: no group is lost.
    pub async fn write_list(&self, service: &ServerContext) {
        let mut kept = self.state.lock().await;
        if let Err(error) = kept.write_list(service).await {
            tracing::warn!(%error, "the list of consumer groups could not be written");
        }
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
    /// Loads the groups' settings, and the state of the stream that holds them.
    pub async fn load_configs(
        &mut self,
        service: &ServerContext,
    ) -> Result<(Arc<GroupConfigs>, ConfigLog), Error> {
        if let Some(kept) = &self.configs {
            return Ok(kept.clone());
        }
        let (configs, log) = service.store.blocking(group_config_log::read_configs).await?;
        let read = (Arc::new(configs), log);
        self.configs = Some(read.clone());
        Ok(read)
    }

    /// Stores a change of a group. A new group gets no state that a deleted group of the same name
    /// left.
    async fn write_change(
        &mut self,
        service: &ServerContext,
        change: ConfigChange,
        is_create: bool,
    ) -> Result<(), Error> {
        let (mut configs, log) = self.load_configs(service).await?;
        // Without a second reference the change copies no other group.
        self.configs = None;
        let updated = service.env.clock.wall_micros();
        let write = service.store.blocking(move |store| {
            let cleared =
                if is_create { checkpoint_store::delete_state(store, &change.0) } else { Ok(()) };
            let written = cleared.and_then(|()| {
                group_config_log::write_change(store, &mut configs, &log, change, updated)
            });
            Ok(match written {
                Ok(log) => (configs, log, Ok(())),
                Err(error) => (configs, log, Err(error)),
            })
        });
        let (configs, log, written) = write.await?;
        self.configs = Some((configs, log));
        if written.is_err() {
            self.reload_configs(service).await;
        }
        written
    }

    async fn write_list(&mut self, service: &ServerContext) -> Result<(), Error> {
        let (configs, log) = self.load_configs(service).await?;
        let updated = service.env.clock.wall_micros();
        let write = service.store.blocking(move |store| {
            let log = group_config_log::write_list(store, &configs, &log, updated)?;
            Ok((configs, log))
        });
        self.configs = Some(write.await?);
        Ok(())
    }

    /// Loads the groups' settings again after a failed write, which may have taken effect. Where
    /// the store has none that is valid, those in memory stay.
    async fn reload_configs(&mut self, service: &ServerContext) {
        let read = service.store.blocking(group_config_log::read_valid_configs).await;
        if let Ok(Some((configs, log))) = read {
            self.configs = Some((Arc::new(configs), log));
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

/// Deletes the state of a deleted group. Where that fails, a group that is created under its name
/// clears the rest.
async fn delete_state(service: &ServerContext, key: &GroupKey) {
    let of = key.clone();
    let deleting = service.store.blocking(move |store| checkpoint_store::delete_state(store, &of));
    if let Err(error) = deleting.await {
        let (stream, group) = (key.source(), &key.group);
        tracing::warn!(
            stream,
            group,
            %error,
            "the state of a deleted consumer group could not be deleted"
        );
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
