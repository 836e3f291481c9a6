//! gRPC framing, decoding limits, request and response bodies, dispatch by call kind.

pub mod grpc_decoder;
pub mod grpc_dispatch;
pub mod grpc_encoder;
pub mod message_limits;
pub mod request_body;
pub mod response_body;
pub mod response_stream;
