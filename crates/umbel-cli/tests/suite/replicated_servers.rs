//! `umbel serve --store URL`: nodes of a replicated log, `umbel promote`, and the refusals of wrong
//! configurations. The object store is a directory.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;
use tonic::{Code, Request, Status};
use umbel_proto::read_options::of_all;
use umbel_proto::streams::ReadReq;
use umbel_proto::streams::read_req::AllOption;
use umbel_proto::v2::streams::{AppendRequest, AppendSessionResponse, SERVICE};
use umbel_testing::server_connection::Connection;

use super::serve::{Serving, get_page, post};
use super::test_binary::{Fixture, numbered_events, wait_until};

/// An object store with a replicated log.
struct Log {
    fixture: Fixture,
    url: String,
    id: String,
}

impl Log {
    fn new() -> Log {
        let fixture = Fixture::new();
        let directory = fixture.path("objects");
        fs::create_dir(&directory).unwrap();
        let url = format!("file://{}", directory.display());
        let log = fixture.bare(&["store", "init", &url, "--json"]).succeeds().json();
        let id = log["log"].as_str().unwrap().to_string();
        Log { fixture, url, id }
    }

    /// Flags of a node.
    fn flags<'a>(&'a self, node: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let flags = ["--durability", "synced", "--store", &self.url, "--node", node];
        flags.into_iter().chain(more.iter().copied()).collect()
    }

    /// Starts a node whose directory is that of the fixture.
    fn start(&self, fixture: &Fixture, node: &str, more: &[&str]) -> Serving {
        Serving::start(fixture, &self.flags(node, more))
    }

    /// Starts a node with an empty directory that only follows.
    fn follow(&self, fixture: &Fixture, node: &str) -> Serving {
        self.start(fixture, node, &["--join", &self.id, "--read-only-replica"])
    }

    /// Asserts that a node does not start, with these parts in the error.
    fn refuses(&self, fixture: &Fixture, flags: &[&str], parts: &[&str]) {
        let serve = ["serve", "--insecure", "--listen", "127.0.0.1:0"];
        fixture.run(&[&serve[..], flags].concat()).fails(2, parts);
    }
}

fn append(serving: &Serving, fixture: &Fixture, numbers: std::ops::Range<u64>) {
    let connect = ["append", "--connect", serving.connection()];
    fixture.feed(&connect, numbered_events(numbers).as_bytes()).succeeds();
}

/// All events that a client of the server reads.
fn read_all(serving: &Serving, fixture: &Fixture) -> String {
    let all = ["subscribe", "--all", "--until-caught-up", "--connect", serving.connection()];
    fixture.bare(&all).succeeds().text()
}

fn counted(events: &str) -> usize {
    events.lines().filter(|line| line.contains("Counted")).count()
}

/// The member of the page `/stats` about the node.
fn replication(serving: &Serving) -> Value {
    let (_, body) = get_page(serving.address(), "/stats");
    serde_json::from_str::<Value>(&body).unwrap()["replication"].clone()
}

/// The states of the nodes on the page `/gossip`.
fn gossip_states(serving: &Serving) -> Vec<String> {
    let (_, body) = get_page(serving.address(), "/gossip");
    let gossip: Value = serde_json::from_str(&body).unwrap();
    let members = gossip["members"].as_array().unwrap();
    members.iter().map(|member| member["state"].as_str().unwrap().to_string()).collect()
}

fn promote(serving: &Serving, fixture: &Fixture) -> String {
    fixture.bare(&["promote", "--connect", serving.connection()]).succeeds().text()
}

