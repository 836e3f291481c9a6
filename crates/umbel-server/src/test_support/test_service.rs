//! A service without a connection, for tests of internal state.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use hyper::http::Extensions;
use prost::Message;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use umbel::{Db, Options};
use umbel_env::Env;
use umbel_events::{Store, StoreOptions};
use umbel_proto::shared::{Uuid, uuid};
use umbel_proto::streams::append_req::ProposedMessage;

use crate::config::Config;
use crate::event_store::EventStore;
use crate::event_store::scavenging::Scavenger;
use crate::event_store::store_work::StoreWork;
use crate::grpc::message_limits::RequestMessage;
use crate::grpc::message_stream::{MessageStream, ReceiveLimits};
use crate::kv_store::{KvConfig, KvStore};
use crate::resources::inbound_quota::InboundQuota;
use crate::server_context::ServerContext;
use crate::telemetry::append_metrics::AppendTimer;

/// A service on a store of its own.
pub struct TestService {
    pub service: Arc<ServerContext>,
    pub store: Store,
    stop: watch::Sender<bool>,
    directory: TempDir,
}

impl TestService {
    pub fn new() -> TestService {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path().join("events"), StoreOptions::default()).unwrap();
        let env = Env::system();
        let (events, _) = EventStore::new(store.clone(), &env).unwrap();
        let (stop, stopped) = watch::channel(false);
        let work = StoreWork::read(&store, &env, None, None).unwrap();
        let service = ServerContext::new(events, work, env, Config::default(), 0, stopped).unwrap();
        TestService { service: Arc::new(service), store, stop, directory }
    }

    /// Creates a service with this scavenger.
    pub fn with_scavenger(scavenging: Arc<dyn Scavenger>) -> TestService {
        let mut fixture = TestService::new();
        Arc::get_mut(&mut fixture.service).expect("the context is not shared yet").scavenger =
            scavenging;
        fixture
    }

    /// Creates a service with a key-value store; also returns that store.
    pub fn with_kv() -> (TestService, Db) {
        let mut fixture = TestService::new();
        let db = Db::open(fixture.directory.path().join("kv"), Options::default()).unwrap();
        let (kv, _) = KvStore::new(KvConfig::new(db.clone()), &Env::system()).unwrap();
        let service = Arc::get_mut(&mut fixture.service).expect("the context is not shared yet");
        service.kv = Some(Arc::new(kv));
        (fixture, db)
    }

    /// Begins the shutdown.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Bytes of appends that are not in the log yet.
    pub fn bytes(&self) -> usize {
        self.service.append_quota.used_bytes()
    }

    /// The timer of a batch that arrives now.
    pub fn batch_timer(&self) -> AppendTimer {
        self.service.call_metrics.appends().begin_batch(&self.service.env.clock)
    }
}

/// Runs a test whose clock advances only when all tasks are idle.
pub fn run_paused<F: Future>(test: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap().block_on(test)
}

/// Creates a client's message stream; it ends once the sender is dropped.
pub fn message_channel<M, Q>() -> (mpsc::UnboundedSender<M>, MessageStream<Q>)
where
    M: Message + 'static,
    Q: RequestMessage,
{
    let (sender, mut messages) = mpsc::unbounded_channel::<M>();
    let frames = stream::poll_fn(move |context| {
        let frame = |message: M| Ok::<_, Infallible>(Frame::data(framed(&message)));
        messages.poll_recv(context).map(|message| message.map(frame))
    });
    let body = StreamBody::new(frames);
    (sender, MessageStream::new(body, &Extensions::new()))
}

/// Frames a message for a call.
pub fn framed(message: &impl Message) -> Bytes {
    frame(&message.encode_to_vec())
}

fn frame(message: &[u8]) -> Bytes {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat().into()
}

/// Builds a message stream of one message with any bytes.
pub fn message_from_bytes<M>(message: &[u8]) -> MessageStream<M>
where
    M: RequestMessage,
{
    let frame = Ok::<_, Infallible>(Frame::data(frame(message)));
    MessageStream::new(StreamBody::new(stream::iter([frame])), &Extensions::new())
}

/// Builds a message stream of one message with any bytes, which count against this quota.
pub fn message_within<M>(message: &[u8], quota: Arc<InboundQuota>) -> MessageStream<M>
where
    M: RequestMessage,
{
    let frame = Ok::<_, Infallible>(Frame::data(frame(message)));
    let mut extensions = Extensions::new();
    extensions.insert(ReceiveLimits { quota, ..ReceiveLimits::default() });
    MessageStream::new(StreamBody::new(stream::iter([frame])), &extensions)
}

/// The identifier with this number.
pub fn id(number: i64) -> Uuid {
    let halves = uuid::Structured { most_significant_bits: 0x1234, least_significant_bits: number };
    Uuid { value: Some(uuid::Value::Structured(halves)) }
}

/// An event with this number.
pub fn event(number: i64) -> ProposedMessage {
    ProposedMessage {
        id: Some(id(number)),
        metadata: [("type", "Counted"), ("content-type", "application/json")]
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into(),
        data: number.to_string().into_bytes().into(),
        ..ProposedMessage::default()
    }
}
