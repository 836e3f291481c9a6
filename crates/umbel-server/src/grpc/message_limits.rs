//! [`RequestMessage`]: a request message, with the limits that keep its decoding short.
//!
//! An empty element takes 2 bytes of a message but over a hundred bytes of memory in a decoded
//! tree. Messages without events or values must therefore be short. Messages with events, records
//! or writes are read from their bytes, without a tree. In the other long messages, the elements
//! are counted before decoding.

use hyper::body::Bytes;
use prost::bytes::Buf;
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};
use tonic::Status;
use umbel_events::limits::FILTER_PREFIXES_MAX;
use umbel_proto::kv::{
    CreateKeyspaceRequest, DeleteRequest, DropKeyspaceRequest, GetRequest, MultiGetRequest,
    PutRequest, ScanRequest, WatchRequest,
};
use umbel_proto::persistent::ReadReqContent;
use umbel_proto::shared::Uuid;
use umbel_proto::streams::{DeleteReq, ReadReq};
use umbel_proto::{monitoring, operations, persistent, projections, users};

use crate::limits::{GROUP_EVENTS_MAX, KV_KEYS_MAX, SMALL_MESSAGE_BYTES_MAX};
use crate::protocol::message_reader::{self, MessageReader};

/// A message that clients send.
pub trait RequestMessage: Sized + Send + 'static {
    /// Whether the message may be longer than [`SMALL_MESSAGE_BYTES_MAX`].
    const MAY_BE_LONG: bool = false;

    /// Checks the length of a message; the error is the reason to refuse it.
    fn check_length(bytes: usize) -> Result<(), String> {
        if Self::MAY_BE_LONG || bytes <= SMALL_MESSAGE_BYTES_MAX {
            return Ok(());
        }
        Err(format!(
            "the message has {bytes} bytes, but a message of this call may have at most \
             {SMALL_MESSAGE_BYTES_MAX}"
        ))
    }

    /// Decodes a message. The error ends the call.
    fn from_bytes(message: Bytes) -> Result<Self, Status>;

    /// Bytes of memory that the message keeps, as far as they are known; 0 for a message that takes
    /// little more memory than its bytes.
    fn memory_bytes(&self) -> usize {
        0
    }
}

