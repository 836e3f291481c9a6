//! Client of the second protocol.

use std::net::SocketAddr;

use futures_util::stream;
use hyper::http::uri::{PathAndQuery, Uri};
use prost::Message;
use tonic::client::Grpc;
use tonic::{Response, Status};
use tonic_prost::ProstCodec;
use umbel_proto::status::{self, ErrorInfo};
use umbel_proto::v2::streams::{
    AppendRecord, AppendRecordsRequest, AppendRecordsResponse, AppendRequest,
    AppendSessionResponse, CheckType, ConsistencyCheck, SchemaInfo, StreamStateCheck,
};

use super::client::Client;

/// The service, repeated here so that a changed name is noticed.
pub const SERVICE: &str = "kurrentdb.protocol.v2.streams.StreamsService";
/// Maximum bytes of a message that is sent.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Makes a client-streaming call.
pub async fn client_streaming<Q, A>(
    client: &Client,
    address: SocketAddr,
    path: String,
    parts: Vec<Q>,
) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let response = client_streaming_response(client, address, path, parts).await?;
    Ok(response.into_inner())
}

/// Makes a client-streaming call; returns the response with its headers.
pub async fn client_streaming_response<Q, A>(
    client: &Client,
    address: SocketAddr,
    path: String,
    parts: Vec<Q>,
) -> Result<Response<A>, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let origin: Uri = format!("http://{address}").parse().unwrap();
    let mut grpc = Grpc::with_origin(client.0.clone(), origin)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path: PathAndQuery = path.parse().unwrap();
    let codec = ProstCodec::<Q, A>::default();
    let request = client.request(stream::iter(parts));
    grpc.client_streaming(request, path, codec).await
}

/// Appends a session.
pub async fn session(
    client: &Client,
    address: SocketAddr,
    parts: Vec<AppendRequest>,
) -> Result<AppendSessionResponse, Status> {
    let path = format!("/{SERVICE}/AppendSession");
    client_streaming(client, address, path, parts).await
}

/// Appends records with checks.
pub async fn records(
    client: &Client,
    records: Vec<AppendRecord>,
    checks: &[(&str, i64)],
) -> Result<AppendRecordsResponse, Status> {
    let check = |(stream, expected_state): &(&str, i64)| {
        let (stream, expected_state) = (stream.to_string(), *expected_state);
        let state = StreamStateCheck { stream, expected_state };
        ConsistencyCheck { check: Some(CheckType::StreamState(state)) }
    };
    let checks = checks.iter().map(check).collect();
    client.unary(SERVICE, "AppendRecords", AppendRecordsRequest { records, checks }).await
}

/// The record with this number, which is also its data.
pub fn record(number: u64) -> AppendRecord {
    AppendRecord {
        record_id: Some(format!("00000000-0000-1234-0000-{number:012x}")),
        schema: Some(SchemaInfo { format: 1, name: "Counted".to_string(), id: None }),
        data: number.to_string().into_bytes(),
        ..AppendRecord::default()
    }
}

/// The record with this number for a stream.
pub fn of(stream: &str, number: u64) -> AppendRecord {
    AppendRecord { stream: stream.to_string(), ..record(number) }
}

/// The record with this number and size in bytes.
pub fn blob(number: u64, bytes: usize) -> AppendRecord {
    AppendRecord { data: vec![b'1'; bytes], ..record(number) }
}

/// A part of a session.
pub fn part(
    stream: &str,
    expected: impl Into<Option<i64>>,
    records: Vec<AppendRecord>,
) -> AppendRequest {
    AppendRequest { stream: stream.to_string(), records, expected_revision: expected.into() }
}

/// Reason of a failure, and its details if it has any.
pub fn failure<F: Message + Default>(status: &Status) -> (String, Option<F>) {
    let rich = status::Status::decode(status.details()).unwrap();
    assert_eq!((rich.code, &*rich.message), (status.code() as i32, status.message()));
    let (first, others) = rich.details.split_first().expect("a kind of failure");
    assert!(first.type_url.ends_with("/google.rpc.ErrorInfo"));
    let info = ErrorInfo::decode(&first.value[..]).unwrap();
    let facts = others.last().map(|facts| F::decode(&facts.value[..]).unwrap());
    (info.reason, facts)
}
