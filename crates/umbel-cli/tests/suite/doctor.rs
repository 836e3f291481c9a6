//! `umbel doctor`, and following and importing where one is asked who one is, and encryption.

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

use super::harness::{Ground, Run};
use super::serve::Serving;

const EVENTS: &str = r#"{"stream":"cart-1","type":"Opened","data":{"n":1}}
{"stream":"cart-1","type":"Closed","data":{"n":2}}
"#;
const PASSWORDS: [(&str, &str); 2] =
    [("UMBEL_ADMIN_PASSWORD", "a:pass@word/1"), ("UMBEL_OPS_PASSWORD", "another one")];
/// The first of them in a connection string.
const ADMIN: &str = "admin:a%3Apass%40word%2F1";

/// Files of an authority, and of a certificate for `localhost` by it.
struct Certificates {
    authority: PathBuf,
    flags: [String; 4],
}

fn certificates(ground: &Ground, until: i32) -> Certificates {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.not_after = date_time_ymd(until, 1, 1);
    let files = ["authority.pem", "node.pem", "node.key"].map(|name| ground.path(name));
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

/// A server that encrypts and asks users who they are, and the file of who signed for it.
fn secure(ground: &Ground, until: i32) -> (Serving, String) {
    let Certificates { authority, flags } = certificates(ground, until);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    (Serving::with(ground, &flags, &PASSWORDS), authority.to_str().unwrap().to_string())
}

/// What was found, and how it is.
fn states(run: &Run) -> Vec<(String, String)> {
    let said: Value = run.json();
    let findings = said["findings"].as_array().unwrap();
    let of = |finding: &Value, name: &str| finding[name].as_str().unwrap().to_string();
    findings.iter().map(|finding| (of(finding, "what"), of(finding, "state"))).collect()
}

fn state(run: &Run, what: &str) -> String {
    let states = states(run);
    let found = states.iter().find(|(name, _)| name == what);
    found.unwrap_or_else(|| panic!("no {what} in {states:?}")).1.clone()
}

#[test]
fn a_server_in_clear_is_fine_but_for_that() {
    let ground = Ground::new();
    ground.feed(&["append"], EVENTS.as_bytes()).succeeds();
    let serving = Serving::start(&ground, &[]);
    let run = ground.bare(&["doctor", "--connect", serving.connection(), "--json", "--write"]);
    let run = run.succeeds();
    let states = states(&run);
    let names: Vec<&str> = states.iter().map(|(name, _)| name.as_str()).collect();
    let wanted = "reached encryption live ready version advertised methods user answers store \
                  filter write";
    assert_eq!(names.join(" "), wanted);
    for (name, state) in &states {
        assert_eq!(state, if name == "encryption" { "look" } else { "ok" }, "{name}");
    }
    let text = ground.bare(&["doctor", "--connect", serving.address()]).succeeds().text();
    assert!(text.contains("ok    ready") && text.contains("it asks nobody who he is"), "{text}");
    assert!(!text.contains("umbel-doctor"), "nothing is written where nobody asks for it");
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
    // What it wrote is gone, and nothing else.
    let left = ground.run(&["streams"]).succeeds().text();
    assert_eq!(left, "cart-1\t0 to 1\numbel-doctor\tdeleted\n");
}

#[test]
fn users_and_certificates_are_looked_at() {
    let ground = Ground::new();
    let (serving, authority) = secure(&ground, 4000);
    let port = serving.connection().rsplit(':').next().unwrap().to_string();
    let doctor = |who: &str, rest: &str| {
        let connect = format!("kurrentdb://{who}localhost:{port}?{rest}");
        ground.bare(&["doctor", "--connect", &connect, "--json", "--write"])
    };
    let believed = format!("tlsCaFile={authority}");
    let run = doctor(&format!("{ADMIN}@"), &believed).succeeds();
    assert!(states(&run).iter().all(|(_, state)| state == "ok"), "{:?}", states(&run));
    // Nobody may do little, and is told so; who may write is not asked before he did.
    let run = doctor("", &believed).fails(4, &["1 of 12 things are wrong"]);
    assert_eq!((state(&run, "user"), state(&run, "store")), ("ok".into(), "skip".into()));
    assert_eq!(state(&run, "write"), "wrong");
    let run = doctor("admin:guessed@", &believed).fails(4, &["things are wrong"]);
    assert_eq!(state(&run, "user"), "wrong");
    let run = doctor(&format!("{ADMIN}@"), "tlsVerifyCert=false").succeeds();
    assert_eq!(state(&run, "encryption"), "look");
    let run = doctor("", "").fails(4, &["1 of 1 things are wrong"]);
    assert!(run.text().contains("tlsCaFile=FILE"), "{}", run.text());
    let run = doctor("", "tls=false").fails(4, &["wrong"]);
    // Story: it was called reached and not encrypted, and then the pipe was broken.
    assert!(run.text().contains("the port speaks TLS"), "{}", run.text());
    assert_eq!(states(&run).len(), 2, "what did not answer is asked nothing more");
    assert_eq!(state(&run, "encryption"), "wrong");
    doctor("", "tlsCaFile=/nowhere.pem").fails(2, &["/nowhere.pem", "no certificates"]);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
    let nobody = ["doctor", "--connect", "http://127.0.0.1:1"];
    let run = ground.bare(&nobody).fails(4, &["1 of 1 things are wrong with the server at"]);
    assert!(run.text().contains("could not reach"), "{}", run.text());
    ground.bare(&["doctor", "--connect", "a,b:1"]).fails(2, &["--connect is a,b:1"]);
}

/// A port that answers each connection with these bytes and keeps it.
fn stranger(says: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answers = move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.write_all(says).unwrap();
            kept.push(stream);
        }
    };
    umbel_env::Env::system().threads.spawn("stranger", Box::new(answers)).unwrap();
    address
}

