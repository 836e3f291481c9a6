//! Requests that create and update a consumer group.

use umbel_proto::persistent::{
    CheckpointAfter, CreateOptions, GroupAllOptions, GroupFilter, GroupOrigin, GroupStart as Start,
    MessageTimeout, Settings, SubscriptionInfo,
};
use umbel_proto::streams::read_req::{
    Filter, FilterOptions, Position, RevisionOption, StreamOptions, Window,
};

use crate::events::groups::group_args::{GroupName, GroupSettings, GroupStart};

/// Name of the source of groups on the events of all streams.
pub const ALL_SOURCE: &str = "$all";

/// The settings of a new group without options.
fn default_info() -> SubscriptionInfo {
    SubscriptionInfo {
        start_from: "-1".to_string(),
        message_timeout_milliseconds: 30_000,
        max_retry_count: 10,
        check_point_after_milliseconds: 2000,
        min_check_point_count: 10,
        max_check_point_count: 1000,
        live_buffer_size: 500,
        read_batch_size: 20,
        buffer_size: 500,
        named_consumer_strategy: "RoundRobin".to_string(),
        ..SubscriptionInfo::default()
    }
}

/// The request that creates a group, or with `before` updates it from these settings.
pub fn group_request(
    name: &GroupName,
    given: &GroupSettings,
    filter: Option<Filter>,
    before: Option<SubscriptionInfo>,
) -> CreateOptions {
    let before = before.unwrap_or_else(default_info);
    let number = |given: Option<u64>, before: i32| {
        given.map_or(before, |given| i32::try_from(given).unwrap_or(i32::MAX))
    };
    let timeout = number(given.message_timeout_milliseconds, before.message_timeout_milliseconds);
    let checkpoint =
        number(given.checkpoint_after_milliseconds, before.check_point_after_milliseconds);
    let settings = Settings {
        resolve_links: given.resolve_links.unwrap_or(before.resolve_link_tos),
        extra_statistics: given.extra_statistics.unwrap_or(before.extra_statistics),
        message_timeout: Some(MessageTimeout::MessageTimeoutMs(timeout)),
        max_retry_count: number(given.max_retries, before.max_retry_count),
        checkpoint_after: Some(CheckpointAfter::CheckpointAfterMs(checkpoint)),
        min_checkpoint_count: number(given.min_checkpoint_count, before.min_check_point_count),
        max_checkpoint_count: number(given.max_checkpoint_count, before.max_check_point_count),
        max_subscriber_count: number(given.max_consumers, before.max_subscriber_count),
        live_buffer_size: number(given.live_buffer, before.live_buffer_size),
        read_batch_size: number(given.read_batch, before.read_batch_size),
        history_buffer_size: number(given.history_buffer, before.buffer_size),
        consumer_strategy: given
            .strategy
            .map_or(before.named_consumer_strategy, |strategy| strategy.name().to_string()),
        ..Settings::default()
    };
    let start = given.from.unwrap_or_else(|| reported_start(&before.start_from));
    CreateOptions {
        stream_identifier: None,
        group_name: name.group.clone(),
        settings: Some(settings),
        stream_option: Some(origin(&name.source, start, filter)),
    }
}

fn origin(source: &str, start: GroupStart, filter: Option<Filter>) -> GroupOrigin {
    if source == ALL_SOURCE {
        let start = match start {
            GroupStart::First => Start::Start(()),
            GroupStart::End => Start::End(()),
            GroupStart::At(position) => {
                Start::Position(Position { commit_position: position, prepare_position: position })
            }
        };
        let filter = match filter {
            None => GroupFilter::NoFilter(()),
            filter => GroupFilter::Filter(FilterOptions {
                filter,
                window: Some(Window::Count(())),
                checkpoint_interval_multiplier: 1,
            }),
        };
        let (all_option, filter_option) = (Some(start), Some(filter));
        return GroupOrigin::All(GroupAllOptions { all_option, filter_option });
    }
    let start = match start {
        GroupStart::First => RevisionOption::Start(()),
        GroupStart::End => RevisionOption::End(()),
        GroupStart::At(revision) => RevisionOption::Revision(revision),
    };
    let (stream_identifier, revision_option) = (Some(source.into()), Some(start));
    GroupOrigin::Stream(StreamOptions { stream_identifier, revision_option })
}

/// Parses the start that a server reports: a revision, `C:POSITION/P:POSITION`, or −1 for the end.
fn reported_start(text: &str) -> GroupStart {
    let commit = text.strip_prefix("C:").and_then(|both| both.split_once("/P:"));
    match commit.map_or(text, |(commit, _)| commit) {
        "0" => GroupStart::First,
        number => number.parse().map_or(GroupStart::End, GroupStart::At),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn update_changes_only_the_given_settings() {
        let before = SubscriptionInfo {
            start_from: "C:77/P:77".to_string(),
            max_retry_count: 3,
            resolve_link_tos: true,
            ..default_info()
        };
        let name = GroupName { source: "$all".to_string(), group: "billing".to_string() };
        let given = GroupSettings { live_buffer: Some(9), ..GroupSettings::default() };
        let request = group_request(&name, &given, None, Some(before));
        let settings = request.settings.unwrap();
        assert_eq!((settings.live_buffer_size, settings.max_retry_count), (9, 3));
        assert!(settings.resolve_links && settings.consumer_strategy == "RoundRobin");
        let Some(GroupOrigin::All(all)) = request.stream_option else { panic!("a stream") };
        let position = Position { commit_position: 77, prepare_position: 77 };
        assert_eq!(all.all_option, Some(Start::Position(position)));
    }

    #[test]
    fn reported_starts_are_parsed() {
        for (text, start) in [
            ("0", GroupStart::First),
            ("C:0/P:0", GroupStart::First),
            ("-1", GroupStart::End),
            ("C:-1/P:-1", GroupStart::End),
            ("18446744073709551614", GroupStart::At(u64::MAX - 1)),
            ("C:9/P:8", GroupStart::At(9)),
        ] {
            assert_eq!(reported_start(text), start, "{text}");
        }
    }
}
