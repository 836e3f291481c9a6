//! `event_store.client.persistent_subscriptions`: consumer groups. The consumers of a group share
//! the events of a stream, or all events, and acknowledge processed events.

use crate::generated::event_store::client::persistent_subscriptions as package;

pub use crate::streams::read_resp::SubscriptionConfirmation;
pub use package::create_req::all_options::{AllOption as GroupStart, FilterOption as GroupFilter};
pub use package::create_req::options::StreamOption as GroupOrigin;
pub use package::create_req::settings::{CheckpointAfter, MessageTimeout};
pub use package::create_req::{
    AllOptions as GroupAllOptions, ConsumerStrategy as NamedStrategy, Options as CreateOptions,
    Settings,
};
pub use package::delete_req::Options as DeleteOptions;
pub use package::delete_req::options::StreamOption as DeleteStreamOption;
pub use package::get_info_req::Options as GetInfoOptions;
pub use package::get_info_req::options::StreamOption as GetInfoStreamOption;
pub use package::list_req::options::ListOption;
pub use package::list_req::stream_option::StreamOption as ListStreamOption;
pub use package::list_req::{Options as ListOptions, StreamOption as ListStream};
pub use package::read_req::nack::Action as NackAction;
pub use package::read_req::options::StreamOption as ReadStreamOption;
pub use package::read_req::{Ack, Content as ReadReqContent, Nack, Options as ReadOptions};
pub use package::read_resp::read_event::{Count as RetryCount, Position as DeliveryPosition};
pub use package::read_resp::{Content as ReadRespContent, ReadEvent as ReadRespEvent};
pub use package::replay_parked_req::Options as ReplayParkedOptions;
pub use package::replay_parked_req::options::{
    StopAtOption as StopAt, StreamOption as ReplayStreamOption,
};
pub use package::subscription_info::{ConnectionInfo, Measurement};
pub use package::{
    CreateReq, DeleteReq, GetInfoReq, GetInfoResp, ListReq, ListResp, ReadReq, ReadResp,
    ReplayParkedReq, SubscriptionInfo,
};

/// Name of the service in request paths.
pub const SERVICE: &str = "event_store.client.persistent_subscriptions.PersistentSubscriptions";
