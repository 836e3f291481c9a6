//! `umbel doctor`, and `subscribe` and `import-events` with users and TLS.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::thread;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use rustix::process::Signal;
use serde_json::Value;
use umbel_env::DiskSpace;

use super::in_process_server::{InProcessServer, ROOMY_DISK};
use super::repairs::{CHUNK, corrupt_byte, events};
use super::serve::Serving;
use super::test_binary::{Fixture, Run, file_of};

const EVENTS: &str = r#"{"stream":"cart-1","type":"Opened","data":{"n":1}}
{"stream":"cart-1","type":"Closed","data":{"n":2}}
"#;
pub const PASSWORDS: [(&str, &str); 2] =
    [("UMBEL_ADMIN_PASSWORD", "a:pass@word/1"), ("UMBEL_OPS_PASSWORD", "another one")];
/// User `ops` with its password, as in a connection string.
const OPS: &str = "ops:another%20one";
/// User `admin` with its password, as in a connection string.
const ADMIN: &str = "admin:a%3Apass%40word%2F1";

/// Files of a certificate authority, and of its certificate for `localhost`.
pub struct Certificates {
    pub authority: PathBuf,
    pub flags: [String; 4],
}

/// Creates certificates that are valid until this year.
pub fn certificates(fixture: &Fixture, until: i32) -> Certificates {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.not_after = date_time_ymd(until, 1, 1);
    let files = ["authority.pem", "node.pem", "node.key"].map(|name| fixture.path(name));
    fs::write(&files[0], authority.pem()).unwrap();
    fs::write(&files[1], params.signed_by(&key, &authority).unwrap().pem()).unwrap();
    fs::write(&files[2], key.serialize_pem()).unwrap();
    let [authority, certificate, key] = files;
    let shown = |path: PathBuf| path.to_str().unwrap().to_string();
    let flags = [
        "--certificate-file".to_string(),
        shown(certificate),
        "--certificate-private-key-file".to_string(),
        shown(key),
    ];
    Certificates { authority, flags }
}

/// Starts a server with TLS and users. Returns the server and the file of its CA certificate.
fn secure(fixture: &Fixture, until: i32) -> (Serving, String) {
    let Certificates { authority, flags } = certificates(fixture, until);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    (Serving::with(fixture, &flags, &PASSWORDS), authority.to_str().unwrap().to_string())
}

/// Name and state of each finding.
fn states(run: &Run) -> Vec<(String, String)> {
    let message: Value = run.json();
    let findings = message["findings"].as_array().unwrap();
    let of = |finding: &Value, name: &str| finding[name].as_str().unwrap().to_string();
    findings.iter().map(|finding| (of(finding, "what"), of(finding, "state"))).collect()
}

fn state(run: &Run, what: &str) -> String {
    let states = states(run);
    let found = states.iter().find(|(name, _)| name == what);
    found.unwrap_or_else(|| panic!("no {what} in {states:?}")).1.clone()
}

#[test]
fn doctor_reports_only_missing_encryption() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], EVENTS.as_bytes()).succeeds();
    let server = InProcessServer::start(&fixture, Some(ROOMY_DISK));
    let address = format!("127.0.0.1:{}", server.port());
    let connect = format!("kurrentdb://{address}?tls=false");
    let run = fixture.bare(&["doctor", "--connect", &connect, "--json", "--write"]).succeeds();
    let states = states(&run);
    let names: Vec<&str> = states.iter().map(|(name, _)| name.as_str()).collect();
    let wanted = "reached encryption live ready version advertised methods user answers store \
                  clock disk filter damage write";
    assert_eq!(names.join(" "), wanted);
    for (name, state) in &states {
        match name.as_str() {
            "encryption" => assert_eq!(state, "look"),
            // A busy machine answers slowly.
            "answers" => assert!(["ok", "look"].contains(&state.as_str()), "{state}"),
            _ => assert_eq!(state, "ok", "{name}"),
        }
    }
    let text = fixture.bare(&["doctor", "--connect", &address]).succeeds().text();
    assert!(text.contains("ok    ready") && text.contains("without users"), "{text}");
    assert!(!text.contains("umbel-doctor"), "nothing is written without --write");
    server.stop();
    // Its event is deleted, and nothing else.
    let left = fixture.run(&["streams"]).succeeds().text();
    assert_eq!(left, "cart-1\t0 to 1\numbel-doctor\tdeleted\n");
}

