//! Model test of all calls: valid and malformed requests over a real connection, compared with a
//! plain model in memory. Everything follows from a seed. Checked properties:
//!
//! - A status is of the expected family.
//! - An invalid request never counts as a failure of the server.
//! - No call hangs, and the store equals the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::Code;
use umbel_events::{Direction, Revision};
use umbel_proto::shared::{StreamIdentifier, Uuid, uuid};
use umbel_proto::streams::append_req::{self, Content, ProposedMessage};
use umbel_proto::streams::{
    AppendReq, AppendResp, DeleteOptions, DeleteReq, ExpectedRevision, ReadReq, ReadResp,
    append_resp, read_resp,
};
use umbel_proto::v2::streams::{AppendRecord, AppendRecordsRequest, SchemaInfo};
use umbel_proto::{operations, persistent, projections, read_options, streams, users, v2};
use umbel_sim::Random;

use crate::config::Config;
use crate::server::listener::{ListenerLimits, serve};
use crate::test_support::malformed_client::{
    BodyEnd, CALL_TIMEOUT, CallOutcome, ENDLESS, MalformedClient, framed, random_message,
};
use crate::test_support::test_service::{TestService, event};

const SEEDS: u64 = 60;
#[cfg(feature = "failpoints")]
const FAILPOINT_SEEDS: u64 = 12;
const STEPS: usize = 150;
const NAMES: [&str; 3] = ["cart-1", "cart-2", "käse"];
/// Services and calls that get random messages: these calls must neither fail internally nor change
/// the model's streams.
const OTHERS: [(&str, &[&str]); 5] = [
    (
        persistent::SERVICE,
        &[
            "Create",
            "Update",
            "Delete",
            "GetInfo",
            "List",
            "ReplayParked",
            "TruncateParked",
            "RestartSubsystem",
        ],
    ),
    (
        users::SERVICE,
        &["Create", "Update", "Delete", "Disable", "Enable", "Details", "ChangePassword"],
    ),
    (
        projections::SERVICE,
        &["Create", "Update", "Delete", "Enable", "Disable", "Reset", "State", "Result"],
    ),
    (operations::SERVICE, &["StopScavenge", "SetNodePriority", "MergeIndexes", "ResignNode"]),
    (v2::streams::SERVICE, &["AppendSession", "AppendRecords"]),
];
/// Expected state of a stream.
#[derive(Default)]
struct StreamModel {
    events: Vec<(u64, Vec<u8>)>,
    next: u64,
    is_ended: bool,
}

struct Script {
    random: Random,
    client: MalformedClient,
    model: BTreeMap<&'static str, StreamModel>,
    number: i64,
}

fn identifier(name: &[u8]) -> Option<StreamIdentifier> {
    Some(StreamIdentifier { stream_name: name.to_vec().into() })
}

/// Invalid stream names.
fn wrong_name(random: &mut Random) -> Option<StreamIdentifier> {
    match random.below_usize(4) {
        0 => None,
        1 => identifier(b""),
        2 => identifier(b"ca\xffrt"),
        _ => identifier(&[b'n'; 1025]),
    }
}

fn part(content: Content) -> AppendReq {
    AppendReq { content: Some(content) }
}

fn sent(parts: &[AppendReq]) -> Vec<u8> {
    parts.iter().flat_map(|part| framed(0, &part.encode_to_vec())).collect()
}

impl Script {
    fn wanted(&self, answer: &CallOutcome, wanted: Code, what: &str) -> Result<(), String> {
        match answer.code {
            Some(code) if code == wanted => Ok(()),
            code => Err(format!("{what}: {code:?} and not {wanted:?}: {:?}", answer.status)),
        }
    }

    /// Returns an expected revision, and whether it matches the stream; a deleted stream matches
    /// any.
    fn expected(&mut self, stream: &str) -> (ExpectedRevision, bool) {
        let StreamModel { events, next, .. } = &self.model[stream];
        let (is_there, is_new, next) = (!events.is_empty(), *next == 0, *next);
        match self.random.below_usize(4) {
            0 if is_there => (ExpectedRevision::Revision(next - 1), true),
            1 if is_there => (ExpectedRevision::Revision(next + 7), false),
            2 if is_there || is_new => (ExpectedRevision::NoStream(()), is_new),
            3 if is_there => (ExpectedRevision::StreamExists(()), true),
            _ => (ExpectedRevision::Any(()), true),
        }
    }

