//! Requests, right ones and wrong ones, put to every call about keys and values over a real
//! connection, and compared with a plain map: what is wrong is told so with the status of its
//! family, changes nothing and is never taken for a failure of the server, what is right does what
//! it says, nothing hangs, and the store is as the model says. Of watches it is compared what there
//! was when they began; a test of their own has what they are told then. Everything follows from a
//! seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;
use prost::bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::Code;
use umbel::limits::{KEY_BYTES_MAX, KEYSPACE_NAME_BYTES_MAX};
use umbel_proto::kv::{
    BatchRequest, Condition, CreateKeyspaceRequest, CreateKeyspaceResponse, DEFAULT_KEYSPACE,
    DeleteRequest, Entry, GetRequest, GetResponse, KeyRange, ListKeyspacesResponse,
    MultiGetRequest, MultiGetResponse, Operation, OperationKind, PutRequest, SERVICE, ScanRequest,
    ScanResponse, WatchEvent, WatchRequest, WatchResponse,
};

use crate::config::Config;
use crate::connections::{Limits, serve};
use crate::kv::CALLS;
use crate::limits::{KV_KEYS_MAX, KV_VALUE_BYTES_MAX};
use crate::planted::{Bug, plant};
use crate::stage::Stage;
use crate::wrong_calls_client::{Answer, Client, End, GLANCE, PATIENCE, Random, anything, framed};

const SEEDS: u64 = 40;
const PLANTED_SEEDS: u64 = 12;
const STEPS: usize = 150;
/// Keys that lie beside each other, that begin with each other, and at the end of all keys.
const KEYS: [&[u8]; 8] =
    [b"a", b"a\0", b"ab", b"b", b"\0", b"\xff", b"\xff\xff", "käse".as_bytes()];
/// Beginnings of some of them, and of none.
const PREFIXES: [&[u8]; 5] = [b"", b"a", b"\xff", b"k", b"z"];
/// A message that is none.
const GARBAGE: [u8; 9] = [0xff; 9];
/// The second is there once it was made.
const KEYSPACES: [&str; 2] = [DEFAULT_KEYSPACE, "users"];

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

struct Run {
    random: Random,
    client: Client,
    model: BTreeMap<&'static str, Map>,
    number: u64,
    /// The number of the newest write.
    sequence: u64,
}

/// What a call is to come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Done,
    Refused(Code),
}

impl Run {
    async fn call(&mut self, method: &'static str, asked: &impl Message) -> Answer {
        self.client.call(SERVICE, method, framed(0, &asked.encode_to_vec()), End::Whole).await
    }

    /// The message of an answer that is to have one; none where it is refused as it should be.
    fn one<M: Message + Default>(answer: &Answer, wanted: Wanted) -> Result<Option<M>, String> {
        let code = match wanted {
            Wanted::Done => Code::Ok,
            Wanted::Refused(code) => code,
        };
        match (answer.code, &answer.messages[..]) {
            (Some(found), [message]) if found == code && wanted == Wanted::Done => {
                M::decode(&message[..]).map(Some).map_err(|error| error.to_string())
            }
            (Some(found), []) if found == code && wanted != Wanted::Done => Ok(None),
            (found, messages) => Err(format!(
                "{found:?} with {} messages and not {wanted:?}: {:?}",
                messages.len(),
                answer.status
            )),
        }
    }

    /// A keyspace, as it is said, and whether it is there.
    fn keyspace(&mut self) -> (&'static str, String, bool) {
        let name = self.random.of(&[KEYSPACES[0], KEYSPACES[0], KEYSPACES[1]]);
        let is_unsaid = name == DEFAULT_KEYSPACE && self.random.below(2) == 0;
        let said = if is_unsaid { String::new() } else { name.to_string() };
        (name, said, self.model.contains_key(name))
    }

    /// A key, in one of ten cases none that can be.
    fn key(&mut self) -> (Vec<u8>, bool) {
        match self.random.below(20) {
            0 => (Vec::new(), false),
            1 => (vec![7; KEY_BYTES_MAX + 1], false),
            _ => (self.random.of(&KEYS).to_vec(), true),
        }
    }

    fn value(&mut self) -> (Vec<u8>, bool) {
        self.number += 1;
        match self.random.below(40) {
            0 => (vec![0; KV_VALUE_BYTES_MAX + 1], false),
            1 => (Vec::new(), true),
            _ => (self.number.to_string().into_bytes(), true),
        }
    }

