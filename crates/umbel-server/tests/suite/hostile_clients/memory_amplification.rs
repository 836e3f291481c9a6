//! Messages that would take far more memory than their size.

use std::time::Duration;

use prost::bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, encode_varint};
use prost::{DecodeError, Message};
use tonic::metadata::{Ascii, MetadataKey};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use umbel_proto::kv::{BatchRequest, SERVICE as KEYS, WatchRequest};
use umbel_server::Config;
use umbel_server::limits::{HEADERS_MAX, WATCHES_BYTES_MAX};

use super::super::client::Client;
use super::super::kv_client::{Kv, delete_of};
use super::super::persistent_subscriptions::SERVICE as GROUPS;
use super::super::test_server::TestServer;
use super::target_server::{Target, resident};
use umbel_testing::server_connection::STREAMS;

/// Maximum memory that an attack's messages may take, including the client's own memory.
const MORE_MAX: usize = 400 << 20;

/// Maximum memory that a long message may take: the message, twice the message while its buffer
/// grows, as much in the client, and its events.
const MESSAGE_MORE_MAX: usize = 160 << 20;

/// A message of any bytes.
#[derive(Debug, Default, Clone)]
struct Plain(Vec<u8>);

impl Message for Plain {
    fn encode_raw(&self, out: &mut impl BufMut) {
        out.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        _: u32,
        _: WireType,
        bytes: &mut impl Buf,
        _: DecodeContext,
    ) -> Result<(), DecodeError> {
        bytes.advance(bytes.remaining());
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2];
    encode_varint(bytes.len() as u64, &mut out);
    out.extend_from_slice(bytes);
    out
}

/// An empty field, repeated many times.
fn many(tag: u8) -> Vec<u8> {
    field(tag, &[]).repeat(8 << 20)
}

/// A valid record with these properties.
fn record(properties: &[u8]) -> Vec<u8> {
    let schema = [8, 1, 18, 1, b't'];
    [&field(5, b"s"), &field(3, &schema), properties].concat()
}

/// Event metadata with distinct keys.
fn keys() -> Vec<u8> {
    let digits = |number: u32| [number >> 14, number >> 7, number].map(|part| part as u8 & 0x7f);
    (0..1 << 21).flat_map(|number| field(2, &field(1, &digits(number)))).collect()
}

/// Status of a refused call, and the growth of the process's memory during the call.
async fn call(client: &Client, path: &str, message: Vec<u8>) -> (Status, usize) {
    let (answer, more) = answer(client, path, message).await;
    (answer.unwrap_err(), more)
}

/// Response to a call, and the growth of the process's memory during the call.
async fn answer(client: &Client, path: &str, message: Vec<u8>) -> (Result<Plain, Status>, usize) {
    let (service, method) = path.split_once('/').unwrap();
    let before = resident();
    let mut peak_bytes = before;
    let answer = client.unary::<_, Plain>(service, method, Plain(message));
    let mut answer = std::pin::pin!(answer);
    loop {
        let pause = tokio::time::sleep(Duration::from_millis(2));
        tokio::select! {
            answer = &mut answer => return (answer, peak_bytes - before),
            () = pause => peak_bytes = peak_bytes.max(resident()),
        }
    }
}

/// Story: the limit on queued watch changes was enforced only after all watches had got a write. A
/// batch of a megabyte became gigabytes with many watches.
#[test]
fn many_watches_of_a_large_batch() {
    let server = || TestServer::with_kv_and(Config::default());
    Target::attack_on(server, async |address| {
        let client = Client::connect(address).await;
        let kv = Kv::new(&client);
        let mut watches = Vec::new();
        for _ in 0..400 {
            watches.push(kv.watch(WatchRequest::default()).await.unwrap());
        }
        let operations = vec![delete_of("", "a"); 100_000];
        let batch = BatchRequest { operations, conditions: Vec::new(), sync: false };
        let path = format!("{KEYS}/Batch");
        let (answer, more) = answer(&client, &path, batch.encode_to_vec()).await;
        answer.unwrap();
        assert!(more < MORE_MAX + WATCHES_BYTES_MAX, "{} MiB", more >> 20);
    });
}

