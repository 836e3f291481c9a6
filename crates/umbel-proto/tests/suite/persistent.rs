//! Messages of consumer groups, under the field numbers of the protocol's table.

use umbel_proto::persistent::*;
use umbel_proto::shared::{StreamIdentifier, Uuid, uuid};
use umbel_proto::streams::read_req::{
    Expression, Filter, FilterOptions, Position, RevisionOption, StreamOptions, UuidForm,
    UuidOption, Window,
};

use super::wire_reader::check;

fn name() -> String {
    "a".to_string()
}

fn stream() -> StreamIdentifier {
    "a".into()
}

fn id() -> Uuid {
    Uuid { value: Some(uuid::Value::String(name())) }
}

fn info() -> SubscriptionInfo {
    let measured = Measurement { key: name(), value: 1 };
    check(measured.clone(), &[1, 2]);
    let connection = ConnectionInfo {
        from: name(),
        username: name(),
        average_items_per_second: 1,
        total_items: 1,
        count_since_last_measurement: 1,
        observed_measurements: vec![measured],
        available_slots: 1,
        in_flight_messages: 1,
        connection_name: name(),
    };
    check(connection.clone(), &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    SubscriptionInfo {
        event_source: name(),
        group_name: name(),
        status: name(),
        connections: vec![connection],
        average_per_second: 1,
        total_items: 1,
        count_since_last_measurement: 1,
        last_checkpointed_event_position: name(),
        last_known_event_position: name(),
        resolve_link_tos: true,
        start_from: name(),
        message_timeout_milliseconds: 1,
        extra_statistics: true,
        max_retry_count: 1,
        live_buffer_size: 1,
        buffer_size: 1,
        read_batch_size: 1,
        check_point_after_milliseconds: 1,
        min_check_point_count: 1,
        max_check_point_count: 1,
        read_buffer_count: 1,
        live_buffer_count: 1,
        retry_buffer_count: 1,
        total_in_flight_messages: 1,
        outstanding_messages_count: 1,
        named_consumer_strategy: name(),
        max_subscriber_count: 1,
        parked_message_count: 1,
    }
}

#[test]
fn consumer_messages() {
    let options = |stream_option| ReadOptions {
        stream_option: Some(stream_option),
        group_name: name(),
        buffer_size: 1,
        uuid_option: Some(UuidOption { content: Some(UuidForm::String(())) }),
    };
    check(options(ReadStreamOption::StreamIdentifier(stream())), &[1, 2, 3, 4]);
    check(options(ReadStreamOption::All(())), &[5, 2, 3, 4]);
    let ack = Ack { id: vec![1], ids: vec![id()] };
    check(ack.clone(), &[1, 2]);
    let action = NackAction::Stop.into();
    let nack = Nack { id: vec![1], ids: vec![id()], action, reason: name() };
    check(nack.clone(), &[1, 2, 3, 4]);
    let said = [
        ReadReqContent::Options(options(ReadStreamOption::All(()))),
        ReadReqContent::Ack(ack),
        ReadReqContent::Nack(nack),
    ];
    for (content, number) in said.into_iter().zip(1..) {
        check(ReadReq { content: Some(content) }, &[number]);
    }
    let event = |position, count| ReadRespEvent {
        event: Some(Default::default()),
        link: Some(Default::default()),
        position: Some(position),
        count: Some(count),
    };
    let first = event(DeliveryPosition::CommitPosition(0), RetryCount::RetryCount(0));
    check(first.clone(), &[1, 2, 3, 5]);
    check(event(DeliveryPosition::NoPosition(()), RetryCount::NoRetryCount(())), &[1, 2, 4, 6]);
    let confirmation = SubscriptionConfirmation { subscription_id: name() };
    for (content, number) in [
        (ReadRespContent::Event(first), 1),
        (ReadRespContent::SubscriptionConfirmation(confirmation), 2),
    ] {
        check(ReadResp { content: Some(content) }, &[number]);
    }
}

#[test]
fn group_creation_requests() {
    let settings = |message_timeout, checkpoint_after| Settings {
        resolve_links: true,
        revision: 1,
        extra_statistics: true,
        message_timeout: Some(message_timeout),
        max_retry_count: 1,
        checkpoint_after: Some(checkpoint_after),
        min_checkpoint_count: 1,
        max_checkpoint_count: 1,
        max_subscriber_count: 1,
        live_buffer_size: 1,
        read_batch_size: 1,
        history_buffer_size: 1,
        named_consumer_strategy: NamedStrategy::Pinned.into(),
        consumer_strategy: name(),
    };
    let ticks =
        settings(MessageTimeout::MessageTimeoutTicks(0), CheckpointAfter::CheckpointAfterTicks(0));
    check(ticks.clone(), &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16]);
    let millis =
        settings(MessageTimeout::MessageTimeoutMs(0), CheckpointAfter::CheckpointAfterMs(0));
    check(millis, &[1, 2, 3, 14, 5, 15, 7, 8, 9, 10, 11, 12, 13, 16]);
    let filter = FilterOptions {
        filter: Some(Filter::EventType(Expression { regex: name(), prefix: vec![name()] })),
        window: Some(Window::Count(())),
        checkpoint_interval_multiplier: 1,
    };
    let starts = [
        GroupStart::Position(Position { commit_position: 1, prepare_position: 1 }),
        GroupStart::Start(()),
        GroupStart::End(()),
    ];
    for (start, number) in starts.into_iter().zip(1..) {
        let filters = [(GroupFilter::Filter(filter.clone()), 4), (GroupFilter::NoFilter(()), 5)];
        for (filter, second) in filters {
            let all_option = Some(start);
            check(GroupAllOptions { all_option, filter_option: Some(filter) }, &[number, second]);
        }
    }
    let of_stream = StreamOptions {
        stream_identifier: Some(stream()),
        revision_option: Some(RevisionOption::End(())),
    };
    for (origin, number) in
        [(GroupOrigin::Stream(of_stream), 4), (GroupOrigin::All(GroupAllOptions::default()), 5)]
    {
        let options = CreateOptions {
            stream_identifier: Some(stream()),
            group_name: name(),
            settings: Some(ticks.clone()),
            stream_option: Some(origin),
        };
        check(options.clone(), &[1, 2, 3, number]);
        check(CreateReq { options: Some(options) }, &[1]);
    }
}

