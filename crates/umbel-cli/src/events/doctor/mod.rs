//! `umbel doctor`: checks from a client's position whether a server can be used.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::http::uri::PathAndQuery;
use serde_json::{Value, json};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use umbel_env::{Clock, Env};
use umbel_events::{EventId, ExpectedVersion, NewEvent};
use umbel_proto::read_options::{at_most, backwards, of_all, of_stream};
use umbel_proto::server_features::SupportedMethods;
use umbel_proto::streams::read_req::{AllOption, Options, RevisionOption};
use umbel_proto::streams::read_resp::Content;
use x509_cert::Certificate;
use x509_cert::der::Decode;

use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::{ConnectionString, TlsOptions};
use crate::events::client::grpc_connection::{self, Connection, event_id, status_error};
use crate::events::client::pem_files::PemFile;
use crate::events::client::stream_writes::{self, AppendFailure};
use crate::events::damage_count::{damage_in_stats, read_damage_count};
use crate::events::doctor::finding::{Finding, FindingState};
use crate::events::doctor::stats_findings::{damage_state, stats_states, store_path};
use crate::events::event_args::DoctorArgs;
use crate::io::output::Output;
use crate::text::numbers::counted;

pub mod finding;
pub mod stats_findings;

const METHODS_PATH: &str = "/event_store.client.server_features.ServerFeatures/GetSupportedMethods";
/// Stream to which `umbel doctor --write` appends.
const PROBE_STREAM: &str = "umbel-doctor";
/// Number of pings, and the median latency above which the server counts as slow.
const PINGS: usize = 20;
const SLOW_PING: Duration = Duration::from_millis(50);
/// Timeout of each check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);
/// A certificate that ends within this many days should be replaced.
const CERTIFICATE_DAYS_MIN: u64 = 14;
/// Checks of the store, and those that not every server has.
const STORE_CHECKS: [&str; 4] = ["store", "clock", "filter", "damage"];
const OPTIONAL_CHECKS: [&str; 6] =
    ["disk", "quota", "replication", "telemetry", "backup", "kv backup"];

/// Checks a server and prints the findings.
pub fn run(args: &DoctorArgs, json: bool) -> CommandResult<()> {
    let address = ConnectionString::parse("--connect", &args.connect)?;
    let findings = grpc_connection::runtime()?.block_on(examine(&address, args.write))?;
    let mut output = Output::of_verdict();
    if json {
        let all = findings.iter().map(|finding| {
            json!({ "what": finding.what, "state": finding.state.word(), "said": finding.message })
        });
        output.json(
            &json!({ "server": address.host_and_port_text(), "findings": all.collect::<Vec<_>>() }),
        )?;
    } else {
        for finding in &findings {
            output.line(&finding.to_line())?;
        }
    }
    output.flush()?;
    let has =
        |state: FindingState| findings.iter().filter(|finding| finding.state == state).count();
    let damaged = has(FindingState::Damaged);
    let wrong = has(FindingState::Wrong) + damaged;
    if wrong == 0 {
        return Ok(());
    }
    let sentence = format!(
        "{wrong} of {} of the server at {} failed",
        counted(findings.len() as u64, "check"),
        address.host_and_port_text()
    );
    // Scripts tell damage from a server that cannot be used.
    Err(match damaged {
        0 => CommandError::System(sentence),
        _ => CommandError::Damaged(sentence),
    })
}