/// Story: a header in the connection's HPACK table is one byte on the wire. In memory it is far
/// larger for as long as its call is open.
#[test]
fn calls_with_many_headers() {
    Target::attack(Config::default(), async |address| {
        let names = |count: usize| (0..count).map(|number| format!("x-{number}"));
        for (count, is_served) in [(40, true), (HEADERS_MAX + 1, false)] {
            let client = Client::connect(address).await;
            let mut request = tonic::Request::new(());
            for name in names(count) {
                let name: MetadataKey<Ascii> = name.parse().unwrap();
                request.metadata_mut().insert(name, "a".parse().unwrap());
            }
            let path = "/event_store.client.server_features.ServerFeatures/GetSupportedMethods";
            let mut grpc = client.grpc().await.unwrap();
            let codec = ProstCodec::<(), Plain>::default();
            let answer = grpc.unary(request, path.parse().unwrap(), codec).await;
            match answer {
                Ok(_) => assert!(is_served),
                Err(status) => {
                    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                    assert!(
                        !is_served && status.message().contains("the limit is 64"),
                        "{status:?}"
                    );
                }
            }
        }
    });
}

/// Story: an empty event has 2 bytes in a message and over a hundred in memory. A message of 17 MiB
/// from any client became a gigabyte when decoded.
#[test]
fn messages_that_expand_when_decoded() {
    let server = || TestServer::with_kv_and(Config::default());
    Target::attack_on(server, async |address| {
        let client = Client::connect(address).await;
        let streams = |method| format!("{STREAMS}/{method}");
        let second = |method| format!("kurrentdb.protocol.v2.streams.StreamsService/{method}");
        let kv = |method| format!("{KEYS}/{method}");
        let list = field(6, &many(1));
        let property = field(2, &field(2, &list));
        let too_many = "has too many elements";
        let too_many_values = "more than 100000 values";
        for (path, message, why) in [
            (streams("BatchAppend"), many(3), "no correlation id"),
            (streams("BatchAppend"), field(3, &keys()), "no correlation id"),
            (streams("Append"), field(2, &keys()), "no options"),
            (second("AppendRecords"), many(1), "1 to 1024"),
            (second("AppendRecords"), many(2), "no records"),
            (second("AppendRecords"), field(1, &property), too_many_values),
            (second("AppendRecords"), field(1, &record(&property)), too_many_values),
            (second("AppendSession"), field(2, &record(&property)), too_many_values),
            (second("AppendSession"), many(2), "1 to 1024"),
            (streams("BatchAppend"), field(3, &field(2, &[])).repeat(1 << 19), "no correlation id"),
            (second("AppendRecords"), field(1, &field(2, &[])).repeat(1 << 18), "1 to 1024"),
            (second("AppendRecords"), field(1, &record(&[])).repeat(1 << 19), "100000 records"),
            (format!("{GROUPS}/Read"), field(2, &many(2)), too_many),
            (format!("{GROUPS}/Read"), field(3, &many(2)), too_many),
            (kv("Batch"), many(1), "operation 0: the operation has neither"),
            (kv("Batch"), many(2), "condition 0: the key is empty"),
            (kv("Batch"), field(1, &field(3, b"k")).repeat(1 << 20), "the limit is 100000"),
            (kv("MultiGet"), many(2), too_many),
        ] {
            let (status, more) = call(&client, &path, message).await;
            assert_eq!(status.code(), Code::InvalidArgument, "{path}: {status:?}");
            assert!(status.message().contains(why), "{path}: {status:?}");
            assert!(more < MESSAGE_MORE_MAX, "{path}: {} MiB", more >> 20);
        }
        // A record of one byte, whose property lies beyond its end and is decoded all the same.
        let beyond = [&[0x0a, 1], &property[..]].concat();
        let (status, more) = call(&client, &second("AppendRecords"), beyond).await;
        assert!(status.message().contains(too_many_values), "{status:?}");
        assert!(more < MESSAGE_MORE_MAX, "{} MiB", more >> 20);
        for path in [
            streams("Read"),
            streams("Delete"),
            format!("{GROUPS}/Create"),
            "event_store.client.users.Users/Create".to_string(),
            "event_store.client.projections.Projections/Create".to_string(),
            kv("Scan"),
        ] {
            let (status, more) = call(&client, &path, field(1, &many(2))).await;
            assert_eq!(status.code(), Code::InvalidArgument, "{path}: {status:?}");
            let wanted = "the message has 16777221 bytes, but a message of this call may have \
                          at most 1048576";
            assert_eq!(status.message(), wanted, "{path}");
            assert!(more < MORE_MAX, "{path}: {} MiB", more >> 20);
        }
    });
}
