//! What a call meets, without a connection: for tests of what cannot be seen from outside.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use prost::Message;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use umbel::{Db, Options};
use umbel_env::Env;
use umbel_events::{Store, StoreOptions};
use umbel_proto::shared::{Uuid, uuid};
use umbel_proto::streams::append_req::ProposedMessage;

use crate::backups::Backups;
use crate::config::Config;
use crate::gates::Gates;
use crate::kv_store::{KeyValues, KvStore};
use crate::messages::Messages;
use crate::question::Question;
use crate::scavenging::{Scavenging, StoreScavenging};
use crate::service::Service;
use crate::store::EventStore;

/// A service on a store of its own.
pub struct Stage {
    pub service: Arc<Service>,
    pub store: Store,
    _stop: watch::Sender<bool>,
    folder: TempDir,
}

impl Stage {
    pub fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("events"), StoreOptions::default()).unwrap();
        let env = Env::system();
        let gates = Gates::read(&store).unwrap();
        let scavenging = Arc::new(StoreScavenging::new(store.clone()));
        let (events, _) = EventStore::new(store.clone(), &env).unwrap();
        let (stop, stopped) = watch::channel(false);
        let work =
            (gates, scavenging as Arc<dyn Scavenging>, Backups::new(store.clone(), &env, None));
        let service = Service::new(events, work, env, Config::default(), 0, stopped).unwrap();
        Stage { service: Arc::new(service), store, _stop: stop, folder }
    }

    /// One that scavenges so.
    pub fn with_scavenging(scavenging: Arc<dyn Scavenging>) -> Stage {
        let mut stage = Stage::new();
        Arc::get_mut(&mut stage.service).expect("nobody shares it yet").scavenging = scavenging;
        stage
    }

    /// One that serves keys and values, too, and their store.
    pub fn with_key_values() -> (Stage, Db) {
        let mut stage = Stage::new();
        let db = Db::open(stage.folder.path().join("kv"), Options::default()).unwrap();
        let (kv, _) = KvStore::new(KeyValues::new(db.clone()), &Env::system()).unwrap();
        let service = Arc::get_mut(&mut stage.service).expect("nobody shares it yet");
        service.kv = Some(Arc::new(kv));
        (stage, db)
    }

    /// The bytes that appends hold which are not in the log.
    pub fn bytes(&self) -> usize {
        self.service.budget.bytes()
    }
}

/// Runs a test whose clock goes on only when nothing else does.
pub fn run<F: Future>(test: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap().block_on(test)
}

/// What a client sends, message by message; it ends once the sender is dropped.
pub fn sent<M>() -> (mpsc::UnboundedSender<M>, Messages<M>)
where
    M: Question + 'static,
{
    let (sender, mut messages) = mpsc::unbounded_channel::<M>();
    let frames = stream::poll_fn(move |context| {
        let frame = |message: M| Ok::<_, Infallible>(Frame::data(framed(&message)));
        messages.poll_recv(context).map(|message| message.map(frame))
    });
    let body = StreamBody::new(frames);
    (sender, Messages::new(body))
}

/// A message as it goes over a call.
pub fn framed(message: &impl Message) -> Bytes {
    frame(&message.encode_to_vec())
}

fn frame(message: &[u8]) -> Bytes {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat().into()
}

/// The bytes of one message that a client sends, whatever they are.
pub fn sent_bytes<M>(message: &[u8]) -> Messages<M>
where
    M: Question + 'static,
{
    let frame = Ok::<_, Infallible>(Frame::data(frame(message)));
    Messages::new(StreamBody::new(stream::iter([frame])))
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
