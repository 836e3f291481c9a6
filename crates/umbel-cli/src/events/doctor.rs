//! `umbel doctor`: whether a server can be used, as its clients see it from outside.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::http::uri::PathAndQuery;
use serde_json::{Value, json};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use umbel_env::{Clock, Env};
use umbel_events::EventId;
use umbel_proto::reading::{at_most, backwards, of_all, of_stream};
use umbel_proto::server_features::SupportedMethods;
use umbel_proto::shared::{Uuid, uuid};
use umbel_proto::streams::read_req::{AllOption, Options, RevisionOption};
use umbel_proto::streams::read_resp::Content;
use umbel_proto::streams::{
    AppendReq, AppendResp, DeleteOptions, DeleteReq, DeleteResp, ExpectedRevision, append_req,
    append_resp,
};
use x509_cert::Certificate;
use x509_cert::der::Decode;

use super::args::DoctorArgs;
use super::connection::{self, Connection, event_id, refused};
use super::server_address::{Encryption, ServerAddress};
use crate::errors::{Failure, Outcome};
use crate::number::bytes;
use crate::output::Output;

const METHODS: &str = "/event_store.client.server_features.ServerFeatures/GetSupportedMethods";
const APPEND: &str = "/event_store.client.streams.Streams/Append";
const DELETE: &str = "/event_store.client.streams.Streams/Delete";
/// The stream that `--write` appends to.
const STREAM: &str = "umbel-doctor";
/// How many times it is asked how long an answer takes, and how long is long.
const PINGS: usize = 20;
const SLOW: Duration = Duration::from_millis(50);
/// How long a server has for each thing that it is asked.
const PATIENCE: Duration = Duration::from_secs(15);
/// A certificate that ends within so many days should be replaced.
const DAYS: u64 = 14;

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Fine,
    /// It works, but somebody should look.
    Doubtful,
    Wrong,
    /// It could not be looked at.
    Unseen,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Fine => "ok",
            State::Doubtful => "look",
            State::Wrong => "wrong",
            State::Unseen => "skip",
        }
    }
}

/// What was found about one thing.
#[derive(Debug)]
struct Finding {
    what: &'static str,
    state: State,
    said: String,
}

/// Looks at a server, and says what it found.
pub fn run(args: &DoctorArgs, json: bool) -> Outcome<()> {
    let address = ServerAddress::parse("--connect", &args.connect)?;
    let findings = connection::runtime()?.block_on(examine(&address, args.write))?;
    let mut output = Output::new();
    if json {
        let all = findings.iter().map(|finding| {
            json!({ "what": finding.what, "state": finding.state.word(), "said": finding.said })
        });
        output.json(&json!({ "server": address.shown(), "findings": all.collect::<Vec<_>>() }))?;
    } else {
        for Finding { what, state, said } in &findings {
            output.line(&format!("{:<6}{what:<13}{said}", state.word()))?;
        }
    }
    output.flush()?;
    let wrong = findings.iter().filter(|finding| finding.state == State::Wrong).count();
    if wrong > 0 {
        return Err(Failure::System(format!(
            "{wrong} of {} things are wrong with the server at {}",
            findings.len(),
            address.shown()
        )));
    }
    Ok(())
}

async fn examine(address: &ServerAddress, writes: bool) -> Outcome<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut note = |what, (state, said): (State, String)| {
        findings.push(Finding { what, state, said });
    };
    let clock = Env::system().clock;
    let begun = clock.now();
    let connection = match Connection::open(address).await {
        Ok(connection) => connection,
        // What was asked for is wrong, not the server.
        Err(Failure::Usage(text)) => return Err(Failure::Usage(text)),
        Err(failure) => {
            note("reached", (State::Wrong, failure.to_string()));
            return Ok(findings);
        }
    };
    note(
        "reached",
        (State::Fine, format!("{} in {}", address.shown(), millis(since(&clock, begun)))),
    );
    let live = alive(&connection).await;
    let is_silent = live.is_err();
    if is_silent && address.encryption.is_none() && speaks_tls(address).await {
        let said = "the port speaks TLS, but was asked in clear: write https://, or leave \
                    tls=false out";
        note("encryption", (State::Wrong, said.to_string()));
        return Ok(findings);
    }
    let now = Duration::from_micros(clock.wall_micros());
    let verifies = address.encryption.as_ref().is_some_and(|wanted| wanted.verifies);
    note("encryption", encryption(connection.certificate.as_deref(), verifies, now));
    note("live", live.unwrap_or_else(|silent| silent));
    if is_silent {
        return Ok(findings);
    }
    let ready = |_: &[u8]| (State::Fine, "it takes calls".to_string());
    note("ready", patient(page(&connection, "/health/ready", ready)).await);
    note("version", patient(page(&connection, "/info", version)).await);
    let advertised = async {
        match connection.page("/gossip").await {
            Ok((StatusCode::OK, body)) => advertised(address, &body).await,
            other => unseen(other.map(|(status, _)| status)),
        }
    };
    note("advertised", patient(advertised).await);
    note("methods", patient(methods(&connection)).await);
    note("user", patient(user(&connection, address)).await);
    note("answers", patient(answers(&connection, &clock)).await);
    // One page, so that both are of one moment.
    let stats = match connection.page("/stats").await {
        Ok((status, body)) if status.is_success() => Ok(value(&body)),
        other => Err(unseen(other.map(|(status, _)| status))),
    };
    note("store", stats.as_ref().map_or_else(Clone::clone, store));
    note("filter", stats.as_ref().map_or_else(Clone::clone, filter));
    if writes {
        let writing = async { write(&connection, &clock).await.unwrap_or_else(wrong) };
        note("write", patient(writing).await);
    }
    Ok(findings)
}

