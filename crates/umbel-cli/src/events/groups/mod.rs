//! `umbel group`: the consumer groups (persistent subscriptions) of a server, over the calls of
//! its clients.

pub mod group_args;
pub mod group_request;
mod parked_event;

use serde_json::{Map, Value, json};
use umbel_proto::persistent::{
    CreateReq, DeleteOptions, DeleteReq, DeleteStreamOption, GetInfoOptions, GetInfoReq,
    GetInfoResp, GetInfoStreamOption, ListOption, ListOptions, ListReq, ListResp, ListStream,
    ListStreamOption, ReplayParkedOptions, ReplayParkedReq, ReplayStreamOption, StopAt,
    SubscriptionInfo,
};
use umbel_proto::read_options::{at_most, of_stream, resolving_links};
use umbel_proto::streams::read_req::{Filter, FilterOptions, RevisionOption};
use umbel_proto::streams::read_resp::Content;
use umbel_server::parked_streams;

use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::grpc_connection::{self, Connection, status_error};
use crate::events::groups::group_args::{
    CreateArgs, GroupCommand, GroupName, GroupSettings, ListArgs, NamedArgs, ParkedArgs,
    ReplayArgs, UpdateArgs,
};
use crate::events::groups::group_request::{ALL_SOURCE, group_request};
use crate::events::groups::parked_event::ParkedEvent;
use crate::events::subscribe::decode_recorded;
use crate::events::tombstoned_stream::is_stream_deleted;
use crate::io::output::Output;
use crate::text::escaping::{escaped, printable_line};

/// Path prefix of the service's calls.
macro_rules! path {
    ($call:literal) => {
        concat!("/event_store.client.persistent_subscriptions.PersistentSubscriptions/", $call)
    };
}

/// Runs a command on the consumer groups of a server.
pub fn run(command: &GroupCommand, json: bool) -> CommandResult<()> {
    match command {
        GroupCommand::List(args) => list(args, json),
        GroupCommand::Info(args) => info(args, json),
        GroupCommand::Create(args) => create(args, json),
        GroupCommand::Update(args) => update(args, json),
        GroupCommand::Delete(args) => delete(args, json),
        GroupCommand::Parked(args) => parked(args),
        GroupCommand::Replay(args) => replay(args, json),
    }
}

fn list(args: &ListArgs, json: bool) -> CommandResult<()> {
    let option = match &args.source {
        None => ListOption::ListAllSubscriptions(()),
        Some(source) => {
            let of = match source == ALL_SOURCE {
                true => ListStreamOption::All(()),
                false => ListStreamOption::Stream(source.as_str().into()),
            };
            ListOption::ListForStream(ListStream { stream_option: Some(of) })
        }
    };
    let request = ListReq { options: Some(ListOptions { list_option: Some(option) }) };
    let address = args.server.address()?;
    let answer: ListResp = call(&address, path!("List"), request)?;
    let mut output = Output::new();
    for group in &answer.subscriptions {
        match json {
            true => output.json(&to_json(group))?,
            false => output.line(&to_text(group))?,
        }
    }
    output.flush()
}

fn to_text(group: &SubscriptionInfo) -> String {
    let [source, name] =
        [&group.event_source, &group.group_name].map(|text| escaped(text.as_bytes()));
    let checkpoint = match group.last_checkpointed_event_position.as_str() {
        "" => "none".to_string(),
        position => escaped(position.as_bytes()),
    };
    format!(
        "{source}\t{name}\tconsumers {}\tin flight {}\tparked {}\tcheckpoint {checkpoint}",
        group.connections.len(),
        group.total_in_flight_messages,
        group.parked_message_count
    )
}

/// A group's state. Positions are text, because numbers of JSON programs lose digits above 2^53.
fn to_json(group: &SubscriptionInfo) -> Value {
    let position = |text: &str| (!text.is_empty()).then(|| text.to_string());
    let consumers = group.connections.iter().map(|consumer| {
        json!({
            "user": consumer.username,
            "connection_name": consumer.connection_name,
            "events_sent": consumer.total_items,
            "in_flight": consumer.in_flight_messages,
            "available_slots": consumer.available_slots,
        })
    });
    json!({
        "stream": group.event_source,
        "group": group.group_name,
        "status": group.status,
        "start_from": group.start_from,
        "resolve_links": group.resolve_link_tos,
        "message_timeout_milliseconds": group.message_timeout_milliseconds,
        "max_retries": group.max_retry_count,
        "checkpoint_after_milliseconds": group.check_point_after_milliseconds,
        "min_checkpoint_count": group.min_check_point_count,
        "max_checkpoint_count": group.max_check_point_count,
        "max_consumers": group.max_subscriber_count,
        "live_buffer": group.live_buffer_size,
        "read_batch": group.read_batch_size,
        "history_buffer": group.buffer_size,
        "strategy": group.named_consumer_strategy,
        "extra_statistics": group.extra_statistics,
        "checkpoint": position(&group.last_checkpointed_event_position),
        "last_known": position(&group.last_known_event_position),
        "in_flight": group.total_in_flight_messages,
        "retrying": group.retry_buffer_count,
        "buffered": group.read_buffer_count,
        "parked": group.parked_message_count,
        "events_sent": group.total_items,
        "events_per_second": group.average_per_second,
        "consumers": consumers.collect::<Vec<_>>(),
    })
}