#[test]
fn acknowledged_events_survive_a_killed_leader_and_a_promotion() {
    let log = Log::new();
    let (of_a, of_b) = (Fixture::new(), Fixture::new());
    let leader = log.start(&of_a, "a", &[]);
    append(&leader, &of_a, 0..30);
    let follower = log.follow(&of_b, "b");
    assert_eq!(read_all(&follower, &of_b), read_all(&leader, &of_a), "b starts with all slots");
    append(&leader, &of_a, 30..40);
    let before = read_all(&leader, &of_a);
    assert_eq!(counted(&before), 40);
    wait_until("b follows", || read_all(&follower, &of_b) == before);
    assert_eq!(gossip_states(&leader), ["Leader"]);
    assert_eq!(gossip_states(&follower), ["ReadOnlyReplica", "Leader"]);

    let connect = ["append", "--connect", follower.connection()];
    let refused = of_b.feed(&connect, numbered_events(40..41).as_bytes());
    let place = format!("accepts no writes; the leader is at {}", leader.address());
    assert!(refused.code == 2 && refused.stderr.contains(&place), "{refused:?}");
    assert_eq!(leader.stop(Signal::KILL).0, None);

    let status = replication(&follower);
    assert_eq!((status["role"].as_str(), status["epoch"].as_u64()), (Some("follower"), Some(1)));
    let promoted = promote(&follower, &of_b);
    assert_eq!(promoted, format!("{} leads in epoch 2\n", follower.address()));
    assert_eq!(promote(&follower, &of_b), promoted, "it leads already");
    assert_eq!(read_all(&follower, &of_b), before);
    append(&follower, &of_b, 40..50);
    let after = read_all(&follower, &of_b);
    assert_eq!(counted(&after), 50);

    // The earlier leader follows, and its directory needs no `--join`.
    let mut earlier = log.start(&of_a, "a", &[]);
    let note = earlier.next_note("this node follows");
    assert!(note.contains("`umbel promote`"), "{note}");
    assert_eq!(read_all(&earlier, &of_a), after);
    assert_eq!(gossip_states(&earlier), ["Follower", "Leader"]);
    append(&follower, &of_b, 50..55);
    let last = read_all(&follower, &of_b);
    wait_until("a follows", || read_all(&earlier, &of_a) == last);
    for serving in [earlier, follower] {
        let (code, _, notes) = serving.stop(Signal::TERM);
        assert_eq!(code, Some(0), "{notes}");
    }
}

#[test]
fn leader_that_is_replaced_follows_and_loses_no_acknowledged_event() {
    let log = Log::new();
    let (of_a, of_b) = (Fixture::new(), Fixture::new());
    let mut leader = log.start(&of_a, "a", &[]);
    let follower = log.follow(&of_b, "b");
    append(&leader, &of_a, 0..20);
    let before = read_all(&leader, &of_a);
    wait_until("b follows", || read_all(&follower, &of_b) == before);
    promote(&follower, &of_b);
    // The process opens its store again, and serves under the same address.
    let note = leader.next_note("this node leads no more");
    assert!(note.contains("another node took over"), "{note}");
    leader.next_note("this node follows");
    assert_eq!(read_all(&follower, &of_b), before);
    append(&follower, &of_b, 20..25);
    let after = read_all(&follower, &of_b);
    wait_until("a follows", || read_all(&leader, &of_a) == after);
    assert_eq!(gossip_states(&leader), ["Follower", "Leader"]);
    // A signal after the restart within the process ends it.
    assert_eq!(leader.stop(Signal::TERM).0, Some(0));
    assert_eq!(follower.stop(Signal::TERM).0, Some(0));
}

