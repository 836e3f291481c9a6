//! `umbel doctor`: checks from a client's position whether a server can be used.

use std::path::Path;
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
use crate::events::client::shell_command::{store_command, umbel_command};
use crate::events::client::stream_writes::{self, AppendFailure};
use crate::events::damage_count::{damage_in_stats, read_damage_count};
use crate::events::event_args::DoctorArgs;
use crate::events::timestamps;
use crate::io::output::Output;
use crate::text::escaping::printable_line;
use crate::text::numbers::{bytes, counted};

const METHODS_PATH: &str = "/event_store.client.server_features.ServerFeatures/GetSupportedMethods";
/// Stream to which `umbel doctor --write` appends.
const PROBE_STREAM: &str = "umbel-doctor";
/// Number of pings, and the median latency above which the server counts as slow.
const PINGS: usize = 20;
const SLOW_PING: Duration = Duration::from_millis(50);
/// Timeout of each check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);
/// Available bytes of a disk below which the server can soon append nothing: a chunk of the event
/// log with the index's work on it.
const DISK_BYTES_MIN: u64 = 64 << 20;
/// Divisor of the disk's size below which its space needs attention.
const DISK_SHARE_MIN: u64 = 10;
/// Divisors of the log's quota: below the first share, the remaining bytes need attention; below
/// the second one, appends are refused or soon will be.
const QUOTA_SHARE_MIN: u64 = 10;
const QUOTA_SHARE_FULL: u64 = 100;
/// A certificate that ends within this many days should be replaced.
const CERTIFICATE_DAYS_MIN: u64 = 14;
/// Checks of the store, and those that not every server has.
const STORE_CHECKS: [&str; 4] = ["store", "clock", "filter", "damage"];
const OPTIONAL_CHECKS: [&str; 6] =
    ["disk", "quota", "replication", "telemetry", "backup", "kv backup"];
/// Age of the events that a continuous backup lacks from which on it needs attention.
const BACKUP_SECONDS_MAX: u64 = 600;

/// State that a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FindingState {
    Fine,
    /// The checked function works, but the operator should examine it.
    Doubtful,
    Wrong,
    /// The server has met damaged data.
    Damaged,
    /// The check could not be made.
    Unseen,
}

impl FindingState {
    fn word(self) -> &'static str {
        match self {
            FindingState::Fine => "ok",
            FindingState::Doubtful => "look",
            FindingState::Wrong | FindingState::Damaged => "wrong",
            FindingState::Unseen => "skip",
        }
    }
}

/// Result of one check.
#[derive(Debug)]
struct Finding {
    what: &'static str,
    state: FindingState,
    message: String,
}

impl Finding {
    /// Line for people. Its message can have texts of the server.
    fn to_line(&self) -> String {
        format!("{:<6}{:<13}{}", self.state.word(), self.what, printable_line(&self.message))
    }
}

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