    /// What a request comes to that is right but for these.
    fn wanted(is_right: bool, is_there: bool) -> Wanted {
        match (is_right, is_there) {
            (false, _) => Wanted::Refused(Code::InvalidArgument),
            (true, false) => Wanted::Refused(Code::NotFound),
            (true, true) => Wanted::Done,
        }
    }

    /// Takes the number of a write, which must be larger than that of every write before.
    fn wrote(&mut self, sequence: u64) -> Result<(), String> {
        let before = std::mem::replace(&mut self.sequence, sequence);
        if sequence > before { Ok(()) } else { Err(format!("write {sequence} behind {before}")) }
    }

    async fn put(&mut self) -> Result<(), String> {
        let (name, keyspace, is_there) = self.keyspace();
        let ((key, is_key), (value, is_value)) = (self.key(), self.value());
        let sync = self.random.below(8) == 0;
        let asked = PutRequest { keyspace, key: key.clone(), value: value.clone(), sync };
        let answer = self.call("Put", &asked).await;
        let wanted = Run::wanted(is_key && is_value, is_there);
        let done = Run::one::<umbel_proto::kv::PutResponse>(&answer, wanted)?;
        let Some(done) = done else { return Ok(()) };
        self.wrote(done.sequence)?;
        self.model.get_mut(name).unwrap().insert(key, value);
        Ok(())
    }

    async fn delete(&mut self) -> Result<(), String> {
        let (name, keyspace, is_there) = self.keyspace();
        let (key, is_key) = self.key();
        let asked = DeleteRequest { keyspace, key: key.clone(), sync: false };
        let answer = self.call("Delete", &asked).await;
        let wanted = Run::wanted(is_key, is_there);
        let done = Run::one::<umbel_proto::kv::DeleteResponse>(&answer, wanted)?;
        let Some(done) = done else { return Ok(()) };
        self.wrote(done.sequence)?;
        self.model.get_mut(name).unwrap().remove(&key);
        Ok(())
    }

    /// An operation of a batch, and whether it is one.
    fn operation(&mut self, keyspace: String) -> (Operation, bool) {
        let (kind, is_right) = match self.random.below(12) {
            0 => (None, false),
            1..4 => {
                let (key, is_key) = self.key();
                (Some(OperationKind::Delete(key.into())), is_key)
            }
            4 | 5 => {
                let ends = [self.random.of(&KEYS), self.random.of(&KEYS)];
                let [start, end] = ends.map(Bytes::from_static);
                let is_range = start < end;
                (Some(OperationKind::DeleteRange(KeyRange { start, end })), is_range)
            }
            _ => {
                let ((key, is_key), (value, is_value)) = (self.key(), self.value());
                let entry = Entry { key: key.into(), value: value.into() };
                (Some(OperationKind::Put(entry)), is_key && is_value)
            }
        };
        (Operation { keyspace, kind }, is_right)
    }

    /// A condition, whether it is one, and whether it holds.
    fn condition(&mut self, name: &str, keyspace: String) -> (Condition, bool, bool) {
        let (key, is_key) = self.key();
        let present = self.model.get(name).and_then(|map| map.get(&key)).cloned();
        let value = match self.random.below(6) {
            0 => None,
            1 => Some(b"never".to_vec()),
            _ => present.clone(),
        };
        let holds = value == present;
        (Condition { keyspace, key, value }, is_key, holds)
    }