/// Two failovers: after a kill, and after the end of a leader that gave up its epoch.
#[test]
fn follower_takes_over_without_an_operator() {
    let log = Log::new();
    let (of_a, of_b) = (Fixture::new(), Fixture::new());
    let leader = log.start(&of_a, "a", &[]);
    append(&leader, &of_a, 0..10);
    let before = read_all(&leader, &of_a);
    let follower = log.start(&of_b, "b", &["--join", &log.id]);
    assert_eq!(read_all(&follower, &of_b), before);
    assert_eq!(leader.stop(Signal::KILL).0, None);
    wait_until("b leads", || replication(&follower)["role"] == "leader");
    assert_eq!(replication(&follower)["epoch"], 2);
    append(&follower, &of_b, 10..15);
    let after = read_all(&follower, &of_b);
    assert!(after.starts_with(&before) && counted(&after) == 15, "{after}");
    let earlier = log.start(&of_a, "a", &[]);
    assert_eq!(replication(&earlier)["role"], "follower");
    let (code, _, notes) = follower.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{notes}");
    wait_until("a leads", || replication(&earlier)["role"] == "leader");
    assert_eq!(read_all(&earlier, &of_a), after);
    append(&earlier, &of_a, 15..16);
    assert_eq!(earlier.stop(Signal::TERM).0, Some(0));
}

#[test]
fn leader_that_restarts_leads_again() {
    let log = Log::new();
    let fixture = Fixture::new();
    let mut before = String::new();
    for round in 0..3 {
        let leader = log.start(&fixture, "a", &[]);
        assert_eq!(replication(&leader)["role"], "leader");
        assert_eq!(replication(&leader)["epoch"], round + 1);
        assert_eq!(read_all(&leader, &fixture), before);
        append(&leader, &fixture, round * 10..round * 10 + 10);
        before = read_all(&leader, &fixture);
        // A kill leaves the log as it is; a stop writes what no slot has.
        let signal = if round == 1 { Signal::KILL } else { Signal::TERM };
        leader.stop(signal);
    }
    assert_eq!(counted(&before), 30);
}

#[test]
fn operators_see_the_state_of_a_node() {
    let log = Log::new();
    let (of_a, of_b) = (Fixture::new(), Fixture::new());
    let leader = log.start(&of_a, "a", &[]);
    let follower = log.follow(&of_b, "b");
    let findings = of_a.bare(&["doctor", "--connect", leader.connection()]).succeeds().text();
    let found = findings.lines().find(|line| line.starts_with("ok    replication"));
    assert!(found.is_some_and(|line| line.contains("node a is leader")), "{findings}");
    let (_, metrics) = get_page(leader.address(), "/metrics");
    for line in ["umbel_replication_leader 1.0", "umbel_replication_epoch 1.0"] {
        assert!(metrics.lines().any(|it| it == line), "{line} is not in {metrics}");
    }
    let (_, metrics) = get_page(follower.address(), "/metrics");
    for line in ["umbel_replication_leader 0.0", "umbel_replication_lag_slots 0.0"] {
        assert!(metrics.lines().any(|it| it == line), "{line} is not in {metrics}");
    }
    let of_follower = replication(&follower);
    assert_eq!(of_follower["log"], log.id);
    assert_eq!((&of_follower["node"], &of_follower["isReadOnly"]), (&"b".into(), &true.into()));
    assert_eq!(of_follower["leader"]["node"], "a");
    let alone = Fixture::new();
    let single = Serving::start(&alone, &[]);
    assert!(replication(&single).is_null());
    let refused = alone.bare(&["promote", "--connect", single.connection()]);
    refused.fails(2, &["only a node of a replicated log can be promoted"]);
    for serving in [single, follower, leader] {
        assert_eq!(serving.stop(Signal::TERM).0, Some(0));
    }
}

/// Asserts that a status sends clients of KurrentDB to this server.
fn assert_sends_to(refused: &Status, leader: &Serving) {
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, "Leader info available"));
    let trailer = |name: &str| refused.metadata().get(name).unwrap().to_str().unwrap();
    assert_eq!(trailer("exception"), "not-leader");
    let place = format!("{}:{}", trailer("leader-endpoint-host"), trailer("leader-endpoint-port"));
    assert_eq!(place, leader.address());
}

