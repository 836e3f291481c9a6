//! Model test of the key-value calls: valid and malformed requests over a real connection, compared
//! with a plain map. Everything follows from a seed. Checked properties:
//!
//! - An invalid request gets a status of the expected family, changes nothing, and never counts as
//!   a failure of the server.
//! - A valid request has its documented effect.
//! - No call hangs, and the store equals the model.
//!
//! This test compares only the initial entries of watches; another test covers the changes that
//! watches send.

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
use umbel_sim::Random;

use crate::config::Config;
use crate::limits::{KV_KEYS_MAX, KV_VALUE_BYTES_MAX};
use crate::server::listener::{ListenerLimits, serve};
use crate::services::kv::CALLS;
use crate::test_support::malformed_client::{
    BodyEnd, CALL_TIMEOUT, CallOutcome, LISTEN_TIME, MalformedClient, framed, random_message,
};
use crate::test_support::test_service::TestService;

const SEEDS: u64 = 40;
#[cfg(feature = "failpoints")]
const FAILPOINT_SEEDS: u64 = 12;
const STEPS: usize = 150;
/// Adjacent keys, keys that are prefixes of others, and keys at the end of the key order.
const KEYS: [&[u8]; 8] =
    [b"a", b"a\0", b"ab", b"b", b"\0", b"\xff", b"\xff\xff", "käse".as_bytes()];
/// Prefixes of some of the keys, and a prefix of none.
const PREFIXES: [&[u8]; 5] = [b"", b"a", b"\xff", b"k", b"z"];
/// A malformed message.
const GARBAGE: [u8; 9] = [0xff; 9];
/// Keyspaces; the second exists once it was created.
const KEYSPACES: [&str; 2] = [DEFAULT_KEYSPACE, "users"];

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

struct KvScript {
    random: Random,
    client: MalformedClient,
    model: BTreeMap<&'static str, Map>,
    number: u64,
    /// Sequence number of the newest write.
    sequence: u64,
}

/// Expected outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedOutcome {
    Done,
    Refused(Code),
}

impl KvScript {
    async fn call(&mut self, method: &'static str, request: &impl Message) -> CallOutcome {
        self.client.call(SERVICE, method, framed(0, &request.encode_to_vec()), BodyEnd::Whole).await
    }

    /// Returns the message of a successful response; `None` if the call was refused as expected.
    fn one<M: Message + Default>(
        answer: &CallOutcome,
        wanted: ExpectedOutcome,
    ) -> Result<Option<M>, String> {
        let code = match wanted {
            ExpectedOutcome::Done => Code::Ok,
            ExpectedOutcome::Refused(code) => code,
        };
        match (answer.code, &answer.messages[..]) {
            (Some(found), [message]) if found == code && wanted == ExpectedOutcome::Done => {
                M::decode(&message[..]).map(Some).map_err(|error| error.to_string())
            }
            (Some(found), []) if found == code && wanted != ExpectedOutcome::Done => Ok(None),
            (found, messages) => Err(format!(
                "{found:?} with {} messages and not {wanted:?}: {:?}",
                messages.len(),
                answer.status
            )),
        }
    }

    /// Returns a keyspace, its name in the request, and whether it exists.
    fn keyspace(&mut self) -> (&'static str, String, bool) {
        let name = self.random.pick(&[KEYSPACES[0], KEYSPACES[0], KEYSPACES[1]]);
        let is_unsaid = name == DEFAULT_KEYSPACE && self.random.below_usize(2) == 0;
        let sent_name = if is_unsaid { String::new() } else { name.to_string() };
        (name, sent_name, self.model.contains_key(name))
    }

    /// Returns a key; one in ten is invalid.
    fn key(&mut self) -> (Vec<u8>, bool) {
        match self.random.below_usize(20) {
            0 => (Vec::new(), false),
            1 => (vec![7; KEY_BYTES_MAX + 1], false),
            _ => (self.random.pick(&KEYS).to_vec(), true),
        }
    }

    fn value(&mut self) -> (Vec<u8>, bool) {
        self.number += 1;
        match self.random.below_usize(40) {
            0 => (vec![0; KV_VALUE_BYTES_MAX + 1], false),
            1 => (Vec::new(), true),
            _ => (self.number.to_string().into_bytes(), true),
        }
    }