/// Story: two tests of `umbel doctor` failed where the machine's own disk was nearly full.
#[test]
fn doctor_judges_the_disk_of_the_server() {
    let disk = |available_bytes: u64| DiskSpace { total_bytes: 3 << 30, available_bytes };
    for (disk, code, wanted) in [
        (Some(disk(2 << 30)), 0, Some("ok    disk         2.0 GiB of 3.0 GiB available")),
        (Some(disk(200 << 20)), 0, Some("look  disk         200.0 MiB of 3.0 GiB available")),
        (Some(disk(0)), 4, Some("wrong disk         0 B of 3.0 GiB available: appends fail")),
        (None, 0, None),
    ] {
        let fixture = Fixture::new();
        let server = InProcessServer::start(&fixture, disk);
        let run = fixture.bare(&["doctor", "--connect", &format!("127.0.0.1:{}", server.port())]);
        let text = run.text();
        assert_eq!(run.code, code, "{text}");
        let found = text.lines().find(|line| line[6..].starts_with("disk "));
        match wanted {
            Some(wanted) => assert!(found.is_some_and(|line| line.starts_with(wanted)), "{text}"),
            None => assert_eq!(found, None, "{text}"),
        }
        server.stop();
    }
}

/// Story: after reads had met damaged data, every check was fine. Later the line began with `look`
/// and the exit code was 0, which no script saw.
#[test]
fn doctor_reports_damage_that_calls_have_met() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], &events(60)).succeeds();
    let serving = Serving::start(&fixture, &[]);
    let doctor = || fixture.bare(&["doctor", "--connect", serving.address()]);
    let text = doctor().succeeds().text();
    assert!(text.contains("ok    damage       no error for damaged data"), "{text}");
    corrupt_byte(&fixture, CHUNK, 1520);
    fixture.bare(&["read", "--all", "--connect", serving.address()]).fails(3, &["00000001.chunk"]);
    let text = doctor().fails(3, &["checks of the server at"]).text();
    // The number depends on what the server counts.
    let line = text.lines().find(|line| line.starts_with("wrong damage ")).expect(&text);
    assert!(line.contains(" for damaged data since the server started"), "{line}");
    assert!(line.contains("a backup"), "{line}");
    // Story: the commands named no store, and were refused as they were printed.
    for command in ["`umbel verify --db ", "`umbel repair --db "] {
        let printed = format!("{command}{}`", fixture.store().display());
        assert!(line.contains(&printed), "{line}");
    }
    serving.stop(Signal::INT);
}