/// Whether it runs; an error where nothing else can be asked of it either.
async fn alive(connection: &Connection) -> Result<(State, String), (State, String)> {
    match connection.page("/health/live").await {
        Ok((status, _)) if status.is_success() => Ok((State::Fine, "it runs".into())),
        Ok((status, _)) => Ok(unseen(Ok(status))),
        Err(failure) => {
            let said = format!("{failure}; what listens there may be no server of this kind");
            Err((State::Wrong, said))
        }
    }
}

/// Whether who listens there encrypts, whoever he is.
async fn speaks_tls(address: &ServerAddress) -> bool {
    let encryption = Some(Encryption { verifies: false, authorities: None, user: None });
    let address = ServerAddress { encryption, user: None, ..address.clone() };
    let open = tokio::time::timeout(PATIENCE / 5, Connection::open(&address)).await;
    open.is_ok_and(|open| open.is_ok())
}

/// What is found, unless that takes too long.
async fn patient(finding: impl Future<Output = (State, String)>) -> (State, String) {
    let late = || {
        let seconds = PATIENCE.as_secs();
        (State::Wrong, format!("it was not answered within {seconds} s: it is stuck or overloaded"))
    };
    tokio::time::timeout(PATIENCE, finding).await.unwrap_or_else(|_| late())
}

fn wrong(failure: Failure) -> (State, String) {
    (State::Wrong, failure.to_string())
}