    /// Expected outcome of a request that is valid if these flags are true.
    fn wanted(is_right: bool, is_there: bool) -> ExpectedOutcome {
        match (is_right, is_there) {
            (false, _) => ExpectedOutcome::Refused(Code::InvalidArgument),
            (true, false) => ExpectedOutcome::Refused(Code::NotFound),
            (true, true) => ExpectedOutcome::Done,
        }
    }

    /// Records the sequence number of a write, which must exceed those of all earlier writes.
    fn wrote(&mut self, sequence: u64) -> Result<(), String> {
        let before = std::mem::replace(&mut self.sequence, sequence);
        if sequence > before { Ok(()) } else { Err(format!("write {sequence} after {before}")) }
    }

    async fn put(&mut self) -> Result<(), String> {
        let (name, keyspace, is_there) = self.keyspace();
        let ((key, is_key), (value, is_value)) = (self.key(), self.value());
        let sync = self.random.below_usize(8) == 0;
        let request = PutRequest { keyspace, key: key.clone(), value: value.clone(), sync };
        let answer = self.call("Put", &request).await;
        let wanted = KvScript::wanted(is_key && is_value, is_there);
        let done = KvScript::one::<umbel_proto::kv::PutResponse>(&answer, wanted)?;
        let Some(done) = done else { return Ok(()) };
        self.wrote(done.sequence)?;
        self.model.get_mut(name).unwrap().insert(key, value);
        Ok(())
    }

    async fn delete(&mut self) -> Result<(), String> {
        let (name, keyspace, is_there) = self.keyspace();
        let (key, is_key) = self.key();
        let request = DeleteRequest { keyspace, key: key.clone(), sync: false };
        let answer = self.call("Delete", &request).await;
        let wanted = KvScript::wanted(is_key, is_there);
        let done = KvScript::one::<umbel_proto::kv::DeleteResponse>(&answer, wanted)?;
        let Some(done) = done else { return Ok(()) };
        self.wrote(done.sequence)?;
        self.model.get_mut(name).unwrap().remove(&key);
        Ok(())
    }

