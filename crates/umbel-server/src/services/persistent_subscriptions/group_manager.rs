//! Groups of consumers made, changed and found. Each is served once somebody asks for it.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tonic::Status;
use umbel_events::Error;
use umbel_proto::persistent::SubscriptionInfo;

use crate::group::{self, Group};
use crate::group_config::{Begin, GroupConfig};
use crate::group_keep::{self, Configs};
use crate::group_key::GroupKey;
use crate::group_message::Message;
use crate::group_registry::{Groups, Kept};
use crate::limits::{GROUP_MESSAGES_MAX, GROUPS_MAX};
use crate::service::Service;
use crate::{failure, group_info};

/// What is to be done with a group.
#[derive(Debug)]
pub enum Change {
    /// Make it.
    Create(GroupConfig),
    /// Let it work so.
    Update(GroupConfig),
    /// Delete it.
    Delete,
}

/// An error where a group cannot be made beside these.
fn may_be_made(key: &GroupKey, configs: &Configs) -> Result<(), Status> {
    if configs.len() >= GROUPS_MAX {
        let full = format!("There are {GROUPS_MAX} groups already; delete one.");
        return Err(failure::group_failed(key, &full));
    }
    key.check_names()?;
    match configs.keys().find(|other| other.keeps_as(key)) {
        Some(other) => {
            let taken = format!(
                "It would keep its state where group '{}' on stream '{}' does; take another name.",
                other.group,
                other.source()
            );
            Err(failure::group_failed(key, &taken))
        }
        None => Ok(()),
    }
}

impl Groups {
    /// Makes, changes or deletes a group. REQUIRES: it is polled to its end.
    pub async fn change(
        &self,
        service: &Arc<Service>,
        key: &GroupKey,
        change: Change,
    ) -> Result<(), Status> {
        if let Change::Create(config) = &change {
            // What cannot be read with is told now, and not to each consumer.
            let config = config.clone();
            let compiled = service.store.blocking(move |_| config.compile().map(drop)).await;
            compiled.map_err(|error| told(&error))?;
        }
        let mut kept = self.kept.lock().await;
        let (mut configs, last) = kept.read(service).await.map_err(|error| told(&error))?;
        match (&change, configs.get(key)) {
            (Change::Create(_), Some(_)) => return Err(failure::group_exists(key)),
            (Change::Update(_) | Change::Delete, None) => return Err(failure::group_missing(key)),
            (Change::Create(_), None) => may_be_made(key, &configs)?,
            _ => {}
        }
        let is_update = matches!(change, Change::Update(_));
        match change {
            Change::Create(config) | Change::Update(config) => {
                let old = configs.get(key).and_then(|old| old.filter.clone());
                let filter = if is_update { old } else { config.filter.clone() };
                let after = begins(service, key, config.begin).await?;
                #[cfg(feature = "canary")]
                let config = match configs.get(key) {
                    Some(old) if umbel_base::canary::Switch::ServerGroupUpdateForgotten.is_on() => {
                        old.clone()
                    }
                    _ => config,
                };
                configs.insert(key.clone(), GroupConfig { filter, after, ..config });
            }
            Change::Delete => drop(configs.remove(key)),
        }
        if is_update {
            kept.end(key).await;
        }
        let (written, updated) = (configs.clone(), service.env.clock.wall_micros());
        let of = key.clone();
        let write = service.store.blocking(move |store| {
            let made = written.contains_key(&of) && !is_update;
            if made {
                // What a group of this name left when it was deleted is none of the new one's.
                group_keep::forget(store, &of)?;
            }
            let last = group_keep::write_configs(store, &written, last, updated)?;
            Ok(last)
        });
        match write.await {
            Ok(last) => kept.configs = Some((configs, last)),
            Err(error) => {
                kept.configs = None;
                return Err(told(&error));
            }
        }
        if kept.configs.as_ref().is_some_and(|(configs, _)| !configs.contains_key(key)) {
            kept.end(key).await;
            let of = key.clone();
            let forgetting = service.store.blocking(move |store| group_keep::forget(store, &of));
            forgetting.await.map_err(|error| told(&error))?;
        }
        Ok(())
    }