async fn examine(address: &ConnectionString, writes: bool) -> CommandResult<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut note = |what, (state, message): (FindingState, String)| {
        findings.push(Finding { what, state, message });
    };
    let clock = Env::system().clock;
    let start = clock.now();
    let connection = match Connection::open(address).await {
        Ok(connection) => connection,
        // The address is invalid, not the server.
        Err(CommandError::Usage(text)) => return Err(CommandError::Usage(text)),
        Err(failure) => {
            note("reached", (FindingState::Wrong, failure.to_string()));
            return Ok(findings);
        }
    };
    note(
        "reached",
        (
            FindingState::Fine,
            format!("{} in {}", address.host_and_port_text(), millis(since(&clock, start))),
        ),
    );
    let live = check_alive(&connection).await;
    let is_silent = live.is_err();
    if is_silent && address.encryption.is_none() && speaks_tls(address).await {
        let message = "the port speaks TLS, but the address is without TLS: write https://, or \
                    remove tls=false";
        note("encryption", (FindingState::Wrong, message.to_string()));
        return Ok(findings);
    }
    let now = Duration::from_micros(clock.wall_micros());
    let verifies = address.encryption.as_ref().is_some_and(|wanted| wanted.verifies);
    note("encryption", encryption_state(connection.certificate.as_deref(), verifies, now));
    note("live", live.unwrap_or_else(|silent| silent));
    if is_silent {
        return Ok(findings);
    }
    let ready = |_: &[u8]| (FindingState::Fine, "the server accepts calls".to_string());
    note("ready", with_timeout(page_state(&connection, "/health/ready", ready)).await);
    note("version", with_timeout(page_state(&connection, "/info", version)).await);
    let advertised = async {
        match connection.http_get("/gossip").await {
            Ok((StatusCode::OK, body)) => advertised_state(address, &body).await,
            other => missing_page(&connection, other.map(|(status, _)| status)),
        }
    };
    note("advertised", with_timeout(advertised).await);
    note("methods", with_timeout(methods_state(&connection)).await);
    note("user", with_timeout(user_state(&connection, address)).await);
    note("answers", with_timeout(response_time(&connection, &clock)).await);
    stored_states(&connection, address).await.into_iter().for_each(|(what, it)| note(what, it));
    if writes {
        let writing = async { write(&connection, &clock).await.unwrap_or_else(error_state) };
        note("write", with_timeout(writing).await);
    }
    Ok(findings)
}

/// Findings about the store. They are from one page, so that all are of one moment.
async fn stored_states(
    connection: &Connection,
    address: &ConnectionString,
) -> Vec<(&'static str, (FindingState, String))> {
    let stats = match read_stats(connection).await {
        Ok(stats) => stats,
        Err(missing) => {
            // A refused client cannot know which of the optional checks the server has.
            let is_skipped = missing.0 == FindingState::Unseen;
            let optional = OPTIONAL_CHECKS.iter().filter(|_| is_skipped);
            let checks = STORE_CHECKS.iter().chain(optional);
            return checks.map(|what| (*what, missing.clone())).collect();
        }
    };
    let mut states = stats_states(&stats, address);
    let errors = match damage_in_stats(&stats) {
        Some(errors) => Ok(errors),
        None => read_damage_count(connection, CHECK_TIMEOUT).await,
    };
    states.push(("damage", damage_state(errors, store_path(&stats))));
    states
}

/// Reads the statistics of the store, or returns the finding that they are not there.
async fn read_stats(connection: &Connection) -> Result<Value, (FindingState, String)> {
    match connection.http_get("/stats").await {
        Ok((status, body)) if status.is_success() => Ok(parse_json(&body)),
        other => Err(missing_page(connection, other.map(|(status, _)| status))),
    }
}

/// Checks that the server runs. After an error, no other check can work.
async fn check_alive(
    connection: &Connection,
) -> Result<(FindingState, String), (FindingState, String)> {
    match connection.http_get("/health/live").await {
        Ok((status, _)) if status.is_success() => {
            Ok((FindingState::Fine, "the server runs".into()))
        }
        Ok((status, _)) => Ok(missing_page(connection, Ok(status))),
        // The message has the remedy.
        Err(failure) if connection.is_refused() => Err(error_state(failure)),
        Err(failure) => {
            let message = format!(
                "{failure}; the process that listens there may not be an event store server"
            );
            Err((FindingState::Wrong, message))
        }
    }
}

/// Whether the server at this address uses TLS, regardless of its certificate.
async fn speaks_tls(address: &ConnectionString) -> bool {
    let encryption = Some(TlsOptions { verifies: false, authorities: None, user: None });
    let address = ConnectionString { encryption, user: None, ..address.clone() };
    let open = tokio::time::timeout(CHECK_TIMEOUT / 5, Connection::open(&address)).await;
    open.is_ok_and(|open| open.is_ok())
}

/// Runs a check with a timeout.
async fn with_timeout(
    finding: impl Future<Output = (FindingState, String)>,
) -> (FindingState, String) {
    let late = || {
        let seconds = CHECK_TIMEOUT.as_secs();
        (
            FindingState::Wrong,
            format!("no response within {seconds} s: the server is stuck or overloaded"),
        )
    };
    tokio::time::timeout(CHECK_TIMEOUT, finding).await.unwrap_or_else(|_| late())
}

fn error_state(failure: CommandError) -> (FindingState, String) {
    (FindingState::Wrong, failure.to_string())
}