    async fn batch(&mut self) -> Result<(), String> {
        let mut asked = BatchRequest::default();
        let (mut is_right, mut are_there, mut holds) = (true, true, true);
        let mut names = Vec::new();
        for _ in 0..self.random.below(4) {
            let (name, said, is_there) = self.keyspace();
            let (operation, is_one) = self.operation(said);
            asked.operations.push(operation);
            names.push(name);
            (is_right, are_there) = (is_right && is_one, are_there && is_there);
        }
        for _ in 0..self.random.below(3) {
            let (name, said, is_there) = self.keyspace();
            let (condition, is_one, is_so) = self.condition(name, said);
            asked.conditions.push(condition);
            (is_right, are_there) = (is_right && is_one, are_there && is_there);
            holds &= is_so;
        }
        let wanted = match Run::wanted(is_right && !names.is_empty(), are_there) {
            Wanted::Done if !holds => Wanted::Refused(Code::Aborted),
            wanted => wanted,
        };
        let answer = self.call("Batch", &asked).await;
        let done = Run::one::<umbel_proto::kv::BatchResponse>(&answer, wanted)?;
        let Some(done) = done else { return Ok(()) };
        self.wrote(done.sequence)?;
        for (name, operation) in names.into_iter().zip(asked.operations) {
            let map = self.model.get_mut(name).unwrap();
            match operation.kind.unwrap() {
                OperationKind::Put(entry) => {
                    map.insert(entry.key.to_vec(), entry.value.to_vec());
                }
                OperationKind::Delete(key) => {
                    map.remove(&key[..]);
                }
                OperationKind::DeleteRange(KeyRange { start, end }) => {
                    map.retain(|key, _| *key < start || *key >= end);
                }
            }
        }
        Ok(())
    }

    async fn get(&mut self) -> Result<(), String> {
        let (name, keyspace, is_there) = self.keyspace();
        let (key, is_key) = self.key();
        let answer = self.call("Get", &GetRequest { keyspace, key: key.clone() }).await;
        let found: Option<GetResponse> = Run::one(&answer, Run::wanted(is_key, is_there))?;
        let Some(found) = found else { return Ok(()) };
        let wanted = self.model[name].get(&key);
        match found.value.as_deref() == wanted.map(Vec::as_slice) {
            true => Ok(()),
            false => Err(format!("{key:?} is {found:?} and not {wanted:?}")),
        }
    }

    async fn multi_get(&mut self) -> Result<(), String> {
        let (name, keyspace, is_there) = self.keyspace();
        let (mut keys, mut are_keys) = (Vec::new(), true);
        for _ in 0..self.random.below(6) {
            let (key, is_key) = self.key();
            keys.push(key);
            are_keys &= is_key;
        }
        if self.random.below(30) == 0 {
            keys = vec![b"a".to_vec(); KV_KEYS_MAX + 1];
            are_keys = false;
        }
        let answer = self.call("MultiGet", &MultiGetRequest { keyspace, keys: keys.clone() }).await;
        let found: Option<MultiGetResponse> = Run::one(&answer, Run::wanted(are_keys, is_there))?;
        let Some(found) = found else { return Ok(()) };
        let map = &self.model[name];
        let values = found.values.iter().map(|found| found.value.as_deref());
        let is_so = values.eq(keys.iter().map(|key| map.get(key).map(Vec::as_slice)));
        match is_so && found.sequence >= self.sequence {
            true => Ok(()),
            false => Err(format!("{keys:?} are {found:?} in {map:?} behind {}", self.sequence)),
        }
    }

