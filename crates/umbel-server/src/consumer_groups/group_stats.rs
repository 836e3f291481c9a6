//! What a group of consumers does, as clients are told.

use std::collections::HashMap;

use umbel_proto::persistent::{ConnectionInfo, SubscriptionInfo};

use crate::consumers::{ConsumerId, Consumers};
use crate::group_config::{Begin, GroupConfig, millis, place};
use crate::group_key::GroupKey;
use crate::group_message::Joined;
use crate::group_pace::Sent;

/// What is known of a group that is being served.
pub struct Figures<'a> {
    /// Which.
    pub key: &'a GroupKey,
    /// How it works.
    pub config: &'a GroupConfig,
    /// Who gets what.
    pub consumers: &'a Consumers,
    /// Who they are.
    pub joined: &'a HashMap<ConsumerId, Joined>,
    /// What it was sent,
    pub sent: Sent,
    /// and each of them.
    pub sent_to: HashMap<ConsumerId, Sent>,
    /// The checkpoint that is kept.
    pub checkpoint: Option<u64>,
    /// The last event that was read.
    pub last_known: Option<u64>,
    /// How many are parked.
    pub parked: u64,
}

impl Figures<'_> {
    /// As clients are told.
    pub fn said(&self) -> SubscriptionInfo {
        let Figures { key, consumers, sent, .. } = *self;
        let sent_to = |id| self.sent_to.get(id).copied().unwrap_or_default();
        let (waiting, again, on_the_way) = consumers.counts();
        let connections = consumers.consumers().iter().map(|(id, consumer)| ConnectionInfo {
            username: self.joined.get(id).map(|it| it.joining.username.clone()).unwrap_or_default(),
            average_items_per_second: sent_to(id).per_second,
            total_items: long(consumer.sent),
            count_since_last_measurement: sent_to(id).since_told,
            available_slots: number(consumer.room.saturating_sub(consumer.in_flight())),
            in_flight_messages: number(consumer.in_flight()),
            ..ConnectionInfo::default()
        });
        let said = |at: Option<u64>| at.map(|at| place(key, at)).unwrap_or_default();
        SubscriptionInfo {
            connections: connections.collect(),
            average_per_second: sent.per_second,
            total_items: long(consumers.sent),
            count_since_last_measurement: sent.since_told,
            last_checkpointed_event_position: said(self.checkpoint),
            last_known_event_position: said(self.last_known),
            read_buffer_count: number(waiting),
            retry_buffer_count: number(again),
            total_in_flight_messages: number(on_the_way),
            outstanding_messages_count: number(on_the_way),
            parked_message_count: long(self.parked),
            ..of_config(key, self.config)
        }
    }
}

/// How a group works.
pub fn of_config(key: &GroupKey, config: &GroupConfig) -> SubscriptionInfo {
    let settings = &config.settings;
    let start_from = match (config.begin, &key.stream) {
        (Begin::First, Some(_)) => "0".to_string(),
        (Begin::First, None) => place(key, 0),
        (Begin::Last, Some(_)) => "-1".to_string(),
        (Begin::Last, None) => "C:-1/P:-1".to_string(),
        (Begin::At(at), _) => place(key, at),
    };
    SubscriptionInfo {
        event_source: key.source().to_string(),
        group_name: key.group.clone(),
        status: "Live".to_string(),
        resolve_link_tos: settings.resolve_links,
        start_from,
        message_timeout_milliseconds: millis(config.message_timeout.unwrap_or_default()),
        extra_statistics: settings.extra_statistics,
        max_retry_count: settings.max_retry_count,
        live_buffer_size: settings.live_buffer_size,
        buffer_size: settings.history_buffer_size,
        read_batch_size: settings.read_batch_size,
        check_point_after_milliseconds: millis(config.checkpoint_after),
        min_check_point_count: settings.min_checkpoint_count,
        max_check_point_count: settings.max_checkpoint_count,
        named_consumer_strategy: config.strategy_name().to_string(),
        max_subscriber_count: settings.max_subscriber_count,
        ..SubscriptionInfo::default()
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn long(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