fn since(clock: &Arc<dyn Clock>, begun: Duration) -> Duration {
    clock.now().saturating_sub(begun)
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// What is said of a page that did not come.
fn unseen(status: Outcome<StatusCode>) -> (State, String) {
    match status {
        Ok(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            let said = "not without a user who may see it: name one with USER:PASSWORD@";
            (State::Unseen, said.to_string())
        }
        Ok(status) => (State::Wrong, format!("it answers {status}")),
        Err(failure) => wrong(failure),
    }
}

/// What is to be said of a page.
async fn page(
    connection: &Connection,
    path: &str,
    say: impl FnOnce(&[u8]) -> (State, String),
) -> (State, String) {
    match connection.page(path).await {
        Ok((status, body)) if status.is_success() => say(&body),
        other => unseen(other.map(|(status, _)| status)),
    }
}

fn encryption(certificate: Option<&[u8]>, verifies: bool, now: Duration) -> (State, String) {
    let Some(certificate) = certificate else {
        let said = "none: whoever is on the way reads along, passwords too";
        return (State::Doubtful, said.to_string());
    };
    let ends = Certificate::from_der(certificate)
        .map(|certificate| certificate.tbs_certificate.validity.not_after.to_unix_duration());
    let Ok(ends) = ends else {
        return (State::Doubtful, "its certificate cannot be read".to_string());
    };
    let days = ends.saturating_sub(now).as_secs() / 86_400;
    match () {
        () if ends <= now => (State::Wrong, "its certificate has ended".to_string()),
        () if !verifies => {
            (State::Doubtful, format!("not looked at who it is; its certificate has {days} days"))
        }
        () if days < DAYS => (State::Doubtful, format!("its certificate ends in {days} days")),
        () => (State::Fine, format!("its certificate is believed and has {days} days")),
    }
}

fn value(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}

fn version(body: &[u8]) -> (State, String) {
    let info = value(body);
    let text = |name: &str| info[name].as_str().unwrap_or("an unknown one").to_string();
    let users = match info["authentication"]["type"].as_str() {
        Some("insecure") => "; it asks nobody who he is",
        _ => "",
    };
    (State::Fine, format!("{}, as clients know it {}{users}", text("version"), text("esVersion")))
}

/// Whether the address that clients are told to come back to can be reached.
async fn advertised(address: &ServerAddress, body: &[u8]) -> (State, String) {
    let gossip = value(body);
    let member = &gossip["members"][0];
    let (host, port) = (member["httpEndPointIp"].as_str(), member["httpEndPointPort"].as_u64());
    let (Some(host), Some(port)) = (host, port.and_then(|port| u16::try_from(port).ok())) else {
        return (State::Wrong, "its gossip names no member".to_string());
    };
    let shown = ServerAddress { host: host.to_string(), port, ..address.clone() }.shown();
    if shown == address.shown() {
        return (State::Fine, format!("{shown}, the same"));
    }
    let there = tokio::net::TcpStream::connect((host, port));
    match tokio::time::timeout(Duration::from_secs(5), there).await {
        Ok(Ok(_)) => (State::Fine, format!("{shown}, which can be reached from here")),
        _ => {
            let said = "which cannot be reached from here: clients that discover it will not \
                        come back; set --advertise";
            (State::Doubtful, format!("{shown}, {said}"))
        }
    }
}

async fn methods(connection: &Connection) -> (State, String) {
    let asked = async {
        let mut calls = connection.calls().await?;
        let path = PathAndQuery::from_static(METHODS);
        let codec = ProstCodec::<(), SupportedMethods>::default();
        let answer = calls.unary(Request::new(()), path, codec).await;
        Ok(answer.map_err(|status| refused(&status))?.into_inner())
    };
    match asked.await {
        Ok(found) => {
            let said = format!(
                "{} that clients may call, protocol of {}",
                found.methods.len(),
                found.event_store_server_version
            );
            (State::Fine, said)
        }
        Err(failure) => wrong(failure),
    }
}

/// The newest event of all, where one may see it.
async fn newest(connection: &Connection, options: Options) -> Result<Option<Content>, Failure> {
    let mut answers = connection.read(at_most(1, backwards(options))).await?;
    let answer = answers.message().await.map_err(|status| refused(&status))?;
    Ok(answer.and_then(|answer| answer.content))
}

async fn user(connection: &Connection, address: &ServerAddress) -> (State, String) {
    let read = newest(connection, of_all(AllOption::End(()))).await;
    reading(address.user.as_ref().map(|(user, _)| &user[..]), read.map(drop))
}

/// What is said of a read of all events by this user, or by nobody who said who he is.
fn reading(user: Option<&str>, read: Outcome<()>) -> (State, String) {
    match (user, read) {
        (Some(user), Ok(())) => (State::Fine, format!("{user} may read all events")),
        (None, Ok(())) => {
            let said = "none was named, and all events can be read without one";
            (State::Fine, said.to_string())
        }
        (None, Err(Failure::Usage(said))) => (
            State::Fine,
            format!(
                "none was named, and without one no events can be read, as it should be ({said})"
            ),
        ),
        (Some(user), Err(failure)) => (State::Wrong, format!("{user}: {failure}")),
        (None, Err(failure)) => (State::Wrong, format!("none was named; {failure}")),
    }
}

async fn answers(connection: &Connection, clock: &Arc<dyn Clock>) -> (State, String) {
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let begun = clock.now();
        match connection.page("/ping").await {
            Ok((StatusCode::OK, _)) => times.push(since(clock, begun)),
            other => return unseen(other.map(|(status, _)| status)),
        }
    }
    times.sort_unstable();
    let (median, most) = (times[PINGS / 2], times[PINGS - 1]);
    let state = if median > SLOW { State::Doubtful } else { State::Fine };
    let said = format!("{PINGS}, in {} (median), {} (most)", millis(median), millis(most));
    (state, said)
}

fn store(stats: &Value) -> (State, String) {
    let (store, index) = (&stats["store"], &stats["index"]);
    if let Some(reason) = index["readOnlyReason"].as_str() {
        return (State::Wrong, format!("it takes no more appends: {reason}"));
    }
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let said = format!(
        "{} of log in {} chunks; {} of {} of the index's memory in use; {} stalls",
        bytes(number(&store["logBytes"])),
        number(&store["logChunks"]),
        bytes(number(&index["memoryBytes"])),
        bytes(number(&index["memoryBudgetBytes"])),
        number(&index["stalls"]),
    );
    (State::Fine, said)
}

fn filter(stats: &Value) -> (State, String) {
    let filter = &stats["existenceFilter"];
    let number = |name: &str| filter[name].as_u64().unwrap_or_default();
    let damaged = number("damagedLines").saturating_sub(number("healedLines"));
    let said = format!(
        "{}: {} names, {} damaged lines not healed yet",
        filter["state"].as_str().unwrap_or("unknown"),
        number("items"),
        damaged
    );
    (if damaged > 0 { State::Doubtful } else { State::Fine }, said)
}