fn since(clock: &Arc<dyn Clock>, start: Duration) -> Duration {
    clock.now().saturating_sub(start)
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// Returns the finding for an HTTP page that the server did not return.
fn missing_page(
    connection: &Connection,
    status: CommandResult<StatusCode>,
) -> (FindingState, String) {
    page_refusal(connection.has_login(), status)
}

/// Finding for an HTTP page that was refused to a client with a login, or to an anonymous one.
fn page_refusal(has_login: bool, status: CommandResult<StatusCode>) -> (FindingState, String) {
    match status {
        Ok(StatusCode::UNAUTHORIZED) if has_login => {
            let message = "this check needs a user who can log in: see the line `user`";
            (FindingState::Unseen, message.to_string())
        }
        Ok(StatusCode::UNAUTHORIZED) => {
            let message = "this check needs a user: --connect kurrentdb://USER@HOST:PORT";
            (FindingState::Unseen, message.to_string())
        }
        Ok(StatusCode::FORBIDDEN) => {
            let message = "this check needs another user: one in $ops or $admins";
            (FindingState::Unseen, message.to_string())
        }
        Ok(status) => (FindingState::Wrong, format!("the server returned {status}")),
        Err(failure) => error_state(failure),
    }
}

/// Returns the finding from the content of an HTTP page.
async fn page_state(
    connection: &Connection,
    path: &str,
    say: impl FnOnce(&[u8]) -> (FindingState, String),
) -> (FindingState, String) {
    match connection.http_get(path).await {
        Ok((status, body)) if status.is_success() => say(&body),
        other => missing_page(connection, other.map(|(status, _)| status)),
    }
}

fn encryption_state(
    certificate: Option<&[u8]>,
    verifies: bool,
    now: Duration,
) -> (FindingState, String) {
    let Some(certificate) = certificate else {
        let message = "none: data and passwords can be read on the network";
        return (FindingState::Doubtful, message.to_string());
    };
    let ends = Certificate::from_der(certificate)
        .map(|certificate| certificate.tbs_certificate.validity.not_after.to_unix_duration());
    let Ok(ends) = ends else {
        return (FindingState::Doubtful, "the certificate cannot be parsed".to_string());
    };
    let days = ends.saturating_sub(now).as_secs() / 86_400;
    let left = counted(days, "day");
    match () {
        () if ends <= now => (FindingState::Wrong, "the certificate has expired".to_string()),
        () if !verifies => (
            FindingState::Doubtful,
            format!("the certificate is not verified; it expires in {left}"),
        ),
        () if days < CERTIFICATE_DAYS_MIN => {
            (FindingState::Doubtful, format!("the certificate expires in {left}"))
        }
        () => (FindingState::Fine, format!("the certificate is trusted and expires in {left}")),
    }
}

fn parse_json(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}

fn version(body: &[u8]) -> (FindingState, String) {
    let info = parse_json(body);
    let text = |name: &str| info[name].as_str().unwrap_or("an unknown one").to_string();
    let users = match info["authentication"]["type"].as_str() {
        Some("insecure") => "; without users (--insecure)",
        _ => "",
    };
    (
        FindingState::Fine,
        format!("{}, compatible with EventStoreDB {}{users}", text("version"), text("esVersion")),
    )
}

/// Whether the address that clients are to reconnect to can be reached.
async fn advertised_state(address: &ConnectionString, body: &[u8]) -> (FindingState, String) {
    let gossip = parse_json(body);
    let member = &gossip["members"][0];
    let (host, port) = (member["httpEndPointIp"].as_str(), member["httpEndPointPort"].as_u64());
    let (Some(host), Some(port)) = (host, port.and_then(|port| u16::try_from(port).ok())) else {
        return (FindingState::Wrong, "the gossip response names no member".to_string());
    };
    let shown =
        ConnectionString { host: host.to_string(), port, ..address.clone() }.host_and_port_text();
    if shown == address.host_and_port_text() {
        return (FindingState::Fine, format!("{shown}, the same"));
    }
    let there = tokio::net::TcpStream::connect((host, port));
    match tokio::time::timeout(Duration::from_secs(5), there).await {
        Ok(Ok(_)) => (FindingState::Fine, format!("{shown}, reachable from here")),
        _ => {
            let message = "the advertised address is not reachable from here: clients that \
                 discover it cannot reconnect; set --advertise";
            (FindingState::Doubtful, format!("{shown}, {message}"))
        }
    }
}

async fn methods_state(connection: &Connection) -> (FindingState, String) {
    let response = async {
        let mut calls = connection.grpc_client().await?;
        let path = PathAndQuery::from_static(METHODS_PATH);
        let codec = ProstCodec::<(), SupportedMethods>::default();
        let answer = calls.unary(Request::new(()), path, codec).await;
        Ok(answer.map_err(|status| status_error(&status))?.into_inner())
    };
    match response.await {
        Ok(found) => {
            let message = format!(
                "{} methods, protocol version {}",
                found.methods.len(),
                found.event_store_server_version
            );
            (FindingState::Fine, message)
        }
        Err(failure) => error_state(failure),
    }
}

/// Reads the newest event, if the user has the permission.
async fn newest_event(
    connection: &Connection,
    options: Options,
) -> Result<Option<Content>, CommandError> {
    let mut answers = connection.read(at_most(1, backwards(options))).await?;
    let answer = answers.message().await.map_err(|status| status_error(&status))?;
    Ok(answer.and_then(|answer| answer.content))
}

async fn user_state(connection: &Connection, address: &ConnectionString) -> (FindingState, String) {
    let options = at_most(1, backwards(of_all(AllOption::End(()))));
    let read = match connection.read_or_status(options).await {
        Ok(Ok(mut answers)) => answers.message().await.map(drop),
        Ok(Err(status)) => Err(status),
        Err(failure) => return error_state(failure),
    };
    read_state(described_user(address).as_deref(), read)
}

/// Describes the user of a connection; `None` for an anonymous client. For the server, too, a
/// password counts before a certificate.
fn described_user(address: &ConnectionString) -> Option<String> {
    if let Some((user, _)) = &address.user {
        return Some(format!("user {user}"));
    }
    let (path, _) = address.encryption.as_ref()?.user.as_ref()?;
    let (option, content) = ("userCertFile", "the certificate of a user");
    let subject = || {
        let certificates = PemFile { option, path, content }.certificates().ok()?;
        let certificate = Certificate::from_der(certificates.first()?).ok()?;
        Some(certificate.tbs_certificate.subject.to_string())
    };
    let named = subject().unwrap_or_else(|| path.display().to_string());
    Some(format!("the user of the certificate {named}"))
}

/// Finding for a read of all events by this user, or by an anonymous client.
fn read_state(user: Option<&str>, read: Result<(), Status>) -> (FindingState, String) {
    let status = match (user, read) {
        (Some(user), Ok(())) => {
            return (FindingState::Fine, format!("{user} can read all events"));
        }
        (None, Ok(())) => {
            let message = "no user given; anonymous clients can read all events";
            return (FindingState::Fine, message.to_string());
        }
        (_, Err(status)) => status,
    };
    let is_denied = status.code() == Code::PermissionDenied;
    let failure = status_error(&status);
    match user {
        // The login succeeded. Only administrators read all events by default.
        Some(user) if is_denied => (
            FindingState::Fine,
            format!("{user} can log in, but has no permission to read all events"),
        ),
        None if is_denied || status.code() == Code::Unauthenticated => (
            FindingState::Fine,
            format!("no user given; anonymous clients cannot read events, as expected ({failure})"),
        ),
        Some(user) => (FindingState::Wrong, format!("{user}: {failure}")),
        None => (FindingState::Wrong, format!("no user given; {failure}")),
    }
}

async fn response_time(connection: &Connection, clock: &Arc<dyn Clock>) -> (FindingState, String) {
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let start = clock.now();
        match connection.http_get("/ping").await {
            Ok((StatusCode::OK, _)) => times.push(since(clock, start)),
            other => return missing_page(connection, other.map(|(status, _)| status)),
        }
    }
    times.sort_unstable();
    let (median, max) = (times[PINGS / 2], times[PINGS - 1]);
    let state = if median > SLOW_PING { FindingState::Doubtful } else { FindingState::Fine };
    let message = format!("{PINGS} pings, median {}, maximum {}", millis(median), millis(max));
    (state, message)
}

