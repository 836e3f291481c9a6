//! Statistics and settings of consumer groups, as sent to clients.

use std::collections::HashMap;

use umbel_events::{Error, Store};
use umbel_proto::persistent::{ConnectionInfo, SubscriptionInfo};

use crate::consumer_groups::checkpoint_store;
use crate::consumer_groups::dispatcher::{ConsumerId, Dispatcher};
use crate::consumer_groups::group_command::{ConnectedConsumer, ConsumerRequest};
use crate::consumer_groups::group_config::{GroupConfig, StartFrom, format_position, to_millis};
use crate::consumer_groups::group_reading::GroupState;
use crate::consumer_groups::rate_meter::SendRate;
use crate::protocol::group_key::GroupKey;

/// State of a running group.
pub struct GroupStats<'a> {
    /// The group.
    pub key: &'a GroupKey,
    /// Settings of the group.
    pub config: &'a GroupConfig,
    /// The group's dispatcher.
    pub dispatcher: &'a Dispatcher,
    /// The connected consumers.
    pub connected: &'a HashMap<ConsumerId, ConnectedConsumer>,
    /// Rate of events sent by the group.
    pub sent: SendRate,
    /// Rate of events sent to each consumer.
    pub sent_by_consumer: HashMap<ConsumerId, SendRate>,
    /// The stored checkpoint.
    pub checkpoint: Option<u64>,
    /// Number of parked events.
    pub parked_count: u64,
}

impl GroupStats<'_> {
    fn request(&self, id: ConsumerId) -> Option<&ConsumerRequest> {
        self.connected.get(&id).map(|it| &it.request)
    }

    /// The statistics in the client protocol, without the last event of the source.
    pub fn to_info(&self) -> SubscriptionInfo {
        let GroupStats { key, dispatcher: consumers, sent, .. } = *self;
        let sent_to = |id| self.sent_by_consumer.get(id).copied().unwrap_or_default();
        let (waiting, again, on_the_way) = consumers.event_counts();
        let connections = consumers.consumers().iter().map(|(id, consumer)| ConnectionInfo {
            username: self.request(*id).map(|it| it.username.clone()).unwrap_or_default(),
            connection_name: self
                .request(*id)
                .map(|it| it.connection_name.clone())
                .unwrap_or_default(),
            observed_measurements: consumer.ack_times.measurements(),
            average_items_per_second: sent_to(id).per_second,
            total_items: to_i64(consumer.sent),
            count_since_last_measurement: sent_to(id).since_last_report,
            available_slots: to_i32(consumer.capacity.saturating_sub(consumer.in_flight())),
            in_flight_messages: to_i32(consumer.in_flight()),
            ..ConnectionInfo::default()
        });
        SubscriptionInfo {
            connections: connections.collect(),
            average_per_second: sent.per_second,
            total_items: to_i64(consumers.sent),
            count_since_last_measurement: sent.since_last_report,
            last_checkpointed_event_position: position_text(key, self.checkpoint),
            read_buffer_count: to_i32(waiting),
            retry_buffer_count: to_i32(again),
            total_in_flight_messages: to_i32(on_the_way),
            outstanding_messages_count: to_i32(on_the_way),
            parked_message_count: to_i64(self.parked_count),
            ..config_info(key, self.config)
        }
    }
}

/// The statistics and numbers of a group whose task does not run, from its stored state. They are
/// those of a task that has just started.
pub fn stored_info(
    store: &Store,
    key: &GroupKey,
    config: &GroupConfig,
) -> Result<(SubscriptionInfo, GroupState), Error> {
    let checkpoint = checkpoint_store::peek_checkpoint(store, key)?;
    let state = GroupState::at_checkpoint(store, key, checkpoint)?;
    let info = SubscriptionInfo {
        last_checkpointed_event_position: position_text(key, state.checkpoint),
        parked_message_count: to_i64(state.parked),
        ..config_info(key, config)
    };
    Ok((info, state))
}

/// The position in the client protocol; empty without one.
fn position_text(key: &GroupKey, at: Option<u64>) -> String {
    at.map(|at| format_position(key, at)).unwrap_or_default()
}

/// The settings of a group in the client protocol.
pub fn config_info(key: &GroupKey, config: &GroupConfig) -> SubscriptionInfo {
    let settings = &config.settings;
    let start_from = match (config.start_from, &key.stream) {
        (StartFrom::First, Some(_)) => "0".to_string(),
        (StartFrom::First, None) => format_position(key, 0),
        (StartFrom::Last, Some(_)) => "-1".to_string(),
        (StartFrom::Last, None) => "C:-1/P:-1".to_string(),
        (StartFrom::At(at), _) => format_position(key, at),
    };
    SubscriptionInfo {
        event_source: key.source().to_string(),
        group_name: key.group.clone(),
        status: "Live".to_string(),
        resolve_link_tos: settings.resolve_links,
        start_from,
        message_timeout_milliseconds: to_millis(config.message_timeout.unwrap_or_default()),
        extra_statistics: settings.extra_statistics,
        max_retry_count: settings.max_retry_count,
        live_buffer_size: settings.live_buffer_size,
        buffer_size: settings.history_buffer_size,
        read_batch_size: settings.read_batch_size,
        check_point_after_milliseconds: to_millis(config.checkpoint_after),
        min_check_point_count: settings.min_checkpoint_count,
        max_check_point_count: settings.max_checkpoint_count,
        named_consumer_strategy: config.strategy_name().to_string(),
        max_subscriber_count: settings.max_subscriber_count,
        ..SubscriptionInfo::default()
    }
}

fn to_i32(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn to_i64(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