#[test]
fn follower_sends_clients_to_the_leader() {
    let log = Log::new();
    let (of_a, of_b) = (Fixture::new(), Fixture::new());
    let leader = log.start(&of_a, "a", &[]);
    append(&leader, &of_a, 0..3);
    let follower = log.follow(&of_b, "b");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Connection::to(follower.address().parse().unwrap()).await.unwrap();
        let read = || Request::new(ReadReq { options: Some(of_all(AllOption::Start(()))) });
        let mut events = client.open(read()).await.unwrap();
        assert!(events.message().await.unwrap().is_some(), "reads are served");
        let mut required = read();
        required.metadata_mut().insert("requires-leader", "true".parse().unwrap());
        assert_sends_to(&client.open(required).await.unwrap_err(), &leader);
        assert_sends_to(&client.append_parts(Vec::new()).await.unwrap_err(), &leader);
        let none = futures_util::stream::empty();
        assert_sends_to(&client.batches(none).await.unwrap_err(), &leader);
        let none = futures_util::stream::empty::<AppendRequest>();
        let session = client
            .client_streaming::<_, AppendSessionResponse, _>(SERVICE, "AppendSession", none)
            .await;
        let refused = session.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains(leader.address()), "{refused:?}");
    });
    let event = r#"{"stream":"s","type":"t","data":"{}"}"#;
    let answer = post(follower.address(), "console/api/append", event);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("leaderPort"), "{answer}");
    let answer = post(leader.address(), "console/api/append", event);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    for serving in [follower, leader] {
        assert_eq!(serving.stop(Signal::TERM).0, Some(0));
    }
}

/// A follower has the users of the log, and creates none.
#[test]
fn promotion_requires_an_operator_of_the_log() {
    let log = Log::new();
    let (of_a, of_b) = (Fixture::new(), Fixture::new());
    let passwords = [("UMBEL_ADMIN_PASSWORD", "first"), ("UMBEL_OPS_PASSWORD", "second")];
    let flags = [&["--disable-tls"][..], &log.flags("a", &[])[..]].concat();
    let leader = Serving::with(&of_a, &flags, &passwords);
    let join = ["--join", &log.id, "--read-only-replica"];
    let flags = [&["--disable-tls"][..], &log.flags("b", &join)[..]].concat();
    let follower = Serving::with(&of_b, &flags, &[]);
    assert_eq!(leader.stop(Signal::KILL).0, None);
    let promote = |user: &str| {
        let address = format!("kurrentdb://{user}{}?tls=false", follower.address());
        of_b.bare(&["promote", "--connect", &address])
    };
    promote("").fails(2, &["authentication required"]);
    promote("ops:guessed@").fails(2, &["wrong"]);
    let text = promote("ops:second@").succeeds().text();
    assert_eq!(text, format!("{} leads in epoch 2\n", follower.address()));
    let (code, _, notes) = follower.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{notes}");
    assert!(!notes.contains("password of"), "it creates no users: {notes}");
}

#[test]
fn options_that_contradict_a_replicated_log_are_refused() {
    let log = Log::new();
    let fixture = Fixture::new();
    let objects = format!("file://{}", log.fixture.path("objects").display());
    let dir = fixture.path("backup");
    let dir = dir.to_str().unwrap();
    let cases: [(&[&str], &str); 7] = [
        (&["--durability", "buffered"], "an append once it is on disk and in a slot"),
        (&["--mem-db"], "must outlive its process"),
        (&["--kv"], "keys and values are not replicated"),
        (&["--backup-dir", dir], "cannot be backed up yet"),
        (&["--backup-to", &objects], "cannot be backed up yet"),
        (&["--scavenge-schedule", "0 3 * * *"], "cannot be scavenged yet"),
        (&["--accept-clock"], "cannot begin a clock epoch yet"),
    ];
    let node = ["--store", &log.url, "--node", "a"];
    for (flags, part) in cases {
        let flags = [&node[..], flags].concat();
        log.refuses(&fixture, &flags, &[part, "contradicts --store", "; remove "]);
    }
    log.refuses(&fixture, &["--store", &log.url], &["needs a name", "--node NAME"]);
    log.refuses(&fixture, &["--node", "a"], &["--node has no effect", "--store URL"]);
    log.refuses(&fixture, &["--join", &log.id], &["--join has no effect", "--store URL"]);
    // Story: without its --store, a replica was a server that accepts writes.
    let parts = ["--read-only-replica has no effect", "--store URL"];
    log.refuses(&fixture, &["--read-only-replica"], &parts);
    log.refuses(&fixture, &["--store", &log.url, "--node", "a/b"], &["must have 1 to 64 letters"]);
    let listen = ["serve", "--insecure", "--listen", "0.0.0.0:0", "--store", &log.url];
    let run = fixture.run(&[&listen[..], &["--node", "a"]].concat());
    run.fails(2, &["--listen is no address", "--advertise HOST:PORT"]);
    assert!(!fixture.store().exists());
}