#[test]
fn doctor_checks_users_and_certificates() {
    let fixture = Fixture::new();
    let Certificates { authority, flags: [_, certificate, _, key] } = certificates(&fixture, 4000);
    let authority = authority.to_str().unwrap();
    let server = InProcessServer::start_secure(&fixture, &certificate, &key);
    let port = server.port();
    let doctor = |user: &str, options: &str| {
        let connect = format!("kurrentdb://{user}localhost:{port}?{options}");
        fixture.bare(&["doctor", "--connect", &connect, "--json", "--write"])
    };
    let trusted = format!("tlsCaFile={authority}");
    let run = doctor(&format!("{ADMIN}@"), &trusted).succeeds();
    assert!(states(&run).iter().all(|(_, state)| state == "ok"), "{:?}", states(&run));
    let run = doctor(&format!("{OPS}@"), &trusted).succeeds();
    assert_eq!((state(&run, "user"), state(&run, "write")), ("ok".into(), "ok".into()));
    // An anonymous client lacks permissions; whether it may write shows only in a write.
    let run = doctor("", &trusted).fails(4, &["1 of 20 checks of the server"]);
    assert_eq!((state(&run, "user"), state(&run, "store")), ("ok".into(), "skip".into()));
    // Story: the checks for damage, of the disk and of backups were left out without a word.
    for skipped in ["clock", "disk", "quota", "filter", "telemetry", "backup", "damage"] {
        assert_eq!(state(&run, skipped), "skip", "{skipped}");
    }
    assert!(run.text().contains("needs a user: --connect"), "{}", run.text());
    assert_eq!(state(&run, "write"), "wrong");
    let run = doctor("admin:guessed@", &trusted).fails(4, &["checks of the server"]);
    assert_eq!((state(&run, "user"), state(&run, "disk")), ("wrong".into(), "skip".into()));
    assert!(!run.text().contains("--connect"), "a user is named: {}", run.text());
    let run = doctor(&format!("{ADMIN}@"), "tlsVerifyCert=false").succeeds();
    assert_eq!(state(&run, "encryption"), "look");
    let run = doctor("", "").fails(4, &["1 of 1 check of the server"]);
    assert!(run.text().contains("tlsCaFile=FILE"), "{}", run.text());
    let run = doctor("", "tls=false").fails(4, &["failed"]);
    // Regression: it was reported as reached and not encrypted, then as a broken pipe.
    assert!(run.text().contains("the port speaks TLS"), "{}", run.text());
    assert_eq!(states(&run).len(), 2, "no more checks after a failed one");
    assert_eq!(state(&run, "encryption"), "wrong");
    let parts = ["tlsCaFile names /nowhere.pem", "cannot be read: No such file", "check the path"];
    doctor("", "tlsCaFile=/nowhere.pem").fails(2, &parts);
    let other = Fixture::new();
    let foreign = certificates(&other, 4000).authority;
    let run = doctor("", &format!("tlsCaFile={}", foreign.display())).fails(4, &["failed"]);
    let text = run.text();
    assert!(text.contains(&format!("no CA certificate of {}", foreign.display())), "{text}");
    server.stop();
    let unreachable = ["doctor", "--connect", "http://127.0.0.1:1"];
    let run = fixture.bare(&unreachable).fails(4, &["1 of 1 check of the server at"]);
    assert!(run.text().contains("could not reach"), "{}", run.text());
    fixture.bare(&["doctor", "--connect", "a,b:1"]).fails(2, &["--connect is a,b:1"]);
}

/// Writes a certificate of a user and its key. Returns the options that name them.
fn user_certificate(
    fixture: &Fixture,
    authority: &CertifiedIssuer<'static, KeyPair>,
    (name, usage): (&str, ExtendedKeyUsagePurpose),
) -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![usage];
    let files = ["crt", "key"].map(|kind| fixture.path(&format!("{name}.{kind}")));
    fs::write(&files[0], params.signed_by(&key, authority).unwrap().pem()).unwrap();
    fs::write(&files[1], key.serialize_pem()).unwrap();
    format!("userCertFile={}&userKeyFile={}", files[0].display(), files[1].display())
}

/// Story: the user of a certificate was called anonymous, and a certificate of a user who does not
/// exist was fine, with exit code 0.
#[test]
fn doctor_names_the_user_of_a_certificate() {
    let fixture = Fixture::new();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "users");
    let users = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let trusted = fixture.path("users.pem");
    fs::write(&trusted, users.pem()).unwrap();
    let Certificates { authority, flags } = certificates(&fixture, 4000);
    let trust = ["--trusted-root-certificates-path", trusted.to_str().unwrap()];
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(trust).collect();
    let serving = Serving::with(&fixture, &flags, &PASSWORDS);
    let port = serving.connection().rsplit(':').next().unwrap().to_string();
    let doctor = |certificate: &str| {
        let server = format!("localhost:{port}?tlsCaFile={}", authority.display());
        let connect = format!("kurrentdb://{server}&{certificate}");
        fixture.bare(&["doctor", "--connect", &connect, "--json"])
    };
    let certificate = |name, usage| user_certificate(&fixture, &users, (name, usage));
    // The exit code depends on the disk of this machine.
    let ops = doctor(&certificate("ops", ExtendedKeyUsagePurpose::ClientAuth));
    assert_eq!((state(&ops, "user"), state(&ops, "store")), ("ok".into(), "ok".into()));
    assert!(ops.text().contains("the user of the certificate CN=ops can log in"), "{ops:?}");
    let nobody = doctor(&certificate("nobody", ExtendedKeyUsagePurpose::ClientAuth));
    let nobody = nobody.fails(4, &["1 of 19 checks of the server"]);
    assert_eq!((state(&nobody, "user"), state(&nobody, "store")), ("wrong".into(), "skip".into()));
    // The server refuses this one after the handshake, by an alert or the end of the connection.
    let foreign = doctor(&certificate("admin", ExtendedKeyUsagePurpose::ServerAuth));
    let foreign = foreign.fails(4, &["checks of the server"]);
    assert_eq!(state(&foreign, "live"), "wrong");
    let text = foreign.text();
    assert!(!text.contains("fatal alert") || text.contains("userCertFile: name one"), "{text}");
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