/// Appends an event, reads it and deletes its stream.
async fn write(
    connection: &Connection,
    clock: &Arc<dyn Clock>,
) -> CommandResult<(FindingState, String)> {
    let mut id = [0; 16];
    Env::system().entropy.fill(&mut id).map_err(|error| CommandError::System(error.to_string()))?;
    let id = EventId::from_random(id);
    let start = clock.now();
    append(connection, id).await?;
    let appended = since(clock, start);
    let read = newest_event(connection, of_stream(PROBE_STREAM, RevisionOption::End(()))).await?;
    let found = match read {
        Some(Content::Event(read)) => read.event.and_then(|event| event.id),
        _ => None,
    };
    if found.and_then(event_id) != Some(id) {
        let message =
            format!("the event appended to {PROBE_STREAM} was not in a read of that stream");
        return Ok((FindingState::Wrong, message));
    }
    stream_writes::delete(connection, PROBE_STREAM, ExpectedVersion::Exists, false).await?;
    Ok((
        FindingState::Fine,
        format!("appended an event in {}, read it and deleted its stream", millis(appended)),
    ))
}

async fn append(connection: &Connection, id: EventId) -> CommandResult<()> {
    let event = NewEvent::json(id, "Examined", b"{}");
    let appended = stream_writes::append(connection, PROBE_STREAM, ExpectedVersion::Any, &event);
    match appended.await {
        Ok(_) => Ok(()),
        Err(AppendFailure::Failed(failure)) => Err(failure),
        Err(AppendFailure::Refused(reason) | AppendFailure::Conflict(reason)) => {
            Err(CommandError::System(format!("the test append was refused: {reason}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_without_users_is_named() {
        let (_, message) = version(br#"{"version":"1","authentication":{"type":"insecure"}}"#);
        assert!(message.contains("without users"), "{message}");
    }

    /// Story: with a wrong password, the lines of skipped checks advised to name a user.
    #[test]
    fn refused_pages_are_no_faults_of_the_server() {
        assert_eq!(page_refusal(true, Ok(StatusCode::FORBIDDEN)).0, FindingState::Unseen);
        let failed = page_refusal(true, Ok(StatusCode::SERVICE_UNAVAILABLE));
        assert_eq!(failed.0, FindingState::Wrong);
        let (state, message) = page_refusal(true, Ok(StatusCode::UNAUTHORIZED));
        assert!(state == FindingState::Unseen && !message.contains("--connect"), "{message}");
        let (state, message) = page_refusal(false, Ok(StatusCode::UNAUTHORIZED));
        assert!(state == FindingState::Unseen && message.contains("USER@HOST"), "{message}");
    }

    /// Story: a server's text changed the direction of the line in a terminal.
    #[test]
    fn texts_of_servers_do_not_act_on_a_terminal() {
        let (state, message) = version(br#"{"version":"1\u202e\n\u009b2J"}"#);
        let line = Finding { what: "version", state, message }.to_line();
        assert!(line.starts_with(r"ok    version      1\u202e\u000a\u009b2J, "), "{line}");
    }

    /// Regression: an anonymous read of all events was reported as a read by a user.
    #[test]
    fn anonymous_read_is_reported_without_user_name() {
        let refused = || Err(Status::unauthenticated("authentication required"));
        let message = |user, read| {
            let (state, message) = read_state(user, read);
            assert!(!message.contains("user may"), "{message}");
            (state, message)
        };
        let (state, open) = message(None, Ok(()));
        assert!(state == FindingState::Fine && open.contains("can read all events"), "{open}");
        let (state, closed) = message(None, refused());
        assert!(state == FindingState::Fine && closed.contains("as expected"), "{closed}");
        assert_eq!(
            message(Some("user ada"), Ok(())),
            (FindingState::Fine, "user ada can read all events".into())
        );
        assert_eq!(message(Some("user ada"), refused()).0, FindingState::Wrong);
        assert_eq!(message(None, Err(Status::unavailable("gone"))).0, FindingState::Wrong);
    }

    /// Story: `ops`, who may not read all events, found a healthy server wrong.
    #[test]
    fn user_without_permission_to_read_all_events_is_fine() {
        let denied = || Err(Status::permission_denied("access denied"));
        let (state, message) = read_state(Some("user ops"), denied());
        assert!(state == FindingState::Fine && message.contains("can log in"), "{message}");
        assert_eq!(read_state(None, denied()).0, FindingState::Fine);
    }

    #[test]
    fn unreadable_certificate_is_reported_as_doubtful() {
        assert_eq!(encryption_state(None, true, Duration::ZERO).0, FindingState::Doubtful);
        assert_eq!(
            encryption_state(Some(b"no certificate"), true, Duration::ZERO).0,
            FindingState::Doubtful
        );
    }
}