/// A group's filter, under the name of the option that creates it; null without one.
fn filter_json(filter: Option<FilterOptions>) -> Value {
    let (by, expression) = match filter.and_then(|options| options.filter) {
        Some(Filter::StreamIdentifier(expression)) => ("stream", expression),
        Some(Filter::EventType(expression)) => ("type", expression),
        None => return Value::Null,
    };
    let (rule, value) = match expression.prefix.is_empty() {
        true => ("regex", json!(expression.regex)),
        false => ("prefix", json!(expression.prefix)),
    };
    json!({ format!("{by}_{rule}"): value })
}

/// Lines about a filter: one for each prefix, or one for the regular expression.
fn filter_lines(filter: &Map<String, Value>) -> Vec<String> {
    let mut lines = Vec::new();
    for (rule, value) in filter {
        let name = format!("filter by {}", rule.replace('_', " "));
        let texts = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        lines.extend(texts.iter().map(|text| {
            let text = escaped(text.as_str().unwrap_or_default().as_bytes());
            format!("{name:<30} {text}")
        }));
    }
    lines
}

/// Line about a consumer, as JSON: clients choose the names of their connections.
fn consumer_line(consumer: &Value) -> String {
    format!("{:<30} {}", "consumer", printable_line(&consumer.to_string()))
}

fn info(args: &NamedArgs, json: bool) -> CommandResult<()> {
    let GetInfoResp { subscription_info, filter } = read_info(&args.server.address()?, &args.name)?;
    let mut group = to_json(&subscription_info.unwrap_or_default());
    group["filter"] = filter_json(filter);
    let mut output = Output::new();
    if json {
        output.json(&group)?;
        return output.flush();
    }
    for (name, value) in group.as_object().into_iter().flatten() {
        let name = name.replace('_', " ");
        match value {
            Value::Array(consumers) => {
                for consumer in consumers {
                    output.line(&consumer_line(consumer))?;
                }
            }
            Value::Object(filter) => {
                for line in filter_lines(filter) {
                    output.line(&line)?;
                }
            }
            Value::Null => output.line(&format!("{name:<30} none"))?,
            Value::String(text) => {
                output.line(&format!("{name:<30} {}", escaped(text.as_bytes())))?;
            }
            value => output.line(&format!("{name:<30} {value}"))?,
        }
    }
    output.flush()
}

fn read_info(address: &ConnectionString, name: &GroupName) -> CommandResult<GetInfoResp> {
    let stream_option = Some(match name.source == ALL_SOURCE {
        true => GetInfoStreamOption::All(()),
        false => GetInfoStreamOption::StreamIdentifier(name.source.as_str().into()),
    });
    let options = Some(GetInfoOptions { group_name: name.group.clone(), stream_option });
    let answer: GetInfoResp = call(address, path!("GetInfo"), GetInfoReq { options })?;
    if answer.subscription_info.is_none() {
        let why = "the server sent no description of the group".to_string();
        return Err(CommandError::System(why));
    }
    Ok(answer)
}

fn create(args: &CreateArgs, json: bool) -> CommandResult<()> {
    let filter = args.filter.to_filter_args();
    // Before the call, which reports it only once the server is reached.
    filter.to_store_filter()?;
    let filter = filter.to_server_filter();
    if filter.is_some() && args.name.source != ALL_SOURCE {
        return Err(CommandError::usage(
            "a filter is valid only for a group of all events; name the source $all",
        ));
    }
    let options = Some(group_request(&args.name, &args.settings, filter, None));
    call::<_, ()>(&args.server.address()?, path!("Create"), CreateReq { options })?;
    report(&args.name, "created", json)
}

fn update(args: &UpdateArgs, json: bool) -> CommandResult<()> {
    if args.settings == GroupSettings::default() {
        return Err(CommandError::usage(
            "the update changes no setting, but would disconnect the consumers: name a setting, \
             such as --max-retries 3; `umbel group update --help` lists them",
        ));
    }
    let address = args.server.address()?;
    let before = read_info(&address, &args.name)?.subscription_info;
    let options = Some(group_request(&args.name, &args.settings, None, before));
    call::<_, ()>(&address, path!("Update"), CreateReq { options })?;
    report(&args.name, "updated", json)
}