/// Opens a port that answers each connection with these bytes and keeps the connection open.
fn foreign_server(response: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answers = move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.write_all(response).unwrap();
            kept.push(stream);
        }
    };
    umbel_env::Env::system().threads.spawn("foreign-server", Box::new(answers)).unwrap();
    address
}

/// Regression: a port that accepted connections without a response blocked `doctor` and `subscribe`
/// for ever, and a server of another protocol was reported nine times.
#[test]
fn unreachable_server_is_reported_once_and_soon() {
    let fixture = Fixture::new();
    let silent = foreign_server(b"");
    let follow = ["subscribe", "--connect", &silent, "--all"];
    let followed = thread::scope(|scope| {
        let following = scope.spawn(|| fixture.bare(&follow));
        for address in [
            &silent,
            &foreign_server(b"SSH-2.0-none\r\n"),
            &foreign_server(b"HTTP/1.1 400 No\r\n\r\n"),
        ] {
            let run = fixture.bare(&["doctor", "--connect", address]);
            let run = run.fails(4, &["1 of 3 checks of the server at"]);
            let message = run.text();
            assert!(message.contains("may not be an event store server"), "{message}");
            assert!(!message.contains("tls=false"), "it does not speak TLS: {message}");
            assert!(!message.contains("//health"), "{message}");
        }
        following.join().unwrap()
    });
    followed.fails(4, &["umbel: "]);
}

#[test]
fn subscribe_and_import_work_over_tls() {
    let source = Fixture::new();
    source.feed(&["append"], EVENTS.as_bytes()).succeeds();
    let wanted = source.run(&["read", "--stream", "cart-1"]).succeeds().text();
    let (serving, authority) = secure(&source, 4000);
    let port = serving.connection().rsplit(':').next().unwrap().to_string();
    let place = format!("localhost:{port}?tlsCaFile={authority}");
    let connect = format!("esdb://{ADMIN}@{place}");
    let follow = ["subscribe", "--connect", &connect, "--stream", "cart-1", "--until-caught-up"];
    assert_eq!(source.bare(&follow).succeeds().text(), wanted);
    let target = Fixture::new();
    let message = target.run(&["import-events", "--from", &connect]).succeeds().text();
    assert!(message.starts_with("2 events imported;"), "users are the server's own: {message}");
    let imported = target.run(&["read", "--stream", "cart-1"]).succeeds().text();
    let ids = |text: &str| -> Vec<Value> {
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| line["id"].clone()).collect()
    };
    assert_eq!(ids(&imported), ids(&wanted));
    // Neither as anonymous client nor with a wrong password.
    let anonymous = format!("esdb://{place}");
    let other = Fixture::new();
    other.run(&["import-events", "--from", &anonymous]).fails(2, &["the server says"]);
    assert!(!other.store().exists(), "no store is created without permission to read");
    let guess = ["subscribe", "--all", "--connect", &format!("esdb://ops:x@{place}")];
    source.bare(&guess).fails(2, &["the server says"]);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