    fn events(&mut self) -> Vec<ProposedMessage> {
        let count = 1 + self.random.below_usize(3) as i64;
        self.number += count;
        (self.number - count + 1..=self.number).map(event).collect()
    }

    async fn append(&mut self) -> Result<(), String> {
        let stream = self.random.pick(&NAMES);
        let (expected, is_right) = self.expected(stream);
        let events = self.events();
        let options = append_req::Options {
            stream_identifier: identifier(stream.as_bytes()),
            expected_stream_revision: Some(expected),
        };
        let mut parts = vec![part(Content::Options(options))];
        parts.extend(events.iter().cloned().map(Content::ProposedMessage).map(part));
        let (mut end, mut bytes) = (BodyEnd::Whole, None);
        let wrong = self.random.below_usize(26);
        match (wrong, &mut parts[..]) {
            (0, _) => parts.clear(),
            (1, _) => drop(parts.remove(0)),
            (2, _) => parts.push(AppendReq { content: None }),
            (3..5, [AppendReq { content: Some(Content::Options(options)) }, ..]) => {
                options.stream_identifier = wrong_name(&mut self.random);
            }
            (5, [AppendReq { content: Some(Content::Options(options)) }, ..]) => {
                options.expected_stream_revision = None;
            }
            (6, [.., AppendReq { content: Some(Content::ProposedMessage(last)) }]) => {
                last.id = None;
            }
            (7, [.., AppendReq { content: Some(Content::ProposedMessage(last)) }]) => {
                let text = self.random.pick(&["", "no uuid", "0000"]).to_string();
                last.id = Some(Uuid { value: Some(uuid::Value::String(text)) });
            }
            (8, [.., AppendReq { content: Some(Content::ProposedMessage(last)) }]) => {
                last.metadata.remove(self.random.pick(&["type", "content-type"]));
            }
            (9, [first, ..]) => {
                let again = first.clone();
                parts.push(again);
            }
            (10..12, _) => end = BodyEnd::Half,
            (12..14, _) => end = BodyEnd::Reset,
            (14, _) => bytes = Some([sent(&parts), framed(0, &[0xff; 9])].concat()),
            (15, _) => bytes = Some([sent(&parts), framed(1, b"xx")].concat()),
            _ => {}
        }
        let bytes = bytes.unwrap_or_else(|| sent(&parts));
        let answer = self.client.call(streams::SERVICE, "Append", bytes, end).await;
        let what = format!("append, wrong {wrong}, {expected:?} to {stream}");
        if end == BodyEnd::Reset {
            return Ok(());
        }
        if wrong < 16 {
            return self.wanted(&answer, Code::InvalidArgument, &what);
        }
        if self.model[stream].is_ended {
            return self.wanted(&answer, Code::FailedPrecondition, &what);
        }
        self.wanted(&answer, Code::Ok, &what)?;
        let answer_of =
            answer.messages.first().and_then(|answer_of| AppendResp::decode(&answer_of[..]).ok());
        let answer_of = answer_of.and_then(|answer_of| answer_of.result);
        let is_done = matches!(answer_of, Some(append_resp::Outcome::Success(_)));
        if is_done != is_right {
            return Err(format!("{what}: {answer_of:?}"));
        }
        if is_right {
            self.take(stream, events.iter().map(|event| event.data.to_vec()));
        }
        Ok(())
    }

    fn take(&mut self, stream: &str, events: impl Iterator<Item = Vec<u8>>) {
        let known = self.model.get_mut(stream).unwrap();
        for data in events {
            known.events.push((known.next, data));
            known.next += 1;
        }
    }