#[test]
fn group_information() {
    for (option, number) in
        [(DeleteStreamOption::StreamIdentifier(stream()), 1), (DeleteStreamOption::All(()), 3)]
    {
        let options = DeleteOptions { stream_option: Some(option), group_name: name() };
        check(options.clone(), &[number, 2]);
        check(DeleteReq { options: Some(options) }, &[1]);
    }
    for (option, number) in
        [(GetInfoStreamOption::StreamIdentifier(stream()), 1), (GetInfoStreamOption::All(()), 2)]
    {
        let options = GetInfoOptions { stream_option: Some(option), group_name: name() };
        check(options.clone(), &[number, 3]);
        check(GetInfoReq { options: Some(options) }, &[1]);
    }
    for (option, number) in
        [(ListStreamOption::Stream(stream()), 1), (ListStreamOption::All(()), 2)]
    {
        check(ListStream { stream_option: Some(option) }, &[number]);
    }
    for (option, number) in
        [(ReplayStreamOption::StreamIdentifier(stream()), 2), (ReplayStreamOption::All(()), 3)]
    {
        for (stop, third) in [(StopAt::StopAt(0), 4), (StopAt::NoLimit(()), 5)] {
            let options = ReplayParkedOptions {
                group_name: name(),
                stream_option: Some(option.clone()),
                stop_at_option: Some(stop),
            };
            check(options.clone(), &[1, number, third]);
            check(ReplayParkedReq { options: Some(options) }, &[1]);
        }
    }
    let which =
        [ListOption::ListAllSubscriptions(()), ListOption::ListForStream(ListStream::default())];
    for (option, number) in which.into_iter().zip(1..) {
        let options = ListOptions { list_option: Some(option) };
        check(options.clone(), &[number]);
        check(ListReq { options: Some(options) }, &[1]);
    }
    check(info(), &(1..=28).collect::<Vec<_>>());
    check(GetInfoResp { subscription_info: Some(info()), filter: None }, &[1]);
    let expression = Expression { regex: "^a".to_string(), prefix: vec!["b".to_string(); 2] };
    let filter = Some(FilterOptions {
        filter: Some(Filter::StreamIdentifier(expression)),
        window: Some(Window::Max(0)),
        checkpoint_interval_multiplier: 1,
    });
    check(GetInfoResp { subscription_info: None, filter }, &[1000]);
    check(ListResp { subscriptions: vec![info()] }, &[1]);
}