/// A repeated field, or a message that contains repeated fields: its number, the maximum number of
/// its elements, and the repeated fields of an element.
struct RepeatedField(u32, usize, &'static [RepeatedField]);

/// Event ids that a consumer acks or nacks. The limits here are twice those of the calls, which
/// report a number of elements over their limit.
static IDS: [RepeatedField; 1] = [RepeatedField(2, IDS_MAX, &[])];
static CONSUMER: [RepeatedField; 2] =
    [RepeatedField(2, IDS_MAX, &IDS), RepeatedField(3, IDS_MAX, &IDS)];
static KEYS: [RepeatedField; 1] = [RepeatedField(2, KEYS_MAX, &[])];

/// Prefixes of a filter, in each part of an event that a filter may test.
static EXPRESSION: [RepeatedField; 1] = [RepeatedField(2, PREFIXES_MAX, &[])];
static FILTER: [RepeatedField; 2] =
    [RepeatedField(1, PREFIXES_MAX, &EXPRESSION), RepeatedField(2, PREFIXES_MAX, &EXPRESSION)];
static READ_OPTIONS: [RepeatedField; 1] = [RepeatedField(7, PREFIXES_MAX, &FILTER)];
static READ: [RepeatedField; 1] = [RepeatedField(1, PREFIXES_MAX, &READ_OPTIONS)];
static GROUP_SOURCE: [RepeatedField; 1] = [RepeatedField(4, PREFIXES_MAX, &FILTER)];
static GROUP_OPTIONS: [RepeatedField; 1] = [RepeatedField(5, PREFIXES_MAX, &GROUP_SOURCE)];
static GROUP: [RepeatedField; 1] = [RepeatedField(1, PREFIXES_MAX, &GROUP_OPTIONS)];

/// Groups of a user.
static USER_OPTIONS: [RepeatedField; 1] = [RepeatedField(4, USER_GROUPS_MAX, &[])];
static USER: [RepeatedField; 1] = [RepeatedField(1, USER_GROUPS_MAX, &USER_OPTIONS)];

const PREFIXES_MAX: usize = 2 * FILTER_PREFIXES_MAX;
/// The calls for users accept fewer groups.
const USER_GROUPS_MAX: usize = 1000;
const IDS_MAX: usize = 2 * GROUP_EVENTS_MAX;
const KEYS_MAX: usize = 2 * KV_KEYS_MAX;

/// Implements the trait for messages that are decoded as trees. Those with `: &FIELDS` may be long,
/// those with `=> &FIELDS` may not; the elements of both are counted.
macro_rules! request_messages {
    ($($message:ty $(: $fields:expr)? $(=> $short_fields:expr)?,)*) => {
        $(impl RequestMessage for $message {
            $(const MAY_BE_LONG: bool = { let _: &[RepeatedField] = $fields; true };)?

            fn from_bytes(message: Bytes) -> Result<Self, Status> {
                $(check_elements(&message, $fields)?;)?
                $(check_elements(&message, $short_fields)?;)?
                <Self as Message>::decode(message).map_err(message_reader::malformed)
            }
        })*
    };
}

request_messages! {
    (),
    CreateKeyspaceRequest,
    DeleteReq,
    DeleteRequest,
    DropKeyspaceRequest,
    GetRequest,
    MultiGetRequest: &KEYS,
    PutRequest: &[],
    ReadReq => &READ,
    ScanRequest,
    WatchRequest,
    monitoring::StatsReq,
    operations::SetNodePriorityReq,
    operations::StartScavengeReq,
    operations::StopScavengeReq,
    persistent::CreateReq => &GROUP,
    persistent::DeleteReq,
    persistent::GetInfoReq,
    persistent::ListReq,
    persistent::ReplayParkedReq,
    projections::CreateReq,
    projections::ProjectionReq,
    projections::StatisticsReq,
    users::ChangePasswordReq,
    users::LoginReq,
    users::ResetPasswordReq,
    users::UserReq => &USER,
}

impl RequestMessage for persistent::ReadReq {
    const MAY_BE_LONG: bool = true;

    fn from_bytes(message: Bytes) -> Result<persistent::ReadReq, Status> {
        check_elements(&message, &CONSUMER)?;
        <Self as Message>::decode(message).map_err(message_reader::malformed)
    }

    fn memory_bytes(&self) -> usize {
        let ids = match &self.content {
            Some(ReadReqContent::Ack(ack)) => ack.ids.capacity(),
            Some(ReadReqContent::Nack(nack)) => nack.ids.capacity(),
            _ => 0,
        };
        ids * size_of::<Uuid>() + self.encoded_len()
    }
}

/// Fails if a message has more elements than it may have. Elements of the same field are counted
/// together, in whichever nested message they are.
fn check_elements(message: &Bytes, fields: &'static [RepeatedField]) -> Result<(), Status> {
    if fields.is_empty() {
        return Ok(());
    }
    message_reader::read_message(message.clone(), &mut ElementCounter { fields, total: 0 })
}

/// Reader that counts the elements of repeated fields.
struct ElementCounter {
    fields: &'static [RepeatedField],
    total: usize,
}

impl MessageReader for ElementCounter {
    fn read_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let Some(RepeatedField(_, limit, inner)) = self.fields.iter().find(|it| it.0 == tag) else {
            return encoding::skip_field(wire_type, tag, bytes, context);
        };
        if inner.is_empty() {
            encoding::skip_field(wire_type, tag, bytes, context)?;
            self.total += 1;
        } else {
            let mut nested = ElementCounter { fields: inner, total: 0 };
            message_reader::read_nested(wire_type, &mut nested, bytes, context)?;
            self.total += nested.total;
        }
        if self.total > *limit {
            return Err(message_reader::error(
                "the message has too many elements; send fewer elements in one message",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use umbel_proto::persistent::{
        Ack, CreateOptions, GroupAllOptions, GroupFilter, GroupOrigin, Nack,
    };
    use umbel_proto::streams::read_req::{
        Expression, Filter, FilterOption, FilterOptions, Options,
    };
    use umbel_proto::users::UserOptions;

    use super::*;

    /// Story: each empty prefix of 2 bytes became a string of 24 bytes, before the filter with half
    /// a million of them was refused.
    #[test]
    fn prefixes_and_groups_are_counted() {
        let is_refused = |status: Status| status.message().contains("too many elements");
        for (count, is_read) in [(PREFIXES_MAX, true), (PREFIXES_MAX + 1, false)] {
            let prefix = vec![String::new(); count];
            let expression = || Expression { prefix: prefix.clone(), ..Expression::default() };
            for filter in [Filter::EventType(expression()), Filter::StreamIdentifier(expression())]
            {
                let filter = FilterOptions { filter: Some(filter), ..FilterOptions::default() };
                let filter_option = Some(FilterOption::Filter(filter.clone()));
                let options = Options { filter_option, ..Options::default() };
                let read = ReadReq { options: Some(options) };
                let filter_option = Some(GroupFilter::Filter(filter));
                let all = GroupAllOptions { filter_option, ..GroupAllOptions::default() };
                let stream_option = Some(GroupOrigin::All(all));
                let options = CreateOptions { stream_option, ..CreateOptions::default() };
                let group = persistent::CreateReq { options: Some(options) };
                match ReadReq::from_bytes(read.encode_to_vec().into()) {
                    Ok(message) => assert!(is_read && message == read),
                    Err(status) => assert!(!is_read && is_refused(status)),
                }
                match persistent::CreateReq::from_bytes(group.encode_to_vec().into()) {
                    Ok(message) => assert!(is_read && message == group),
                    Err(status) => assert!(!is_read && is_refused(status)),
                }
            }
        }
        let of_user = |count: usize| {
            let groups = vec![String::new(); count];
            let options = UserOptions { groups, ..UserOptions::default() };
            let user = users::UserReq { options: Some(options) };
            users::UserReq::from_bytes(user.encode_to_vec().into())
        };
        assert!(of_user(USER_GROUPS_MAX).is_ok());
        assert!(is_refused(of_user(USER_GROUPS_MAX + 1).unwrap_err()));
        // Their messages stay short ones.
        assert!(ReadReq::check_length(SMALL_MESSAGE_BYTES_MAX + 1).is_err());
    }

    #[test]
    fn elements_are_counted_at_every_depth() {
        let refused = |status: Status| assert!(status.message().contains("too many elements"));
        let get = |keys: usize| MultiGetRequest { keys: vec![vec![1]; keys], ..Default::default() };
        let read = |get: &MultiGetRequest| MultiGetRequest::from_bytes(get.encode_to_vec().into());
        assert_eq!(read(&get(KEYS_MAX)).unwrap(), get(KEYS_MAX));
        refused(read(&get(KEYS_MAX + 1)).unwrap_err());
        for (count, is_read) in [(IDS_MAX, true), (IDS_MAX + 1, false)] {
            let ids = vec![Uuid::default(); count];
            let nack = ReadReqContent::Nack(Nack { ids: ids.clone(), ..Nack::default() });
            for content in [ReadReqContent::Ack(Ack { ids, ..Ack::default() }), nack] {
                let message = persistent::ReadReq { content: Some(content) };
                assert!(message.memory_bytes() >= count * size_of::<Uuid>());
                let read = persistent::ReadReq::from_bytes(message.encode_to_vec().into());
                // Acks in one message are one ack for a decoder.
                let twice = [message.encode_to_vec(), message.encode_to_vec()].concat();
                refused(persistent::ReadReq::from_bytes(twice.into()).unwrap_err());
                match is_read {
                    true => assert_eq!(read.unwrap(), message),
                    false => refused(read.unwrap_err()),
                }
            }
        }
    }
}