/// The only event of the store is a day in the future, as an import allows.
fn import_tomorrow(fixture: &Fixture) {
    let now = umbel_env::Env::system().clock.wall_micros() / 1_000_000;
    let later = chrono::DateTime::from_timestamp_secs(now as i64 + 80_000).unwrap();
    let created = later.format("%Y-%m-%dT%H:%M:%SZ");
    let line = format!(r#"{{"stream":"a","type":"Opened","data":{{}},"created":"{created}"}}"#);
    fixture.feed(&["import-events"], line.as_bytes()).succeeds();
}

#[test]
fn doctor_reports_and_accepts_a_clock_behind_the_last_event() {
    let fixture = Fixture::new();
    import_tomorrow(&fixture);
    let serving = Serving::start(&fixture, &[]);
    let run = fixture.bare(&["doctor", "--connect", serving.connection(), "--json"]).succeeds();
    assert_eq!(state(&run, "clock"), "look");
    let text = fixture.bare(&["doctor", "--connect", serving.address()]).succeeds().text();
    assert!(text.contains("ahead of the server's clock"), "{text}");
    assert!(text.contains("doctor --accept-clock"), "{text}");
    let locked = fixture.run(&["doctor", "--accept-clock"]);
    locked.fails(5, &["in use by another process"]);
    let (code, _, log) = serving.stop(Signal::INT);
    assert_eq!(code, Some(0));
    assert_eq!(log.matches("last event is ahead of this machine's clock").count(), 1, "{log}");

    let accepted = fixture.run(&["doctor", "--accept-clock", "--json"]).succeeds().json();
    assert_eq!((&accepted["outcome"], &accepted["new_epoch"]), (&"new_epoch".into(), &2.into()));
    let again = fixture.run(&["doctor", "--accept-clock"]).succeeds().text();
    assert!(again.contains("nothing was changed"), "{again}");
    let serving = Serving::start(&fixture, &[]);
    let run = fixture.bare(&["doctor", "--connect", serving.connection(), "--json"]).succeeds();
    assert_eq!(state(&run, "clock"), "ok");
    let text = fixture.bare(&["doctor", "--connect", serving.address()]).succeeds().text();
    assert!(text.contains("epoch 2, since 20"), "{text}");
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

#[test]
fn doctor_accepts_the_clock_only_of_an_event_store() {
    let fixture = Fixture::new();
    fixture.run(&["doctor", "--accept-clock"]).fails(2, &["there is no event store in"]);
    fixture.bare(&["doctor", "--accept-clock"]).fails(2, &["--db"]);
    let both = ["doctor", "--accept-clock", "--connect", "http://127.0.0.1:2113"];
    fixture.run(&both).fails(2, &["--connect"]);
}

/// Story: a damaged file of the existence filter was rebuilt without a log line, and doctor said
/// nothing.
#[test]
fn rebuilt_existence_filter_is_reported() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], &events(60)).succeeds();
    let filter = file_of(&fixture.store().join("existence"), "filter");
    let mut bytes = fs::read(&filter).unwrap();
    // The lines begin after the header of 4,096 bytes.
    bytes[4096..4096 + 512].fill(0);
    fs::write(&filter, bytes).unwrap();
    let mut serving = Serving::start(&fixture, &[]);
    serving.next_note("files of the existence filter were damaged");
    let text = fixture.bare(&["doctor", "--connect", serving.address()]).text();
    let line = text.lines().find(|line| line.starts_with("look  filter ")).expect(&text);
    assert!(line.contains("rebuilt since the server started: check the disk"), "{line}");
    serving.stop(Signal::INT);
}

/// Story: the streams of a damaged journal of the existence filter were read again without a log
/// line, and doctor said nothing.
#[test]
fn damaged_journal_of_the_existence_filter_is_reported() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], &events(60)).succeeds();
    let journal = file_of(&fixture.store().join("existence"), "journal");
    let mut bytes = fs::read(&journal).unwrap();
    bytes[..8].fill(0);
    fs::write(&journal, bytes).unwrap();
    let mut serving = Serving::start(&fixture, &[]);
    serving.next_note("journals of the existence filter were damaged");
    let text = fixture.bare(&["doctor", "--connect", serving.address()]).text();
    let line = text.lines().find(|line| line.starts_with("look  filter ")).expect(&text);
    assert!(line.contains("1 damaged journal at the start"), "{line}");
    serving.stop(Signal::INT);
}