/// Appends an event, reads it and deletes its stream.
async fn write(connection: &Connection, clock: &Arc<dyn Clock>) -> Outcome<(State, String)> {
    let mut id = [0; 16];
    Env::system().entropy.fill(&mut id).map_err(|error| Failure::System(error.to_string()))?;
    let id = EventId::from_random(id);
    let begun = clock.now();
    append(connection, id).await?;
    let appended = since(clock, begun);
    let read = newest(connection, of_stream(STREAM, RevisionOption::End(()))).await?;
    let found = match read {
        Some(Content::Event(read)) => read.event.and_then(|event| event.id),
        _ => None,
    };
    if found.and_then(event_id) != Some(id) {
        let said = format!("what was appended to {STREAM} was not read from it");
        return Ok((State::Wrong, said));
    }
    let options = DeleteOptions {
        stream_identifier: Some(STREAM.into()),
        expected_stream_revision: Some(ExpectedRevision::StreamExists(())),
    };
    let mut calls = connection.calls().await?;
    let path = PathAndQuery::from_static(DELETE);
    let codec = ProstCodec::<DeleteReq, DeleteResp>::default();
    let request = Request::new(DeleteReq { options: Some(options) });
    calls.unary(request, path, codec).await.map_err(|status| refused(&status))?;
    Ok((State::Fine, format!("appended in {}, read, and deleted again", millis(appended))))
}

async fn append(connection: &Connection, id: EventId) -> Outcome<()> {
    let options = append_req::Options {
        stream_identifier: Some(STREAM.into()),
        expected_stream_revision: Some(ExpectedRevision::Any(())),
    };
    let bits = u128::from_be_bytes(id.0);
    let metadata = [("type", "Examined"), ("content-type", "application/json")];
    let event = append_req::ProposedMessage {
        id: Some(Uuid { value: Some(uuid::Value::Structured(bits.into())) }),
        metadata: metadata.map(|(name, value)| (name.to_string(), value.to_string())).into(),
        data: "{}".into(),
        ..append_req::ProposedMessage::default()
    };
    let parts =
        [append_req::Content::Options(options), append_req::Content::ProposedMessage(event)];
    let parts = parts.map(|part| AppendReq { content: Some(part) });
    let mut calls = connection.calls().await?;
    let path = PathAndQuery::from_static(APPEND);
    let codec = ProstCodec::<AppendReq, AppendResp>::default();
    let request = Request::new(futures_util::stream::iter(parts));
    let answer = calls.client_streaming(request, path, codec).await;
    match answer.map_err(|status| refused(&status))?.into_inner().result {
        Some(append_resp::Outcome::Success(_)) => Ok(()),
        _ => Err(refused(&Status::new(Code::Internal, "the append did not succeed"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_judged() {
        let (state, said) = store(&value(br#"{"index":{"readOnlyReason":"a failed sync"}}"#));
        assert!(state == State::Wrong && said.contains("a failed sync"), "{said}");
        assert_eq!(store(&value(b"{}")).0, State::Fine);
        let page = value(br#"{"existenceFilter":{"damagedLines":3,"healedLines":1}}"#);
        let (state, said) = filter(&page);
        assert!(state == State::Doubtful && said.contains("2 damaged"), "{said}");
        assert_eq!(filter(&value(b"no page")).0, State::Fine);
        let (_, said) = version(br#"{"version":"1","authentication":{"type":"insecure"}}"#);
        assert!(said.contains("asks nobody"), "{said}");
        assert_eq!(unseen(Ok(StatusCode::FORBIDDEN)).0, State::Unseen);
        assert_eq!(unseen(Ok(StatusCode::SERVICE_UNAVAILABLE)).0, State::Wrong);
    }

    /// It said "nobody may read all events" and called that `ok`: it meant that a user who was not
    /// named, so anybody, may read them.
    #[test]
    fn who_reads_without_a_name_is_not_called_nobody() {
        let refused = || Err(Failure::usage("who asks has to say who he is"));
        let said = |user, read| {
            let (state, said) = reading(user, read);
            assert!(!said.contains("nobody"), "{said}");
            (state, said)
        };
        let (state, open) = said(None, Ok(()));
        assert!(state == State::Fine && open.contains("can be read without one"), "{open}");
        let (state, closed) = said(None, refused());
        assert!(state == State::Fine && closed.contains("as it should be"), "{closed}");
        assert_eq!(said(Some("ada"), Ok(())), (State::Fine, "ada may read all events".into()));
        assert_eq!(said(Some("ada"), refused()).0, State::Wrong);
        assert_eq!(said(None, Err(Failure::System("gone".into()))).0, State::Wrong);
    }

    #[test]
    fn a_certificate_that_says_nothing_is_doubtful() {
        assert_eq!(encryption(None, true, Duration::ZERO).0, State::Doubtful);
        assert_eq!(encryption(Some(b"no certificate"), true, Duration::ZERO).0, State::Doubtful);
    }
}