#[test]
fn object_stores_of_no_log_or_another_one_are_refused() {
    let (log, other) = (Log::new(), Log::new());
    let fixture = Fixture::new();
    let empty = fixture.path("empty");
    fs::create_dir(&empty).unwrap();
    let empty = format!("file://{}", empty.display());
    let init = format!("umbel store init {empty}");
    log.refuses(&fixture, &["--store", &empty, "--node", "a"], &["lacks the object STORE", &init]);
    // Story: the advice was to create a log, which `init` refused.
    fs::write(fixture.path("empty/notes.txt"), "an object").unwrap();
    let parts = ["lacks the object STORE, and has notes.txt", "restore STORE"];
    log.refuses(&fixture, &["--store", &empty, "--node", "a"], &parts);
    let flags = log.flags("a", &["--join", &other.id]);
    log.refuses(&fixture, &flags, &[&log.id, "--join names", &other.id]);
    assert!(!fixture.store().exists());
    let leader = log.start(&fixture, "a", &[]);
    append(&leader, &fixture, 0..3);
    assert_eq!(leader.stop(Signal::TERM).0, Some(0));
    // The directory belongs to the first log.
    let flags = other.flags("a", &[]);
    log.refuses(&fixture, &flags, &["belongs to another replicated log"]);
    // An empty directory joins a log with events only on request.
    let new = Fixture::new();
    let join = format!("add --join {}", log.id);
    log.refuses(&new, &log.flags("b", &[]), &["has no event store", &join]);
    assert!(!new.store().exists());
    let follower = log.follow(&new, "b");
    assert_eq!(counted(&read_all(&follower, &new)), 3);
    assert_eq!(follower.stop(Signal::TERM).0, Some(0));
}

#[test]
fn directories_of_other_nodes_and_stores_are_refused() {
    let log = Log::new();
    let (of_a, of_b) = (Fixture::new(), Fixture::new());
    let leader = log.start(&of_a, "a", &[]);
    append(&leader, &of_a, 0..3);
    let parts = ["the node name a belongs to another directory", "under a name that no node"];
    log.refuses(&of_b, &log.flags("a", &["--join", &log.id]), &parts);
    assert!(!of_b.store().exists());
    let follower = log.follow(&of_b, "b");
    assert_eq!(follower.stop(Signal::TERM).0, Some(0));
    log.refuses(&of_b, &log.flags("a", &[]), &parts);
    assert_eq!(leader.stop(Signal::TERM).0, Some(0));
    // A directory with events of its own.
    let single = Fixture::new();
    single.feed(&["append"], numbered_events(0..2).as_bytes()).succeeds();
    let flags = log.flags("c", &["--join", &log.id]);
    log.refuses(&single, &flags, &["holds an event store that is no replica"]);
    // A node's directory is not one of a single node.
    log.refuses(&of_a, &[], &["is a replica of a replicated event log"]);
    let run = of_a.feed(&["append"], numbered_events(0..1).as_bytes());
    run.fails(2, &["is a replica of a replicated event log"]);
}