/// A port that accepted connections and said nothing held `doctor` and `subscribe` up for ever, and
/// of what spoke another protocol `doctor` said nine times that it did not answer.
#[test]
fn what_is_no_server_is_told_once_and_soon() {
    let ground = Ground::new();
    let silent = stranger(b"");
    let follow = ["subscribe", "--connect", &silent, "--all"];
    let followed = thread::scope(|scope| {
        let following = scope.spawn(|| ground.bare(&follow));
        for address in
            [&silent, &stranger(b"SSH-2.0-none\r\n"), &stranger(b"HTTP/1.1 400 No\r\n\r\n")]
        {
            let run = ground.bare(&["doctor", "--connect", address]);
            let run = run.fails(4, &["1 of 3 things are wrong with the server at"]);
            let said = run.text();
            assert!(said.contains("may be no server of this kind"), "{said}");
            assert!(!said.contains("tls=false"), "it does not speak TLS: {said}");
            assert!(!said.contains("//health"), "{said}");
        }
        following.join().unwrap()
    });
    followed.fails(4, &["umbel: "]);
}

#[test]
fn a_server_that_encrypts_is_followed_and_imported() {
    let source = Ground::new();
    source.feed(&["append"], EVENTS.as_bytes()).succeeds();
    let wanted = source.run(&["read", "--stream", "cart-1"]).succeeds().text();
    let (serving, authority) = secure(&source, 4000);
    let port = serving.connection().rsplit(':').next().unwrap().to_string();
    let place = format!("localhost:{port}?tlsCaFile={authority}");
    let connect = format!("esdb://{ADMIN}@{place}");
    let follow = ["subscribe", "--connect", &connect, "--stream", "cart-1", "--until-caught-up"];
    assert_eq!(source.bare(&follow).succeeds().text(), wanted);
    let target = Ground::new();
    let said = target.run(&["import-events", "--from", &connect]).succeeds().text();
    assert!(said.starts_with("2 events imported;"), "users are the server's own: {said}");
    let imported = target.run(&["read", "--stream", "cart-1"]).succeeds().text();
    let ids = |text: &str| -> Vec<Value> {
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| line["id"].clone()).collect()
    };
    assert_eq!(ids(&imported), ids(&wanted));
    // Not as nobody, nor with a guess.
    let nobody = format!("esdb://{place}");
    let other = Ground::new();
    other.run(&["import-events", "--from", &nobody]).fails(2, &["the server says"]);
    assert!(!other.store().exists(), "no store is made for who may not read");
    let guess = ["subscribe", "--all", "--connect", &format!("esdb://ops:x@{place}")];
    source.bare(&guess).fails(2, &["the server says"]);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}