fn delete(args: &NamedArgs, json: bool) -> CommandResult<()> {
    let stream_option = Some(match args.name.source == ALL_SOURCE {
        true => DeleteStreamOption::All(()),
        false => DeleteStreamOption::StreamIdentifier(args.name.source.as_str().into()),
    });
    let options = Some(DeleteOptions { group_name: args.name.group.clone(), stream_option });
    call::<_, ()>(&args.server.address()?, path!("Delete"), DeleteReq { options })?;
    report(&args.name, "deleted", json)
}

fn replay(args: &ReplayArgs, json: bool) -> CommandResult<()> {
    let stream_option = Some(match args.name.source == ALL_SOURCE {
        true => ReplayStreamOption::All(()),
        false => ReplayStreamOption::StreamIdentifier(args.name.source.as_str().into()),
    });
    let stop_at = args.stop_at.and_then(|revision| i64::try_from(revision).ok());
    let options = Some(ReplayParkedOptions {
        group_name: args.name.group.clone(),
        stream_option,
        stop_at_option: Some(stop_at.map_or(StopAt::NoLimit(()), StopAt::StopAt)),
    });
    call::<_, ()>(&args.server.address()?, path!("ReplayParked"), ReplayParkedReq { options })?;
    report(&args.name, "parked events are sent again", json)
}

/// Prints the events to which the links in the stream of parked events point, with the time and the
/// reason of their parking; a link to an event that is gone is printed itself.
fn parked(args: &ParkedArgs) -> CommandResult<()> {
    let address = args.server.address()?;
    // An unknown group is an error, and not a group without parked events.
    read_info(&address, &args.name)?;
    let count = args.count.unwrap_or(i64::MAX as u64);
    let mut output = Output::new();
    grpc_connection::runtime()?.block_on(async {
        let connection = Connection::open(&address).await?;
        for stream in parked_streams(&args.name.source, &args.name.group) {
            if print_parked(&connection, &stream, count, &mut output).await? {
                break;
            }
        }
        output.flush()
    })
}

/// Prints the events of a stream of parked events. Returns `false` if the stream is tombstoned; the
/// server then parks events in a stream of another name.
async fn print_parked(
    connection: &Connection,
    stream: &str,
    count: u64,
    output: &mut Output,
) -> CommandResult<bool> {
    let options = resolving_links(of_stream(stream, RevisionOption::Start(())));
    let mut answers = match connection.read_or_status(at_most(count, options)).await? {
        Ok(answers) => answers,
        Err(status) if is_stream_deleted(&status) => return Ok(false),
        Err(status) => return Err(status_error(&status)),
    };
    loop {
        let answer = match answers.message().await {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(true),
            Err(status) if is_stream_deleted(&status) => return Ok(false),
            Err(status) => return Err(status_error(&status)),
        };
        let Some(Content::Event(read)) = answer.content else { continue };
        let link = read.link.map(decode_recorded).transpose()?;
        let event = read.event.map(decode_recorded).transpose()?;
        let Some(parked) = ParkedEvent::new(link, event) else { continue };
        output.line(&parked.to_line())?;
    }
}

fn call<M: prost::Message + Default + 'static, R: prost::Message + Default + 'static>(
    address: &ConnectionString,
    path: &'static str,
    message: M,
) -> CommandResult<R> {
    grpc_connection::runtime()?
        .block_on(async { Connection::open(address).await?.unary(path, message).await })
}

fn report(name: &GroupName, done: &str, json: bool) -> CommandResult<()> {
    let mut output = Output::new().after("the server has made the change");
    match json {
        true => {
            output.json(&json!({ "stream": name.source, "group": name.group, "outcome": done }))?
        }
        false => {
            let [source, group] = [&name.source, &name.group].map(|text| escaped(text.as_bytes()));
            output.line(&format!("{source}::{group}: {done}"))?;
        }
    }
    output.flush()
}

#[cfg(test)]
mod tests {
    use umbel_proto::persistent::ConnectionInfo;

    use super::*;

    /// Story: the name of a client's connection changed the direction of the line in a terminal.
    #[test]
    fn names_of_consumers_do_not_act_on_a_terminal() {
        let connection_name = "a\u{202e}b\u{9b}2J".to_string();
        let consumer = ConnectionInfo { connection_name, ..ConnectionInfo::default() };
        let group = SubscriptionInfo {
            connections: vec![consumer],
            last_checkpointed_event_position: "C:1\u{202e}".to_string(),
            ..SubscriptionInfo::default()
        };
        let line = consumer_line(&to_json(&group)["consumers"][0]);
        assert!(line.contains(r#""connection_name":"a\u202eb\u009b2J""#), "{line}");
        assert!(line.is_ascii(), "{line}");
        let line = to_text(&group);
        assert!(line.ends_with(r"checkpoint C:1\xe2\x80\xae"), "{line}");
    }
}