    async fn delete(&mut self) -> Result<(), String> {
        let stream = self.random.pick(&NAMES);
        // A tombstone only rarely, so that streams remain to be read.
        let is_final = self.random.below_usize(12) == 0 && stream == NAMES[0];
        let (expected, is_right) = self.expected(stream);
        let mut options = DeleteOptions {
            stream_identifier: identifier(stream.as_bytes()),
            expected_stream_revision: Some(expected),
        };
        let (mut has_options, mut end, mut garbage) = (true, BodyEnd::Whole, None);
        let wrong = self.random.below_usize(14);
        match wrong {
            0 => has_options = false,
            1 | 2 => options.stream_identifier = wrong_name(&mut self.random),
            3 => options.expected_stream_revision = None,
            4 => end = BodyEnd::Half,
            5 => garbage = Some(framed(0, &[0xff; 7])),
            6 => garbage = Some(Vec::new()),
            _ => {}
        }
        if wrong > 6 && (self.model[stream].events.is_empty() || self.model[stream].is_ended) {
            return Ok(());
        }
        let request = DeleteReq { options: has_options.then_some(options) };
        let bytes = garbage.unwrap_or_else(|| framed(0, &request.encode_to_vec()));
        let method = if is_final { "Tombstone" } else { "Delete" };
        let answer = self.client.call(streams::SERVICE, method, bytes, end).await;
        let what = format!("{method}, wrong {wrong}, {expected:?} of {stream}");
        if wrong <= 6 {
            return self.wanted(&answer, Code::InvalidArgument, &what);
        }
        let code = if is_right { Code::Ok } else { Code::FailedPrecondition };
        self.wanted(&answer, code, &what)?;
        if is_right {
            let known = self.model.get_mut(stream).unwrap();
            known.events.clear();
            known.is_ended = is_final;
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<(), String> {
        use streams::read_req::{ReadDirection, RevisionOption};
        let stream = self.random.pick(&NAMES);
        let start = RevisionOption::Start(());
        let mut options = read_options::at_most(1000, read_options::of_stream(stream, start));
        let wrong = self.random.below_usize(12);
        match wrong {
            0 => options.read_direction = self.random.pick(&[2, 7, -1, i32::MIN]),
            1 => options.stream_option = None,
            2 => options.count_option = None,
            3 => options.filter_option = None,
            4 => options.uuid_option = None,
            5 => {
                options = read_options::subscription(read_options::of_stream(stream, start));
                options.read_direction = ReadDirection::Backwards as i32;
            }
            _ => {}
        }
        let options = Some(options).filter(|_| wrong != 6);
        let end = if wrong == 7 { BodyEnd::Half } else { BodyEnd::Whole };
        let bytes = framed(0, &ReadReq { options }.encode_to_vec());
        let answer = self.client.call(streams::SERVICE, "Read", bytes, end).await;
        let what = format!("read, wrong {wrong}, of {stream}");
        if wrong < 8 {
            return self.wanted(&answer, Code::InvalidArgument, &what);
        }
        if self.model[stream].is_ended {
            return self.wanted(&answer, Code::FailedPrecondition, &what);
        }
        self.wanted(&answer, Code::Ok, &what)?;
        let events = answer.messages.iter().filter_map(|at_step| {
            match ReadResp::decode(&at_step[..]).ok()?.content? {
                read_resp::Content::Event(event) => {
                    event.event.map(|event| (event.stream_revision, event.data.to_vec()))
                }
                _ => None,
            }
        });
        let events: Vec<_> = events.collect();
        if events == self.model[stream].events {
            Ok(())
        } else {
            Err(format!("{what}: {events:?}"))
        }
    }

    async fn records(&mut self) -> Result<(), String> {
        let stream = self.random.pick(&NAMES);
        self.number += 1;
        let data = self.number.to_string().into_bytes();
        let schema = SchemaInfo { format: 1, name: "Counted".to_string(), id: None };
        let mut record = AppendRecord {
            schema: Some(schema),
            data: data.clone(),
            stream: stream.to_string(),
            ..AppendRecord::default()
        };
        let (wrong, mut end) = (self.random.below_usize(12), BodyEnd::Whole);
        match (wrong, &mut record.schema) {
            (0, schema) => *schema = None,
            (1, Some(schema)) => schema.format = self.random.pick(&[0, 5, -1, i32::MAX]),
            (2, Some(schema)) => schema.name.clear(),
            (3, _) => record.record_id = Some("no uuid".to_string()),
            (4, _) => record.stream = self.random.pick(&["", &"n".repeat(1025)]).to_string(),
            (5, _) => end = BodyEnd::Half,
            _ => {}
        }
        let records = if wrong == 6 { Vec::new() } else { vec![record] };
        let request = AppendRecordsRequest { records, checks: Vec::new() };
        let bytes = framed(0, &request.encode_to_vec());
        let answer = self.client.call(v2::streams::SERVICE, "AppendRecords", bytes, end).await;
        let what = format!("records, wrong {wrong}, to {stream}");
        if wrong < 7 {
            return self.wanted(&answer, Code::InvalidArgument, &what);
        }
        if self.model[stream].is_ended {
            return self.wanted(&answer, Code::FailedPrecondition, &what);
        }
        self.wanted(&answer, Code::Ok, &what)?;
        self.take(stream, [data].into_iter());
        Ok(())
    }

    async fn other(&mut self) -> Result<(), String> {
        let is_endless = self.random.below_usize(8) == 0;
        let (service, method) = match is_endless {
            true => self.random.pick(&ENDLESS),
            false => {
                let (service, methods) = self.random.pick(&OTHERS);
                (service, self.random.pick(methods))
            }
        };
        let message = random_message(&mut self.random, 4);
        let bytes = match self.random.below_usize(10) {
            0 => Vec::new(),
            1 => framed(0, &[0xff; 5]),
            2 => framed(1, &message),
            _ => framed(0, &message),
        };
        let end = if self.random.below_usize(10) == 0 { BodyEnd::Half } else { BodyEnd::Whole };
        let answer = self.client.call(service, method, bytes.clone(), end).await;
        let Some(status) = answer.status else {
            return if is_endless { Ok(()) } else { Err(format!("{method} says nothing")) };
        };
        let is_refused_settings = status
            .metadata()
            .get(crate::protocol::grpc_status::EXCEPTION)
            .is_some_and(|name| name == "persistent-subscription-failed");
        match status.code() {
            Code::Internal if is_refused_settings => Ok(()),
            Code::Internal | Code::Unknown | Code::DataLoss | Code::Unavailable => {
                Err(format!("{service}/{method} of {bytes:?}, {end:?}: {status:?}"))
            }
            _ => Ok(()),
        }
    }
}

/// Runs the script of a seed; returns its violation.
async fn run(seed: u64) -> Result<(), String> {
    let fixture = TestService::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_stop, stopped) = watch::channel(false);
    let limits = ListenerLimits::from_config(&Config::default());
    let serving =
        tokio::spawn(serve(listener, Arc::clone(&fixture.service), None, limits, stopped));
    let (client, connection) = MalformedClient::to(address).await;
    let model = NAMES.map(|name| (name, StreamModel::default())).into();
    let random = Random::new(seed);
    let mut run = Script { random, client, model, number: 0 };
    for step in 0..STEPS {
        let at_step = |why: String| format!("seed {seed}, step {step}: {why}");
        let done = async {
            match run.random.below_usize(10) {
                0..4 => run.append().await,
                4 => run.delete().await,
                5 | 6 => run.read().await,
                7 => run.records().await,
                _ => run.other().await,
            }
        };
        match tokio::time::timeout(CALL_TIMEOUT, done).await {
            Ok(done) => done.map_err(at_step)?,
            Err(_) => return Err(at_step(format!("timed out: {}", run.client.last))),
        }
    }
    for (name, wanted) in &run.model {
        let events = fixture.store.read(name, Revision(0), Direction::Forwards);
        let found: Vec<_> = events.map_while(Result::ok).map(|e| (e.revision, e.data)).collect();
        if found != wanted.events {
            return Err(format!("seed {seed}: {name} is {found:?} and not {:?}", wanted.events));
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
fn invalid_requests_are_rejected_without_effect() {
    let found = violation(SEEDS);
    assert_eq!(found, None);
}

#[cfg(feature = "failpoints")]
#[test]
fn every_failpoint_is_detected() {
    use crate::test_support::failpoint_list;
    let hunt = || violation(FAILPOINT_SEEDS);
    assert_eq!(failpoint_list::unnoticed(&failpoint_list::REQUESTS, hunt), [""; 0]);
}