    /// What serves a group.
    pub async fn serve(
        &self,
        service: &Arc<Service>,
        key: &GroupKey,
    ) -> Result<mpsc::Sender<Message>, Status> {
        let mut kept = self.kept.lock().await;
        let (configs, _) = kept.read(service).await.map_err(|error| told(&error))?;
        let Some(config) = configs.get(key) else { return Err(failure::group_missing(key)) };
        if let Some(sender) = kept.served.get(key)
            && !sender.is_closed()
        {
            return Ok(sender.clone());
        }
        let group = Group::open(Arc::clone(service), key.clone(), config.clone()).await;
        let group = group.map_err(|error| told(&error))?;
        let (sender, messages) = mpsc::channel(GROUP_MESSAGES_MAX);
        tokio::spawn(group.run(messages));
        kept.served.insert(key.clone(), sender.clone());
        Ok(sender)
    }

    /// What a group does.
    pub async fn info(
        &self,
        service: &Arc<Service>,
        key: &GroupKey,
    ) -> Result<SubscriptionInfo, Status> {
        let sender = self.serve(service, key).await?;
        let (answer, told) = oneshot::channel();
        // Where the group ended meanwhile, nobody answers.
        let _ = sender.send(Message::Info(answer)).await;
        told.await.map_err(|_| failure::group_missing(key))
    }

    /// What each group does, or each of one stream or of all events.
    pub async fn list(
        &self,
        service: &Arc<Service>,
        of: Option<&Option<String>>,
    ) -> Result<Vec<SubscriptionInfo>, Status> {
        let configs = self.kept.lock().await.read(service).await;
        let (configs, _) = configs.map_err(|error| told(&error))?;
        let mut infos = Vec::new();
        for (key, config) in configs {
            if of.is_none_or(|stream| *stream == key.stream) {
                // One that cannot be served is shown by how it would work.
                let info = self.info(service, &key).await;
                infos.push(info.unwrap_or_else(|_| group_info::of_config(&key, &config)));
            }
        }
        Ok(infos)
    }

    /// Ends every group and drops its consumers; each begins anew when it is asked for.
    pub async fn restart(&self) {
        let mut kept = self.kept.lock().await;
        let keys: Vec<GroupKey> = kept.served.keys().cloned().collect();
        for key in keys {
            kept.end(&key).await;
        }
        kept.configs = None;
    }
}

impl Kept {
    /// Which groups there are, and the revision that says so.
    async fn read(&mut self, service: &Service) -> Result<(Configs, Option<u64>), Error> {
        if let Some(kept) = &self.configs {
            return Ok(kept.clone());
        }
        let read = service.store.blocking(group_keep::read_configs).await?;
        self.configs = Some(read.clone());
        Ok(read)
    }

    /// Ends a group that is being served; its consumers are dropped.
    async fn end(&mut self, key: &GroupKey) {
        let Some(sender) = self.served.remove(key) else { return };
        let (ended, end) = oneshot::channel();
        // One that ended by itself answers nothing.
        let _ = sender.send(Message::End(ended)).await;
        let _ = end.await;
    }
}

/// The event behind which a group begins; `None` before the first.
async fn begins(service: &Service, key: &GroupKey, begin: Begin) -> Result<Option<u64>, Status> {
    match begin {
        Begin::First => Ok(None),
        Begin::At(number) => Ok(number.checked_sub(1)),
        Begin::Last => {
            let of = key.clone();
            let end = service.store.blocking(move |store| group::end(store, &of));
            end.await.map_err(|error| told(&error))
        }
    }
}

fn told(error: &Error) -> Status {
    failure::status(error)
}