    async fn scan(&mut self) -> Result<(), String> {
        let (name, keyspace, is_there) = self.keyspace();
        let mut bound = || match self.random.below(12) {
            0 => (vec![1; KEY_BYTES_MAX + 1], false),
            1..6 => (self.random.of(&KEYS).to_vec(), true),
            _ => (Vec::new(), true),
        };
        let ((start, is_start), (end, is_end)) = (bound(), bound());
        let prefix = self.random.of(&PREFIXES).to_vec();
        let [reverse, keys_only] = [self.random.below(2) == 0, self.random.below(2) == 0];
        let limit = self.random.of(&[0, 1, 3, u64::MAX]);
        let asked = ScanRequest { keyspace, prefix, start, end, reverse, limit, keys_only };
        let answer = self.call("Scan", &asked).await;
        match (Run::wanted(is_start && is_end, is_there), answer.code) {
            (Wanted::Done, Some(Code::Ok)) => {}
            (Wanted::Refused(code), Some(found)) if code == found => return Ok(()),
            (wanted, found) => return Err(format!("{found:?} and not {wanted:?}: {asked:?}")),
        }
        let mut found = Vec::new();
        for message in &answer.messages {
            let page = ScanResponse::decode(&message[..]).map_err(|error| error.to_string())?;
            if page.sequence < self.sequence {
                return Err(format!("a scan of {} behind {}", page.sequence, self.sequence));
            }
            found.extend(page.entries.into_iter().map(|e| (e.key.to_vec(), e.value.to_vec())));
        }
        let is_in = |key: &[u8]| {
            key.starts_with(&asked.prefix)
                && key >= &asked.start[..]
                && (asked.end.is_empty() || key < &asked.end[..])
        };
        let in_range = self.model[name].iter().filter(|(key, _)| is_in(key));
        let mut wanted: Vec<(Vec<u8>, Vec<u8>)> = in_range
            .map(|(key, value)| (key.clone(), if keys_only { Vec::new() } else { value.clone() }))
            .collect();
        if reverse {
            wanted.reverse();
        }
        if limit > 0 {
            wanted.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        if found == wanted { Ok(()) } else { Err(format!("{asked:?}: {found:?} not {wanted:?}")) }
    }

    /// What there is, as a watch tells it that is left once it has.
    async fn watch(&mut self) -> Result<(), String> {
        let (name, keyspace, is_there) = self.keyspace();
        let prefix = self.random.of(&PREFIXES).to_vec();
        let keys_only = self.random.below(2) == 0;
        let asked =
            WatchRequest { keyspace, prefix: prefix.clone(), with_entries: true, keys_only };
        let has_started = |message: &[u8]| {
            let told = WatchResponse::decode(message).ok().and_then(|told| told.event);
            matches!(told, Some(WatchEvent::Started(_)))
        };
        let sent = (framed(0, &asked.encode_to_vec()), End::Whole);
        let answer = self.client.call_until(SERVICE, "Watch", sent, (PATIENCE, &has_started)).await;
        if !is_there {
            return Run::one::<WatchResponse>(&answer, Wanted::Refused(Code::NotFound)).map(drop);
        }
        let (mut found, mut is_started) = (Map::new(), false);
        for message in &answer.messages {
            let told = WatchResponse::decode(&message[..]).map_err(|error| error.to_string())?;
            match told.event {
                Some(WatchEvent::Entries(some)) if !is_started => {
                    let entries = some.entries.into_iter();
                    found.extend(entries.map(|e| (e.key.to_vec(), e.value.to_vec())));
                }
                Some(WatchEvent::Started(at)) if at.sequence >= self.sequence => is_started = true,
                other => return Err(format!("a watch of {prefix:?} tells {other:?}")),
            }
        }
        let mut wanted = self.model[name].clone();
        wanted.retain(|key, _| key.starts_with(&prefix));
        if keys_only {
            wanted.values_mut().for_each(Vec::clear);
        }
        match (answer.code, is_started && found == wanted) {
            (None, true) => Ok(()),
            (code, _) => Err(format!("{code:?}, {prefix:?}: {found:?} and not {wanted:?}")),
        }
    }

    async fn keyspaces(&mut self) -> Result<(), String> {
        let long = "n".repeat(KEYSPACE_NAME_BYTES_MAX + 1);
        let wrong = self.random.of(&["\u{0}", "n\n", &long]);
        let name = self.random.of(&[KEYSPACES[0], KEYSPACES[1], wrong]);
        let answer =
            self.call("CreateKeyspace", &CreateKeyspaceRequest { name: name.into() }).await;
        let wanted = match name == wrong {
            true => Wanted::Refused(Code::InvalidArgument),
            false => Wanted::Done,
        };
        let created: Option<CreateKeyspaceResponse> = Run::one(&answer, wanted)?;
        if let Some(created) = created {
            if created.created == self.model.contains_key(name) {
                return Err(format!("{name}: {created:?}"));
            }
            let known = KEYSPACES.into_iter().find(|known| *known == name).unwrap();
            self.model.entry(known).or_default();
        }
        let answer = self.call("ListKeyspaces", &()).await;
        let listed: Option<ListKeyspacesResponse> = Run::one(&answer, Wanted::Done)?;
        match listed.unwrap_or_default().names.iter().eq(self.model.keys()) {
            true => Ok(()),
            false => Err(format!("not {:?}", self.model.keys())),
        }
    }

    /// Calls with anything, or with half of it: they may not fail by it, and those that write do
    /// not get what they could write.
    async fn other(&mut self) -> Result<(), String> {
        let method = self.random.of(&CALLS);
        let message = anything(&mut self.random, 3);
        let (bytes, end) = match self.random.below(8) {
            0 => (Vec::new(), End::Whole),
            1 => (framed(0, &GARBAGE), End::Whole),
            2 => (framed(1, &message), End::Whole),
            3 => {
                let entry = PutRequest { key: b"a".to_vec(), ..PutRequest::default() };
                (framed(0, &entry.encode_to_vec()), End::Half)
            }
            4 => (framed(0, &message), End::Reset),
            _ if !matches!(method, "Put" | "Delete" | "Batch" | "CreateKeyspace") => {
                (framed(0, &message), End::Whole)
            }
            _ => return Ok(()),
        };
        if end == End::Reset && matches!(method, "Put" | "Delete" | "Batch" | "CreateKeyspace") {
            return Ok(());
        }
        let is_broken =
            end == End::Half || bytes.is_empty() || bytes[0] == 1 || bytes.ends_with(&GARBAGE);
        // A watch goes on for ever.
        let time = if method == "Watch" { GLANCE } else { PATIENCE };
        let sent = (bytes.clone(), end);
        let answer = self.client.call_until(SERVICE, method, sent, (time, &|_| false)).await;
        let Some(status) = answer.status else {
            let may_be_silent = method == "Watch" || end == End::Reset;
            return if may_be_silent { Ok(()) } else { Err(format!("{method} says nothing")) };
        };
        match status.code() {
            Code::Internal | Code::Unknown | Code::DataLoss | Code::Unavailable => {
                Err(format!("{method} of {bytes:?}, {end:?}: {status:?}"))
            }
            Code::Ok if is_broken => Err(format!("{method} of {bytes:?}, {end:?} is done")),
            _ => Ok(()),
        }
    }
}

/// What is found with this seed.
async fn run(seed: u64) -> Result<(), String> {
    let (stage, db) = Stage::with_key_values();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_stop, stopped) = watch::channel(false);
    let limits = Limits::of(&Config::default());
    let serving = tokio::spawn(serve(listener, Arc::clone(&stage.service), None, limits, stopped));
    let (client, connection) = Client::to(address).await;
    let model = BTreeMap::from([(DEFAULT_KEYSPACE, Map::new())]);
    let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut run = Run { random, client, model, number: 0, sequence: 0 };
    for step in 0..STEPS {
        let said = |why: String| format!("seed {seed}, step {step}: {why}");
        let done = async {
            match run.random.below(40) {
                0..9 => run.put().await,
                9..12 => run.delete().await,
                12..20 => run.batch().await,
                20..24 => run.get().await,
                24..28 => run.multi_get().await,
                28..34 => run.scan().await,
                34 => run.watch().await,
                35 => run.keyspaces().await,
                _ => run.other().await,
            }
        };
        match tokio::time::timeout(PATIENCE, done).await {
            Ok(done) => done.map_err(said)?,
            Err(_) => return Err(said(format!("it hangs: {}", run.client.last))),
        }
    }
    if !db.keyspaces().iter().eq(run.model.keys()) {
        return Err(format!("seed {seed}: {:?} are there", db.keyspaces()));
    }
    for name in db.keyspaces() {
        let keyspace = db.existing_keyspace(&name).unwrap().unwrap();
        let found: Map = keyspace.iter().map(|entry| entry.unwrap()).collect();
        let wanted = run.model.get(&name[..]);
        if wanted != Some(&found) {
            return Err(format!("seed {seed}: {name} is {found:?} and not {wanted:?}"));
        }
    }
    serving.abort();
    connection.abort();
    Ok(())
}

/// What the first of these seeds finds that finds something.
fn violation(seeds: u64) -> Option<String> {
    // One thread: a bug is planted for it alone.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    (1..=seeds).find_map(|seed| runtime.block_on(run(seed)).err())
}

#[test]
fn what_is_asked_wrongly_of_keys_and_values_is_told_so_and_changes_nothing() {
    let found = violation(SEEDS);
    assert_eq!(found, None);
}

#[test]
fn every_planted_bug_is_found() {
    let bugs = [
        Bug::KindUnsaid,
        Bug::ConditionSkipped,
        Bug::KeyspaceIsDefault,
        Bug::ConflictIsOurs,
        Bug::PrefixForgotten,
        Bug::ReverseForgotten,
    ];
    for bug in bugs {
        plant(Some(bug));
        let found = violation(PLANTED_SEEDS);
        plant(None);
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?} is not found");
    }
}