/// Findings about the statistics of the store.
fn stats_states(
    stats: &Value,
    address: &ConnectionString,
) -> Vec<(&'static str, (FindingState, String))> {
    let findings = [
        ("store", Some(store_state(stats))),
        ("clock", Some(clock_state(stats))),
        ("disk", disk_state(stats)),
        ("quota", quota_state(stats, address)),
        ("replication", replication_state(stats, address)),
        ("filter", Some(filter_state(stats))),
        ("telemetry", telemetry_state(stats)),
        ("backup", backup_state(stats, "objectBackup")),
        ("kv backup", backup_state(stats, "kvObjectBackup")),
    ];
    findings.into_iter().filter_map(|(what, finding)| Some((what, finding?))).collect()
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

/// Directory of the store on the server's machine; `None` for an earlier server.
fn store_path(stats: &Value) -> Option<&Path> {
    stats["directory"]["path"].as_str().map(Path::new)
}

/// A command for the server's machine, on the directory of its store if that is known.
fn command_there(words: &[&str], directory: Option<&Path>) -> String {
    store_command(words, directory.unwrap_or(Path::new("DIR")))
}

fn store_state(stats: &Value) -> (FindingState, String) {
    let (store, index) = (&stats["store"], &stats["index"]);
    if let Some(reason) = index["readOnlyReason"].as_str() {
        return (FindingState::Wrong, format!("the store refuses appends: {reason}"));
    }
    for (member, what) in [("isRemoved", "removed"), ("isMoved", "moved or replaced")] {
        if stats["directory"][member] == true {
            let message = format!(
                "the store's directory was {what}; the server continues in the directory that it \
                 opened: put the directory back, or restart the server"
            );
            return (FindingState::Wrong, message);
        }
    }
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let message = format!(
        "event log {} in {}; index memory {} of {}; {}",
        bytes(number(&store["logBytes"])),
        counted(number(&store["logChunks"]), "chunk"),
        bytes(number(&index["memoryBytes"])),
        bytes(number(&index["memoryBudgetBytes"])),
        counted(number(&index["stalls"]), "write stall"),
    );
    (FindingState::Fine, message)
}

/// Finding about the space for the event log; `None` if the server does not report it.
fn disk_state(stats: &Value) -> Option<(FindingState, String)> {
    let available = stats["disk"]["availableBytes"].as_u64()?;
    let total = stats["disk"]["totalBytes"].as_u64()?;
    let mut message = format!("{} of {} available", bytes(available), bytes(total));
    let state = match () {
        () if available < DISK_BYTES_MIN => {
            message.push_str(": appends fail or soon will; free space, or enlarge the disk");
            FindingState::Wrong
        }
        () if available < total / DISK_SHARE_MIN => FindingState::Doubtful,
        () => FindingState::Fine,
    };
    Some((state, message))
}

/// Finding about the quota of the event log; `None` without a quota.
fn quota_state(stats: &Value, address: &ConnectionString) -> Option<(FindingState, String)> {
    let quota = stats["store"]["logQuotaBytes"].as_u64()?;
    let used = stats["store"]["logBytes"].as_u64().unwrap_or_default();
    let mut message = format!("{} of {} of the event log used", bytes(used), bytes(quota));
    let state = match quota.saturating_sub(used) {
        left if left > quota / QUOTA_SHARE_MIN => return Some((FindingState::Fine, message)),
        // An append has at most a few mebibytes, but most are far shorter.
        left if left > quota / QUOTA_SHARE_FULL => FindingState::Doubtful,
        _ => FindingState::Wrong,
    };
    message.push_str(match state {
        FindingState::Wrong => ": appends fail or soon will",
        _ => "",
    });
    message.push_str("; delete or truncate streams and run ");
    message.push_str(&umbel_command(&["scavenge", "--now"], address));
    message.push_str("; or raise --log-quota of umbel serve");
    Some((state, message))
}

/// Finding about the errors for damaged data since the server started, or about the reason why
/// their number is unknown.
fn damage_state(errors: Result<u64, String>, directory: Option<&Path>) -> (FindingState, String) {
    match errors {
        Err(reason) => (FindingState::Unseen, reason),
        Ok(0) => {
            let message = "no error for damaged data since the server started";
            (FindingState::Fine, message.to_string())
        }
        Ok(errors) => {
            let message = format!(
                "{} for damaged data since the server started; the server's log names the files: \
                 run `{}` on the server's machine, then restore the store from a backup, or stop \
                 the server and save the readable events with `{}`",
                counted(errors, "error"),
                command_there(&["verify"], directory),
                command_there(&["repair"], directory)
            );
            (FindingState::Damaged, message)
        }
    }
}

fn clock_state(stats: &Value) -> (FindingState, String) {
    let store = &stats["store"];
    let Some(epoch) = store["clockEpoch"].as_u64() else {
        return (FindingState::Unseen, "the server does not report its clock".to_string());
    };
    let seconds = |name: &str| store[name].as_u64().unwrap_or_default();
    let (rejected, behind) = (seconds("clockRejectedSeconds"), seconds("clockBehindSeconds"));
    let remedy = || {
        format!(
            "correct the server's clock; if it is right, stop the server and run `{}` on its \
             machine, or start it once with --accept-clock",
            command_there(&["doctor", "--accept-clock"], store_path(stats))
        )
    };
    if rejected > 0 {
        let message = format!(
            "the server's clock is {rejected} s ahead of the time that the store believes, and \
             events get the earlier time or are refused: {}",
            remedy()
        );
        return (FindingState::Doubtful, message);
    }
    if behind > 0 {
        let message = format!(
            "the last event is {behind} s ahead of the server's clock, and later events get its \
             time: {}",
            remedy()
        );
        return (FindingState::Doubtful, message);
    }
    let start = store["clockEpochStartSeconds"].as_u64();
    let since = start.map_or_else(String::new, |start| {
        format!(", since {}", timestamps::rfc3339(start.saturating_mul(10_000_000)))
    });
    (FindingState::Fine, format!("the store believes the server's clock; epoch {epoch}{since}"))
}

fn filter_state(stats: &Value) -> (FindingState, String) {
    let filter = &stats["existenceFilter"];
    let number = |name: &str| filter[name].as_u64().unwrap_or_default();
    let (damaged, rebuilt) = (number("damagedLines"), number("healedLines"));
    let mut message = format!(
        "{}: {}, {} to rebuild",
        filter["state"].as_str().unwrap_or("unknown"),
        counted(number("items"), "stream"),
        counted(damaged, "damaged line")
    );
    if rebuilt > 0 {
        let rebuilt = counted(rebuilt, "damaged line");
        message.push_str(&format!(", {rebuilt} rebuilt since the server started"));
    }
    let journals = number("damagedJournals");
    if journals > 0 {
        message.push_str(&format!(", {} at the start", counted(journals, "damaged journal")));
    }
    if damaged + rebuilt + journals == 0 {
        return (FindingState::Fine, message);
    }
    message.push_str(": check the disk");
    (FindingState::Doubtful, message)
}

/// Finding about a node of a replicated log; `None` for a server that has its store alone.
fn replication_state(stats: &Value, address: &ConnectionString) -> Option<(FindingState, String)> {
    let node = stats.get("replication").filter(|node| node.is_object())?;
    let text = |name: &str| node[name].as_str().unwrap_or("unknown");
    let number = |name: &str| node[name].as_u64().unwrap_or_default();
    let (role, slot, behind) = (text("role"), number("slot"), number("slotsBehind"));
    let place = format!(
        "node {} is {role} in epoch {}, at slot {slot} of {}",
        text("node"),
        number("epoch"),
        text("store")
    );
    let leader = &node["leader"];
    let leader = leader["node"].as_str().map(|name| {
        let host = leader["host"].as_str().unwrap_or("unknown");
        format!("{name} at {host}:{}", leader["port"].as_u64().unwrap_or_default())
    });
    let state = match (role, node["failure"].as_str()) {
        (_, Some(failure)) => {
            let remedy = "check the object store, its credentials and the network";
            return Some((FindingState::Wrong, format!("{place}: {failure}; {remedy}")));
        }
        ("leader", None) => return Some((FindingState::Fine, place)),
        _ => node["isLeaderAlive"] == true,
    };
    let leader = leader.unwrap_or_else(|| "unknown".to_string());
    Some(match (state, behind) {
        (true, 0) => (FindingState::Fine, format!("{place}; the leader is {leader}")),
        (true, _) => {
            let slots = counted(behind, "slot");
            (FindingState::Doubtful, format!("{place}, {slots} behind the leader {leader}"))
        }
        (false, _) => {
            let promote = umbel_command(&["promote"], address);
            let message = format!(
                "{place}; the leader {leader} creates no slots: start it again, or make this node \
                 the leader with {promote}"
            );
            (FindingState::Doubtful, message)
        }
    })
}

/// Finding about the export to an OpenTelemetry collector; `None` if nothing is exported.
fn telemetry_state(stats: &Value) -> Option<(FindingState, String)> {
    let export = stats["openTelemetry"].as_object()?;
    let collector = export["collector"].as_str().unwrap_or("unknown");
    let dropped = export["droppedRecords"].as_u64().unwrap_or_default();
    let failing = export["failing"].as_array().map_or(&[][..], Vec::as_slice);
    let failing = failing.iter().map(|outage| {
        let text = |name: &str| outage[name].as_str().unwrap_or_default();
        let seconds = outage["seconds"].as_u64().unwrap_or_default();
        format!("{} for {seconds} s ({})", text("signal"), text("reason"))
    });
    let failing = failing.collect::<Vec<_>>().join(", ");
    let dropped = counted(dropped, "record");
    Some(match failing.is_empty() {
        true => (FindingState::Fine, format!("{collector} gets it; {dropped} dropped")),
        false => {
            let message = format!("{collector} does not accept {failing}; {dropped} dropped");
            (FindingState::Doubtful, message)
        }
    })
}

/// Finding about a continuous backup into an object store; `None` without one.
fn backup_state(stats: &Value, field: &str) -> Option<(FindingState, String)> {
    let backup = stats.get(field).filter(|backup| backup.is_object())?;
    let text = |name: &str| backup[name].as_str().unwrap_or("unknown");
    let (location, error) = (text("location"), text("error"));
    let seconds = backup["lagSeconds"].as_f64().unwrap_or_default() as u64;
    let is_behind = seconds > BACKUP_SECONDS_MAX;
    let lag = |field: &str| backup[field].as_u64();
    let lacks = match (lag("lagBytes"), lag("lagWrites")) {
        (Some(0), _) | (_, Some(0)) => String::from("lacks nothing yet"),
        (Some(lag), _) => format!("lacks {} of the last {seconds} s", bytes(lag)),
        (_, Some(lag)) => format!("lacks {} of the last {seconds} s", counted(lag, "write")),
        (None, None) => format!("was not reached for {seconds} s"),
    };
    let remedy = "; check the object store, its credentials and the network";
    Some(match text("state") {
        // The reason has the remedy.
        "Stopped" => (FindingState::Wrong, format!("stopped until a restart: {error}")),
        "Failing" if is_behind => {
            (FindingState::Wrong, format!("{location} {lacks}: {error}{remedy}"))
        }
        "Failing" => (FindingState::Doubtful, format!("{location} {lacks}: {error}{remedy}")),
        _ if is_behind => {
            let remedy = "raise --backup-throttle, or use a faster network or object store";
            (FindingState::Doubtful, format!("{location} {lacks}; {remedy}"))
        }
        _ => match backup_upkeep(backup) {
            Some(problem) => (FindingState::Doubtful, format!("{location}: {problem}")),
            None => {
                let time = text("lastSuccess");
                (FindingState::Fine, format!("{location} {lacks}; last success at {time}"))
            }
        },
    })
}

/// Returns what is wrong with the objects of a backup whose runs succeed.
fn backup_upkeep(backup: &Value) -> Option<String> {
    let lost = backup["lostObjects"].as_u64().unwrap_or(0);
    let failed =
        |field: &str, what: &str| backup[field].as_str().map(|error| format!("{what}: {error}"));
    let lost = (lost > 0).then(|| {
        format!(
            "{} had been deleted by something else; check the lifecycle rules of the bucket and \
             who can delete objects",
            counted(lost, "object")
        )
    });
    let problems = lost
        .into_iter()
        .chain(failed("retentionError", "expired states could not be deleted"))
        .chain(failed("searchError", "its objects could not be looked for"));
    let problems: Vec<String> = problems.collect();
    (!problems.is_empty()).then(|| problems.join("; "))
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

    /// Story: a server's text changed the direction of the line in a terminal.
    #[test]
    fn texts_of_servers_do_not_act_on_a_terminal() {
        let (state, message) = version(br#"{"version":"1\u202e\n\u009b2J"}"#);
        let line = Finding { what: "version", state, message }.to_line();
        assert!(line.starts_with(r"ok    version      1\u202e\u000a\u009b2J, "), "{line}");
    }

    #[test]
    fn server_pages_map_to_finding_states() {
        let (state, message) =
            store_state(&parse_json(br#"{"index":{"readOnlyReason":"a failed sync"}}"#));
        assert!(state == FindingState::Wrong && message.contains("a failed sync"), "{message}");
        assert_eq!(store_state(&parse_json(b"{}")).0, FindingState::Fine);
        let (state, message) = store_state(&parse_json(br#"{"directory":{"isMoved":true}}"#));
        assert!(state == FindingState::Wrong && message.contains("was moved"), "{message}");
        let disk = |available: u64| {
            let disk = json!({ "availableBytes": available, "totalBytes": 3_u64 << 30 });
            disk_state(&json!({ "disk": disk })).unwrap()
        };
        // Story: on a full disk every check was fine.
        let (state, message) = disk(0);
        assert!(state == FindingState::Wrong && message.contains("appends fail"), "{message}");
        let little = (FindingState::Doubtful, "200.0 MiB of 3.0 GiB available".into());
        assert_eq!(disk(200 << 20), little);
        assert_eq!(disk(2 << 30).0, FindingState::Fine);
        assert!(disk_state(&json!({})).is_none(), "KurrentDB");
        let address = "kurrentdb://ops:x@db?tlsCaFile=ca.crt";
        let address = ConnectionString::parse("--connect", address).unwrap();
        let quota = |used: u64| {
            let store = json!({ "logBytes": used << 20, "logQuotaBytes": 1000_u64 << 20 });
            quota_state(&json!({ "store": store }), &address).unwrap()
        };
        assert_eq!(quota(800).0, FindingState::Fine);
        let (state, message) = quota(950);
        let tip = "scavenge --now --connect 'kurrentdb://ops@db:2113?tlsCaFile=ca.crt'; or raise";
        assert!(state == FindingState::Doubtful && message.contains(tip), "{message}");
        for used in [995, 1000, 1010] {
            let (state, message) = quota(used);
            assert!(state == FindingState::Wrong && message.contains("appends fail"), "{message}");
        }
        assert!(quota_state(&json!({ "store": { "logBytes": 5 } }), &address).is_none());
        let clock = |page: &str| clock_state(&parse_json(page.as_bytes()));
        assert_eq!(clock("{}").0, FindingState::Unseen, "KurrentDB");
        for fault in ["clockRejectedSeconds", "clockBehindSeconds"] {
            let page = format!(r#"{{"store":{{"clockEpoch":1,"{fault}":900}}}}"#);
            let (state, message) = clock(&page);
            assert!(state == FindingState::Doubtful && message.contains("900 s"), "{message}");
        }
        let (state, message) =
            clock(r#"{"store":{"clockEpoch":2,"clockEpochStartSeconds":86400}}"#);
        assert_eq!(state, FindingState::Fine);
        assert!(message.ends_with("epoch 2, since 1970-01-02T00:00:00.0000000Z"), "{message}");
        check_damage_findings();
        assert!(telemetry_state(&parse_json(b"{}")).is_none());
        let export = |failing: &str| {
            let page = format!(
                r#"{{"openTelemetry":{{"collector":"http://c:4318","droppedRecords":5,
                "failing":[{failing}]}}}}"#
            );
            telemetry_state(&parse_json(page.as_bytes())).unwrap()
        };
        assert_eq!(export("").0, FindingState::Fine);
        let (state, message) = export(r#"{"signal":"logs","reason":"no response","seconds":9}"#);
        let wanted = "http://c:4318 does not accept logs for 9 s (no response); 5 records dropped";
        assert_eq!((state, &message[..]), (FindingState::Doubtful, wanted));
        check_backup_findings();
        check_replication_findings();
        let (_, message) = version(br#"{"version":"1","authentication":{"type":"insecure"}}"#);
        assert!(message.contains("without users"), "{message}");
        check_page_refusals();
    }

    /// Checks the findings about damage of the existence filter and of the store.
    fn check_damage_findings() {
        let page = parse_json(br#"{"existenceFilter":{"damagedLines":3,"healedLines":1}}"#);
        let (state, message) = filter_state(&page);
        assert!(state == FindingState::Doubtful && message.contains("3 damaged"), "{message}");
        // Story: lines that had been rebuilt hid damaged ones, and were fine themselves.
        let page = parse_json(br#"{"existenceFilter":{"damagedLines":0,"healedLines":8}}"#);
        let (state, message) = filter_state(&page);
        assert!(state == FindingState::Doubtful && message.contains("8 damaged"), "{message}");
        // Story: a damaged journal was fine.
        let page = parse_json(br#"{"existenceFilter":{"damagedJournals":1}}"#);
        let (state, message) = filter_state(&page);
        let said = "1 damaged journal at the start: check the disk";
        assert!(state == FindingState::Doubtful && message.ends_with(said), "{message}");
        assert_eq!(filter_state(&parse_json(b"no page")).0, FindingState::Fine);
        assert_eq!(damage_state(Err("no response".into()), None).0, FindingState::Unseen);
        assert_eq!(damage_state(Ok(0), None).0, FindingState::Fine);
        let page = json!({ "directory": { "path": "/my shop" } });
        let (state, message) = damage_state(Ok(1), store_path(&page));
        assert_eq!(state, FindingState::Damaged);
        // Story: the commands named no store, and were refused as they were printed.
        assert!(message.contains("`umbel verify --db '/my shop'`"), "{message}");
        assert!(message.contains("`umbel repair --db '/my shop'`"), "{message}");
    }

    /// Story: with a wrong password, the lines of skipped checks advised to name a user.
    fn check_page_refusals() {
        assert_eq!(page_refusal(true, Ok(StatusCode::FORBIDDEN)).0, FindingState::Unseen);
        let failed = page_refusal(true, Ok(StatusCode::SERVICE_UNAVAILABLE));
        assert_eq!(failed.0, FindingState::Wrong);
        let (state, message) = page_refusal(true, Ok(StatusCode::UNAUTHORIZED));
        assert!(state == FindingState::Unseen && !message.contains("--connect"), "{message}");
        let (state, message) = page_refusal(false, Ok(StatusCode::UNAUTHORIZED));
        assert!(state == FindingState::Unseen && message.contains("USER@HOST"), "{message}");
    }

    /// Checks the findings about a node of a replicated log.
    fn check_replication_findings() {
        let address = ConnectionString::parse("--connect", "http://h:1").unwrap();
        let found = |role: &str, is_alive: bool, behind: u64, failure: Option<&str>| {
            let leader = json!({ "node": "a", "host": "h", "port": 2113 });
            let node = json!({
                "node": "b", "role": role, "epoch": 3, "slot": 9, "store": "s3://b/p",
                "leader": leader, "isLeaderAlive": is_alive, "slotsBehind": behind,
                "failure": failure,
            });
            replication_state(&json!({ "replication": node }), &address).unwrap()
        };
        assert!(replication_state(&json!({}), &address).is_none());
        let leads = "node b is leader in epoch 3, at slot 9 of s3://b/p";
        assert_eq!(found("leader", true, 0, None), (FindingState::Fine, leads.to_string()));
        let (state, message) = found("follower", true, 0, None);
        assert!(state == FindingState::Fine && message.ends_with("the leader is a at h:2113"));
        let (state, message) = found("follower", true, 7, None);
        assert!(state == FindingState::Doubtful && message.contains("7 slots behind"), "{message}");
        let (state, message) = found("follower", false, 0, None);
        let promote = "umbel promote --connect http://h:1";
        assert!(state == FindingState::Doubtful && message.ends_with(promote), "{message}");
        let (state, message) = found("leader", true, 0, Some("no answer"));
        assert!(state == FindingState::Wrong && message.contains("no answer; check"), "{message}");
    }

    /// Checks the findings about a continuous backup.
    fn check_backup_findings() {
        assert!(backup_state(&json!({}), "objectBackup").is_none());
        let found = |state: &str, lag_bytes: Option<u64>, seconds: f64| {
            let backup = json!({
                "location": "s3://b/p", "state": state, "lagBytes": lag_bytes,
                "lagSeconds": seconds, "error": "no answer", "lastSuccess": "today",
            });
            backup_state(&json!({ "objectBackup": backup }), "objectBackup").unwrap()
        };
        let fine = (FindingState::Fine, "s3://b/p lacks nothing yet; last success at today".into());
        assert_eq!(found("Running", Some(0), 0.0), fine);
        assert_eq!(found("Running", Some(5), 9.5).0, FindingState::Fine);
        let (state, message) = found("Running", Some(2048), 601.0);
        assert!(state == FindingState::Doubtful && message.contains("--backup-throttle"));
        assert!(message.contains("lacks 2.0 KiB of the last 601 s"), "{message}");
        let (state, message) = found("Failing", None, 30.0);
        assert!(state == FindingState::Doubtful && message.contains("not reached for 30 s"));
        assert!(message.contains("no answer; check the object store"), "{message}");
        assert_eq!(found("Failing", Some(1), 700.0).0, FindingState::Wrong);
        let (state, message) = found("Stopped", Some(0), 0.0);
        assert_eq!(
            (state, &message[..]),
            (FindingState::Wrong, "stopped until a restart: no answer")
        );
        let kv = json!({ "location": "l", "state": "Failing", "lagWrites": 3, "lagSeconds": 9.0 });
        let (_, message) = backup_state(&json!({ "kv": kv }), "kv").unwrap();
        assert!(message.starts_with("l lacks 3 writes of the last 9 s"), "{message}");
        let backup = json!({ "location": "l", "state": "Running", "retentionError": "no times" });
        let (state, message) =
            backup_state(&json!({ "objectBackup": backup }), "objectBackup").unwrap();
        assert!(state == FindingState::Doubtful && message.contains("no times"), "{message}");
        let backup = json!({ "location": "l", "state": "Running", "lostObjects": 2 });
        let (state, message) =
            backup_state(&json!({ "objectBackup": backup }), "objectBackup").unwrap();
        assert!(state == FindingState::Doubtful && message.contains("2 objects"), "{message}");
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
