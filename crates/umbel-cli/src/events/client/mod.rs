//! Clients of a server of event stores: connection strings, TLS, gRPC calls.

pub mod connection_string;
pub mod grpc_connection;
pub mod grpc_source;
pub mod password_source;
pub mod pem_files;
pub mod server_names;
pub mod server_work;
pub mod shell_command;
pub mod stream_writes;
pub mod tls;
