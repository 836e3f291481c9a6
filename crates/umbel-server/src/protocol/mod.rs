//! gRPC statuses, deadlines, ids and conversion between messages and store types.

pub mod bounded_list;
pub mod deadline;
pub mod filter_request;
pub mod group_key;
pub mod grpc_status;
pub mod id_generator;
pub mod json_value;
pub mod message_reader;
pub mod proto_convert;
pub mod rich_status;
pub mod truncate_text;