    /// Returns an operation of a batch, and whether it is valid.
    fn operation(&mut self, keyspace: String) -> (Operation, bool) {
        let (kind, is_right) = match self.random.below_usize(12) {
            0 => (None, false),
            1..4 => {
                let (key, is_key) = self.key();
                (Some(OperationKind::Delete(key.into())), is_key)
            }
            4 | 5 => {
                let ends = [self.random.pick(&KEYS), self.random.pick(&KEYS)];
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

    /// Returns a condition, whether it is valid, and whether it holds.
    fn condition(&mut self, name: &str, keyspace: String) -> (Condition, bool, bool) {
        let (key, is_key) = self.key();
        let present = self.model.get(name).and_then(|map| map.get(&key)).cloned();
        let value = match self.random.below_usize(6) {
            0 => None,
            1 => Some(b"never".to_vec()),
            _ => present.clone(),
        };
        let holds = value == present;
        (Condition { keyspace, key, value }, is_key, holds)
    }

    async fn batch(&mut self) -> Result<(), String> {
        let mut request = BatchRequest::default();
        let (mut is_right, mut are_there, mut holds) = (true, true, true);
        let mut names = Vec::new();
        for _ in 0..self.random.below_usize(4) {
            let (name, sent_name, is_there) = self.keyspace();
            let (operation, is_one) = self.operation(sent_name);
            request.operations.push(operation);
            names.push(name);
            (is_right, are_there) = (is_right && is_one, are_there && is_there);
        }
        for _ in 0..self.random.below_usize(3) {
            let (name, sent_name, is_there) = self.keyspace();
            let (condition, is_one, is_so) = self.condition(name, sent_name);
            request.conditions.push(condition);
            (is_right, are_there) = (is_right && is_one, are_there && is_there);
            holds &= is_so;
        }
        let wanted = match KvScript::wanted(is_right && !names.is_empty(), are_there) {
            ExpectedOutcome::Done if !holds => ExpectedOutcome::Refused(Code::Aborted),
            wanted => wanted,
        };
        let answer = self.call("Batch", &request).await;
        let done = KvScript::one::<umbel_proto::kv::BatchResponse>(&answer, wanted)?;
        let Some(done) = done else { return Ok(()) };
        self.wrote(done.sequence)?;
        for (name, operation) in names.into_iter().zip(request.operations) {
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
        let found: Option<GetResponse> =
            KvScript::one(&answer, KvScript::wanted(is_key, is_there))?;
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
        for _ in 0..self.random.below_usize(6) {
            let (key, is_key) = self.key();
            keys.push(key);
            are_keys &= is_key;
        }
        if self.random.below_usize(30) == 0 {
            keys = vec![b"a".to_vec(); KV_KEYS_MAX + 1];
            are_keys = false;
        }
        let answer = self.call("MultiGet", &MultiGetRequest { keyspace, keys: keys.clone() }).await;
        let found: Option<MultiGetResponse> =
            KvScript::one(&answer, KvScript::wanted(are_keys, is_there))?;
        let Some(found) = found else { return Ok(()) };
        let map = &self.model[name];
        let values = found.values.iter().map(|found| found.value.as_deref());
        let is_so = values.eq(keys.iter().map(|key| map.get(key).map(Vec::as_slice)));
        match is_so && found.sequence >= self.sequence {
            true => Ok(()),
            false => Err(format!("{keys:?} are {found:?} in {map:?} after {}", self.sequence)),
        }
    }

    async fn scan(&mut self) -> Result<(), String> {
        let (name, keyspace, is_there) = self.keyspace();
        let mut bound = || match self.random.below_usize(12) {
            0 => (vec![1; KEY_BYTES_MAX + 1], false),
            1..6 => (self.random.pick(&KEYS).to_vec(), true),
            _ => (Vec::new(), true),
        };
        let ((start, is_start), (end, is_end)) = (bound(), bound());
        let prefix = self.random.pick(&PREFIXES).to_vec();
        let [reverse, keys_only] =
            [self.random.below_usize(2) == 0, self.random.below_usize(2) == 0];
        let limit = self.random.pick(&[0, 1, 3, u64::MAX]);
        let request = ScanRequest { keyspace, prefix, start, end, reverse, limit, keys_only };
        let answer = self.call("Scan", &request).await;
        match (KvScript::wanted(is_start && is_end, is_there), answer.code) {
            (ExpectedOutcome::Done, Some(Code::Ok)) => {}
            (ExpectedOutcome::Refused(code), Some(found)) if code == found => return Ok(()),
            (wanted, found) => return Err(format!("{found:?} and not {wanted:?}: {request:?}")),
        }
        let mut found = Vec::new();
        for message in &answer.messages {
            let page = ScanResponse::decode(&message[..]).map_err(|error| error.to_string())?;
            if page.sequence < self.sequence {
                return Err(format!("a scan of {} after {}", page.sequence, self.sequence));
            }
            found.extend(page.entries.into_iter().map(|e| (e.key.to_vec(), e.value.to_vec())));
        }
        let is_in = |key: &[u8]| {
            key.starts_with(&request.prefix)
                && key >= &request.start[..]
                && (request.end.is_empty() || key < &request.end[..])
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
        if found == wanted { Ok(()) } else { Err(format!("{request:?}: {found:?} not {wanted:?}")) }
    }

    /// Checks the initial entries of a watch, and then leaves it.
    async fn watch(&mut self) -> Result<(), String> {
        let (name, keyspace, is_there) = self.keyspace();
        let prefix = self.random.pick(&PREFIXES).to_vec();
        let keys_only = self.random.below_usize(2) == 0;
        let request =
            WatchRequest { keyspace, prefix: prefix.clone(), with_entries: true, keys_only };
        let has_started = |message: &[u8]| {
            let response = WatchResponse::decode(message).ok().and_then(|response| response.event);
            matches!(response, Some(WatchEvent::Started(_)))
        };
        let sent = (framed(0, &request.encode_to_vec()), BodyEnd::Whole);
        let answer =
            self.client.call_until(SERVICE, "Watch", sent, (CALL_TIMEOUT, &has_started)).await;
        if !is_there {
            return KvScript::one::<WatchResponse>(
                &answer,
                ExpectedOutcome::Refused(Code::NotFound),
            )
            .map(drop);
        }
        let (mut found, mut is_started) = (Map::new(), false);
        for message in &answer.messages {
            let response =
                WatchResponse::decode(&message[..]).map_err(|error| error.to_string())?;
            match response.event {
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
        let wrong = self.random.pick(&["\u{0}", "n\n", &long]);
        let name = self.random.pick(&[KEYSPACES[0], KEYSPACES[1], wrong]);
        let answer =
            self.call("CreateKeyspace", &CreateKeyspaceRequest { name: name.into() }).await;
        let wanted = match name == wrong {
            true => ExpectedOutcome::Refused(Code::InvalidArgument),
            false => ExpectedOutcome::Done,
        };
        let created: Option<CreateKeyspaceResponse> = KvScript::one(&answer, wanted)?;
        if let Some(created) = created {
            if created.created == self.model.contains_key(name) {
                return Err(format!("{name}: {created:?}"));
            }
            let known = KEYSPACES.into_iter().find(|known| *known == name).unwrap();
            self.model.entry(known).or_default();
        }
        let answer = self.call("ListKeyspaces", &()).await;
        let listed: Option<ListKeyspacesResponse> = KvScript::one(&answer, ExpectedOutcome::Done)?;
        match listed.unwrap_or_default().names.iter().eq(self.model.keys()) {
            true => Ok(()),
            false => Err(format!("not {:?}", self.model.keys())),
        }
    }

    /// Sends random or truncated messages: no call may fail internally. Calls that write get no
    /// valid write.
    async fn other(&mut self) -> Result<(), String> {
        let method = self.random.pick(&CALLS);
        let message = random_message(&mut self.random, 3);
        let (bytes, end) = match self.random.below_usize(8) {
            0 => (Vec::new(), BodyEnd::Whole),
            1 => (framed(0, &GARBAGE), BodyEnd::Whole),
            2 => (framed(1, &message), BodyEnd::Whole),
            3 => {
                let entry = PutRequest { key: b"a".to_vec(), ..PutRequest::default() };
                (framed(0, &entry.encode_to_vec()), BodyEnd::Half)
            }
            4 => (framed(0, &message), BodyEnd::Reset),
            _ if !matches!(
                method,
                "Put" | "Delete" | "Batch" | "CreateKeyspace" | "DropKeyspace"
            ) =>
            {
                (framed(0, &message), BodyEnd::Whole)
            }
            _ => return Ok(()),
        };
        if end == BodyEnd::Reset
            && matches!(method, "Put" | "Delete" | "Batch" | "CreateKeyspace" | "DropKeyspace")
        {
            return Ok(());
        }
        let is_broken =
            end == BodyEnd::Half || bytes.is_empty() || bytes[0] == 1 || bytes.ends_with(&GARBAGE);
        // A watch never ends.
        let time = if method == "Watch" { LISTEN_TIME } else { CALL_TIMEOUT };
        let sent = (bytes.clone(), end);
        let answer = self.client.call_until(SERVICE, method, sent, (time, &|_| false)).await;
        let Some(status) = answer.status else {
            let may_be_silent = method == "Watch" || end == BodyEnd::Reset;
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

/// Runs the script of a seed; returns its violation.
async fn run(seed: u64) -> Result<(), String> {
    let (fixture, db) = TestService::with_kv();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_stop, stopped) = watch::channel(false);
    let limits = ListenerLimits::from_config(&Config::default());
    let serving =
        tokio::spawn(serve(listener, Arc::clone(&fixture.service), None, limits, stopped));
    let (client, connection) = MalformedClient::to(address).await;
    let model = BTreeMap::from([(DEFAULT_KEYSPACE, Map::new())]);
    let random = Random::new(seed);
    let mut run = KvScript { random, client, model, number: 0, sequence: 0 };
    for step in 0..STEPS {
        let at_step = |why: String| format!("seed {seed}, step {step}: {why}");
        let done = async {
            match run.random.below_usize(40) {
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
        match tokio::time::timeout(CALL_TIMEOUT, done).await {
            Ok(done) => done.map_err(at_step)?,
            Err(_) => return Err(at_step(format!("timed out: {}", run.client.last))),
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

/// Returns the violation of the first seed that has one.
fn violation(seeds: u64) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    (1..=seeds).find_map(|seed| runtime.block_on(run(seed)).err())
}

#[test]
fn invalid_kv_requests_are_rejected_without_effect() {
    let found = violation(SEEDS);
    assert_eq!(found, None);
}

#[cfg(feature = "failpoints")]
#[test]
fn every_kv_failpoint_is_detected() {
    use crate::test_support::failpoint_list;
    let hunt = || violation(FAILPOINT_SEEDS);
    assert_eq!(failpoint_list::unnoticed(&failpoint_list::KV_REQUESTS, hunt), [""; 0]);
}
