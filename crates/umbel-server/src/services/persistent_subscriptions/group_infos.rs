//! Statistics of consumer groups. The task of a running group reports them; those of other groups
//! are read from their stored state, so that a list of all groups starts no task.

use tokio::sync::{mpsc, oneshot};
use tonic::Status;
use umbel_events::{LogBytes, Position, Store};
use umbel_proto::persistent::SubscriptionInfo;
use umbel_proto::streams::read_req::FilterOptions;

use crate::consumer_groups::group_command::GroupCommand;
use crate::consumer_groups::group_config::{GroupConfig, format_position};
use crate::consumer_groups::group_reading::{self, GroupLag, GroupRequest, GroupState};
use crate::consumer_groups::group_registry::GroupRegistry;
use crate::consumer_groups::group_stats;
use crate::limits::GROUP_CHUNK;
use crate::protocol::group_key::GroupKey;
use crate::protocol::grpc_status;
use crate::server_context::ServerContext;

/// A group with its settings.
type Group = (GroupKey, GroupConfig);

/// Statistics of a group, with those that the protocol of clients lacks.
#[derive(Debug)]
pub struct GroupInfo {
    /// The statistics in the protocol of clients.
    pub info: SubscriptionInfo,
    /// Name of the stream of parked events. It changes if that stream is tombstoned.
    pub parked_stream: String,
    /// Revision or position of the last event that the group read.
    pub last_read: Option<u64>,
    /// Events that the group has not processed.
    pub lag: GroupLag,
    /// Filter of a group on all events. Lists lack it, since filters can have many bytes.
    pub filter: Option<FilterOptions>,
}

/// The groups of a list, and the number of groups from which they were taken.
#[derive(Debug)]
pub struct GroupPage {
    /// Statistics of the groups, in order.
    pub infos: Vec<GroupInfo>,
    /// Number of groups on all pages.
    pub total: usize,
}

impl GroupRegistry {
    /// Statistics of a group.
    pub async fn info(&self, service: &ServerContext, key: &GroupKey) -> Result<GroupInfo, Status> {
        let configs = self.configs(service).await?;
        let Some(config) = configs.get(key) else { return Err(grpc_status::group_missing(key)) };
        let group = (key.clone(), config.clone());
        let filter = config.filter.clone();
        drop(configs);
        let info = self.chunk_infos(service, vec![group]).await?.pop();
        let info = info.ok_or_else(|| grpc_status::group_missing(key))?;
        Ok(GroupInfo { filter, ..info })
    }

    /// Statistics of all groups, of the groups of one stream, or of the groups of all events:
    /// `count` of them after the first `skipped`.
    pub async fn list(
        &self,
        service: &ServerContext,
        of: Option<&Option<String>>,
        (skipped, count): (usize, usize),
    ) -> Result<GroupPage, Status> {
        let configs = self.configs(service).await?;
        let is_listed = |key: &&GroupKey| of.is_none_or(|stream| *stream == key.stream);
        let keys: Vec<&GroupKey> = configs.keys().filter(is_listed).collect();
        let page = keys.iter().skip(skipped).take(count).copied().collect::<Vec<_>>();
        let mut infos = Vec::with_capacity(page.len());
        for keys in page.chunks(GROUP_CHUNK) {
            let group = |key: &&GroupKey| Some(((*key).clone(), configs.get(*key)?.clone()));
            let groups = keys.iter().filter_map(group).collect();
            infos.append(&mut self.chunk_infos(service, groups).await?);
        }
        Ok(GroupPage { infos, total: keys.len() })
    }

    /// Statistics of at most [`GROUP_CHUNK`] groups, in order.
    async fn chunk_infos(
        &self,
        service: &ServerContext,
        groups: Vec<Group>,
    ) -> Result<Vec<GroupInfo>, Status> {
        // The lock is held neither for reads nor while a task reports.
        let senders: Vec<Option<mpsc::Sender<GroupCommand>>> = {
            let kept = self.state.lock().await;
            groups.iter().map(|(key, _)| kept.running.get(key).cloned()).collect()
        };
        let mut reported = Vec::with_capacity(groups.len());
        for sender in senders {
            reported.push(match sender {
                Some(sender) => running_info(&sender).await,
                None => None,
            });
        }
        let limit = |key: &GroupKey| service.system_projections.limit_of(&key.event_source());
        let limits: Vec<Position> = groups.iter().map(|(key, _)| limit(key)).collect();
        let read = service.store.blocking(move |store| {
            let log = store.log_bytes();
            let groups = groups.iter().zip(limits).zip(reported);
            Ok(groups
                .map(|((group, limit), known)| read_info((store, &log), group, limit, known))
                .collect())
        });
        read.await.map_err(|error| grpc_status::status(&error))
    }
}

/// Completes the statistics that the group's task reported, or reads those of a group that does not
/// run. A group whose state cannot be read shows its settings only.
fn read_info(
    (store, log): (&Store, &LogBytes),
    (key, config): &Group,
    through: Position,
    reported: Option<(SubscriptionInfo, GroupState)>,
) -> GroupInfo {
    let known = reported.or_else(|| group_stats::stored_info(store, key, config).ok());
    let (mut info, state) =
        known.unwrap_or_else(|| (group_stats::config_info(key, config), GroupState::default()));
    let (key, start_after) = (key.clone(), config.start_after);
    let request = GroupRequest { key, start_after, through, state: None };
    let found = group_reading::end_and_lag(store, log, &request, &state);
    let (end, lag) = found.unwrap_or((None, GroupLag::Events(0)));
    let key = request.key;
    info.last_known_event_position = end.map(|end| format_position(&key, end)).unwrap_or_default();
    let parked_stream = match state.parked_stream {
        unknown if unknown.is_empty() => key.parked_stream(),
        known => known,
    };
    GroupInfo { info, parked_stream, last_read: state.last_read, lag, filter: None }
}

/// Statistics that the group's task reports; `None` if the task has ended.
async fn running_info(
    sender: &mpsc::Sender<GroupCommand>,
) -> Option<(SubscriptionInfo, GroupState)> {
    let (answer, receiver) = oneshot::channel();
    sender.send(GroupCommand::Info(answer)).await.ok()?;
    receiver.await.ok()
}
