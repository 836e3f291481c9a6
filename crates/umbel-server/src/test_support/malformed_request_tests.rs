//! Requests, right ones and wrong ones, put to every call of a server over a real connection, and
//! compared with a plain model in memory: the status is of the right family, what is wrong is never
//! taken for a failure of the server, nothing hangs, and the store is as the model says. Everything
//! follows from a seed.

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
use umbel_proto::{operations, persistent, projections, reading, streams, users, v2};

use crate::config::Config;
use crate::connections::{Limits, serve};
use crate::planted::{Bug, plant};
use crate::stage::{Stage, event};
use crate::wrong_calls_client::{Answer, Client, ENDLESS, End, PATIENCE, Random, anything, framed};

const SEEDS: u64 = 60;
const PLANTED_SEEDS: u64 = 12;
const STEPS: usize = 150;
const NAMES: [&str; 3] = ["cart-1", "cart-2", "käse"];
/// Services and calls that are asked anything: they may not fail by it, nor touch those streams.
const OTHERS: [(&str, &[&str]); 5] = [
    (
        persistent::SERVICE,
        &["Create", "Update", "Delete", "GetInfo", "List", "ReplayParked", "RestartSubsystem"],
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
/// A stream as it has to be.
#[derive(Default)]
struct Stream {
    events: Vec<(u64, Vec<u8>)>,
    next: u64,
    is_ended: bool,
}

struct Run {
    random: Random,
    client: Client,
    model: BTreeMap<&'static str, Stream>,
    number: i64,
}

fn identifier(name: &[u8]) -> Option<StreamIdentifier> {
    Some(StreamIdentifier { stream_name: name.to_vec().into() })
}

/// Names that are none.
fn wrong_name(random: &mut Random) -> Option<StreamIdentifier> {
    match random.below(4) {
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

impl Run {
    fn wanted(&self, answer: &Answer, wanted: Code, what: &str) -> Result<(), String> {
        match answer.code {
            Some(code) if code == wanted => Ok(()),
            code => Err(format!("{what}: {code:?} and not {wanted:?}: {:?}", answer.status)),
        }
    }

    /// An expected revision, and whether the stream is at it: any where it was deleted.
    fn expected(&mut self, stream: &str) -> (ExpectedRevision, bool) {
        let Stream { events, next, .. } = &self.model[stream];
        let (is_there, is_new, next) = (!events.is_empty(), *next == 0, *next);
        match self.random.below(4) {
            0 if is_there => (ExpectedRevision::Revision(next - 1), true),
            1 if is_there => (ExpectedRevision::Revision(next + 7), false),
            2 if is_there || is_new => (ExpectedRevision::NoStream(()), is_new),
            3 if is_there => (ExpectedRevision::StreamExists(()), true),
            _ => (ExpectedRevision::Any(()), true),
        }
    }

    fn events(&mut self) -> Vec<ProposedMessage> {
        let count = 1 + self.random.below(3) as i64;
        self.number += count;
        (self.number - count + 1..=self.number).map(event).collect()
    }

    async fn append(&mut self) -> Result<(), String> {
        let stream = self.random.of(&NAMES);
        let (expected, is_right) = self.expected(stream);
        let events = self.events();
        let options = append_req::Options {
            stream_identifier: identifier(stream.as_bytes()),
            expected_stream_revision: Some(expected),
        };
        let mut parts = vec![part(Content::Options(options))];
        parts.extend(events.iter().cloned().map(Content::ProposedMessage).map(part));
        let (mut end, mut bytes) = (End::Whole, None);
        let wrong = self.random.below(26);
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
                let text = self.random.of(&["", "no uuid", "0000"]).to_string();
                last.id = Some(Uuid { value: Some(uuid::Value::String(text)) });
            }
            (8, [.., AppendReq { content: Some(Content::ProposedMessage(last)) }]) => {
                last.metadata.remove(self.random.of(&["type", "content-type"]));
            }
            (9, [first, ..]) => {
                let again = first.clone();
                parts.push(again);
            }
            (10..12, _) => end = End::Half,
            (12..14, _) => end = End::Reset,
            (14, _) => bytes = Some([sent(&parts), framed(0, &[0xff; 9])].concat()),
            (15, _) => bytes = Some([sent(&parts), framed(1, b"xx")].concat()),
            _ => {}
        }
        let bytes = bytes.unwrap_or_else(|| sent(&parts));
        let answer = self.client.call(streams::SERVICE, "Append", bytes, end).await;
        let what = format!("append, wrong {wrong}, {expected:?} to {stream}");
        if end == End::Reset {
            return Ok(());
        }
        if wrong < 16 {
            return self.wanted(&answer, Code::InvalidArgument, &what);
        }
        if self.model[stream].is_ended {
            return self.wanted(&answer, Code::FailedPrecondition, &what);
        }
        self.wanted(&answer, Code::Ok, &what)?;
        let said = answer.messages.first().and_then(|said| AppendResp::decode(&said[..]).ok());
        let said = said.and_then(|said| said.result);
        let is_done = matches!(said, Some(append_resp::Outcome::Success(_)));
        if is_done != is_right {
            return Err(format!("{what}: {said:?}"));
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
        let stream = self.random.of(&NAMES);
        // For good once in a while, so that there is something to be asked.
        let is_final = self.random.below(12) == 0 && stream == NAMES[0];
        let (expected, is_right) = self.expected(stream);
        let mut options = DeleteOptions {
            stream_identifier: identifier(stream.as_bytes()),
            expected_stream_revision: Some(expected),
        };
        let (mut has_options, mut end, mut garbage) = (true, End::Whole, None);
        let wrong = self.random.below(14);
        match wrong {
            0 => has_options = false,
            1 | 2 => options.stream_identifier = wrong_name(&mut self.random),
            3 => options.expected_stream_revision = None,
            4 => end = End::Half,
            5 => garbage = Some(framed(0, &[0xff; 7])),
            6 => garbage = Some(Vec::new()),
            _ => {}
        }
        if wrong > 6 && (self.model[stream].events.is_empty() || self.model[stream].is_ended) {
            return Ok(());
        }
        let asked = DeleteReq { options: has_options.then_some(options) };
        let bytes = garbage.unwrap_or_else(|| framed(0, &asked.encode_to_vec()));
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
        let stream = self.random.of(&NAMES);
        let start = RevisionOption::Start(());
        let mut options = reading::at_most(1000, reading::of_stream(stream, start));
        let wrong = self.random.below(12);
        match wrong {
            0 => options.read_direction = self.random.of(&[2, 7, -1, i32::MIN]),
            1 => options.stream_option = None,
            2 => options.count_option = None,
            3 => options.filter_option = None,
            4 => options.uuid_option = None,
            5 => {
                options = reading::subscription(reading::of_stream(stream, start));
                options.read_direction = ReadDirection::Backwards as i32;
            }
            _ => {}
        }
        let options = Some(options).filter(|_| wrong != 6);
        let end = if wrong == 7 { End::Half } else { End::Whole };
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
        let events = answer.messages.iter().filter_map(|said| {
            match ReadResp::decode(&said[..]).ok()?.content? {
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
        let stream = self.random.of(&NAMES);
        self.number += 1;
        let data = self.number.to_string().into_bytes();
        let schema = SchemaInfo { format: 1, name: "Counted".to_string(), id: None };
        let mut record = AppendRecord {
            schema: Some(schema),
            data: data.clone(),
            stream: stream.to_string(),
            ..AppendRecord::default()
        };
        let (wrong, mut end) = (self.random.below(12), End::Whole);
        match (wrong, &mut record.schema) {
            (0, schema) => *schema = None,
            (1, Some(schema)) => schema.format = self.random.of(&[0, 5, -1, i32::MAX]),
            (2, Some(schema)) => schema.name.clear(),
            (3, _) => record.record_id = Some("no uuid".to_string()),
            (4, _) => record.stream = self.random.of(&["", &"n".repeat(1025)]).to_string(),
            (5, _) => end = End::Half,
            _ => {}
        }
        let records = if wrong == 6 { Vec::new() } else { vec![record] };
        let asked = AppendRecordsRequest { records, checks: Vec::new() };
        let bytes = framed(0, &asked.encode_to_vec());
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
        let is_endless = self.random.below(8) == 0;
        let (service, method) = match is_endless {
            true => self.random.of(&ENDLESS),
            false => {
                let (service, methods) = self.random.of(&OTHERS);
                (service, self.random.of(methods))
            }
        };
        let message = anything(&mut self.random, 4);
        let bytes = match self.random.below(10) {
            0 => Vec::new(),
            1 => framed(0, &[0xff; 5]),
            2 => framed(1, &message),
            _ => framed(0, &message),
        };
        let end = if self.random.below(10) == 0 { End::Half } else { End::Whole };
        let answer = self.client.call(service, method, bytes.clone(), end).await;
        let Some(status) = answer.status else {
            return if is_endless { Ok(()) } else { Err(format!("{method} says nothing")) };
        };
        let is_refused_settings = status
            .metadata()
            .get(crate::failure::EXCEPTION)
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

/// What is found with this seed.
async fn run(seed: u64) -> Result<(), String> {
    let stage = Stage::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_stop, stopped) = watch::channel(false);
    let limits = Limits::of(&Config::default());
    let serving = tokio::spawn(serve(listener, Arc::clone(&stage.service), None, limits, stopped));
    let (client, connection) = Client::to(address).await;
    let model = NAMES.map(|name| (name, Stream::default())).into();
    let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut run = Run { random, client, model, number: 0 };
    for step in 0..STEPS {
        let said = |why: String| format!("seed {seed}, step {step}: {why}");
        let done = async {
            match run.random.below(10) {
                0..4 => run.append().await,
                4 => run.delete().await,
                5 | 6 => run.read().await,
                7 => run.records().await,
                _ => run.other().await,
            }
        };
        match tokio::time::timeout(PATIENCE, done).await {
            Ok(done) => done.map_err(said)?,
            Err(_) => return Err(said(format!("it hangs: {}", run.client.last))),
        }
    }
    for (name, wanted) in &run.model {
        let events = stage.store.read(name, Revision(0), Direction::Forwards);
        let found: Vec<_> = events.map_while(Result::ok).map(|e| (e.revision, e.data)).collect();
        if found != wanted.events {
            return Err(format!("seed {seed}: {name} is {found:?} and not {:?}", wanted.events));
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
fn what_is_asked_wrongly_is_told_so_and_changes_nothing() {
    let found = violation(SEEDS);
    assert_eq!(found, None);
}

#[test]
fn every_planted_bug_is_found() {
    let bugs = [
        Bug::ExpectedUnsaid,
        Bug::IdIsZeros,
        Bug::DirectionUnknown,
        Bug::BreakIsEnd,
        Bug::NoMessageIsOurs,
        Bug::PartSkipped,
    ];
    for bug in bugs {
        plant(Some(bug));
        let found = violation(PLANTED_SEEDS);
        plant(None);
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?} is not found");
    }
}
