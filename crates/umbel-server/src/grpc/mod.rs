//! gRPC framing, decoding limits, request and response bodies, dispatch by call kind.

pub mod counted_message;
pub mod grpc_dispatch;
pub mod grpc_encoder;
pub mod message_limits;
pub mod message_stream;
pub mod request_body;
pub mod response_body;
pub mod response_stream;
