//! Tests of the stored settings of consumer groups, against a model and against other writers.

use std::collections::BTreeSet;

use umbel_events::metadata_stream;
use umbel_proto::persistent::{CreateOptions, GroupOrigin, Settings};
use umbel_proto::streams::read_req::{Expression, Filter, StreamOptions};
use umbel_sim::Random;

use super::*;
use crate::protocol::proto_convert;
use crate::test_support::test_service::TestService;

fn key(number: usize) -> GroupKey {
    GroupKey { stream: Some(format!("cart-{number}")), group: "group".to_string() }
}

fn config(key: &GroupKey, retries: i32) -> GroupConfig {
    let stream = key.stream.as_deref().expect("a group of a stream");
    let options = CreateOptions {
        stream_identifier: None,
        group_name: key.group.clone(),
        settings: Some(Settings {
            max_retry_count: retries,
            read_batch_size: 20,
            history_buffer_size: 500,
            consumer_strategy: "RoundRobin".to_string(),
            ..Settings::default()
        }),
        stream_option: Some(GroupOrigin::Stream(StreamOptions {
            stream_identifier: Some(proto_convert::stream_identifier(stream)),
            revision_option: None,
        })),
    };
    GroupConfig::from_request(Some(options)).unwrap().1
}

/// The groups as they are stored, and the groups that a server has in memory.
struct Server<'a> {
    store: &'a Store,
    configs: Arc<GroupConfigs>,
    log: ConfigLog,
}

impl Server<'_> {
    fn start(store: &Store) -> Server<'_> {
        let (configs, log) = read_configs(store).unwrap();
        Server { store, configs: Arc::new(configs), log }
    }

    fn change(&mut self, key: &GroupKey, config: Option<GroupConfig>) -> Result<(), Error> {
        let change = (key.clone(), config);
        self.log = write_change(self.store, &mut self.configs, &self.log, change, 7)?;
        Ok(())
    }

    fn put(&mut self, number: usize, retries: i32) {
        let key = key(number);
        self.change(&key, Some(config(&key, retries))).unwrap();
    }

    /// Asserts that a server that starts now has these groups and would continue as this one.
    fn assert_stored(&self, what: &str) {
        let (stored, log) = read_configs(self.store).unwrap();
        assert_eq!(as_json(&stored), as_json(&self.configs), "{what}");
        assert_eq!(log.groups_bytes, self.log.groups_bytes, "{what}");
    }
}

fn as_json(configs: &GroupConfigs) -> Vec<String> {
    configs.iter().map(|(key, config)| config.to_json(key).to_string()).collect()
}

fn put_event(store: &Store, stream: &str, kind: &str, data: &str) {
    let event = NewEvent::json(store.new_id().unwrap(), kind, data.as_bytes());
    store.append(stream, ExpectedVersion::Any, &[event]).unwrap();
}

fn set_metadata(store: &Store, metadata: &str) {
    put_event(store, &metadata_stream(CONFIG), "$metadata", metadata);
}

/// The readable events of the stream, oldest first: their types and bytes.
fn events(store: &Store) -> Vec<(String, usize)> {
    let read = store.read(CONFIG, Revision(0), Direction::Forwards);
    read.map(|event| event.map(|event| (event.kind, event.data.len())).unwrap()).collect()
}

fn count(store: &Store, kind: &str) -> usize {
    events(store).iter().filter(|(found, _)| found == kind).count()
}

/// The groups that a version without changes finds.
fn newest_list(store: &Store) -> GroupConfigs {
    let list = system_stream::newest_valid(store, CONFIG, None, |event| Ok(parse_list(event)));
    list.unwrap().expect("a list among the last events")
}

/// Story: each change wrote the list of all groups, so that 1,000 creations took 221 MB of log.
#[test]
fn changes_take_bytes_in_proportion_to_the_groups() {
    let fixture = TestService::new();
    let mut server = Server::start(&fixture.store);
    let (mut written, groups) = (0, 1500);
    for number in 0..groups {
        server.put(number, 0);
        let newest = fixture.store.read(CONFIG, Revision::END, Direction::Backwards).next();
        written += newest.unwrap().unwrap().data.len();
    }
    server.assert_stored("created");
    let list = server.log.groups_bytes;
    assert!(written < 5 * list, "{written} bytes were written for groups of {list} bytes");
    // Only the last two lists and their changes stay.
    assert_eq!(count(&fixture.store, LIST_TYPE), 2);
    assert!(events(&fixture.store).len() as u64 <= 2 * (CHANGES_MAX + 1));
}

#[test]
fn a_version_without_changes_finds_a_list_among_the_last_events() {
    let fixture = TestService::new();
    let mut server = Server::start(&fixture.store);
    for number in 0..3200 {
        server.put(number, 0);
        if number % 100 == 99 {
            assert!(newest_list(&fixture.store).len() + 1000 > number, "{number}");
        }
    }
    assert!(newest_list(&fixture.store).len() < 3200, "a crash leaves changes after the list");
    server.log = write_list(&fixture.store, &server.configs, &server.log, 8).unwrap();
    assert_eq!(newest_list(&fixture.store).len(), 3200, "a stop of the server does not");
    let before = events(&fixture.store).len();
    server.log = write_list(&fixture.store, &server.configs, &server.log, 9).unwrap();
    assert_eq!(events(&fixture.store).len(), before, "a list without changes is not repeated");
    server.put(0, 5);
    server.assert_stored("changed after the list");
}

/// Random changes of groups, restarts, junk, truncations, deletions and tombstones, against a map
/// of the groups.
#[test]
fn stored_groups_agree_with_a_model() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let fixture = TestService::new();
        let store = &fixture.store;
        let mut server = Server::start(store);
        let mut model = BTreeMap::new();
        for step in 0..120 {
            let number = random.below(12) as usize;
            let retries = random.below(90) as i32;
            match random.below(16) {
                0..=8 => {
                    server.put(number, retries);
                    model.insert(key(number), retries);
                }
                9..=11 => {
                    server.change(&key(number), None).unwrap();
                    model.remove(&key(number));
                }
                12 => {
                    let log = write_list(store, &server.configs, &server.log, 1).unwrap();
                    server.log = log;
                }
                13 | 14 => {
                    // A small `$maxCount` hides the list after more junk.
                    add_junk(store, &mut random);
                    server.assert_stored(&format!("seed {seed}, step {step}, after junk"));
                    if random.below(2) == 0 {
                        server = Server::start(store);
                    }
                    server.put(number, retries);
                    model.insert(key(number), retries);
                }
                // What is hidden is lost to a server that starts now. The next change of the
                // running server stores all groups again.
                _ => {
                    hide(store, &mut random);
                    server.put(number, retries);
                    model.insert(key(number), retries);
                }
            }
            if random.below(3) == 0 {
                server = Server::start(store);
            }
            let groups = model.iter().map(|(key, retries)| (key.clone(), config(key, *retries)));
            let groups: GroupConfigs = groups.collect();
            let what = format!("seed {seed}, step {step}");
            assert_eq!(as_json(&server.configs), as_json(&groups), "{what}");
            server.assert_stored(&what);
        }
    }
}

fn add_junk(store: &Store, random: &mut Random) {
    let (stream, _) = system_stream::find(store, CONFIG).unwrap();
    let junk = [
        ("Other", "[junk"),
        (LIST_TYPE, r#"{"entries":[{"stream":"a"}]}"#),
        (CHANGE_TYPE, r#"{"entry":{},"deleted":{}}"#),
        (CHANGE_TYPE, r#"{"deleted":{"stream":"cart-1"}}"#),
    ];
    for _ in 0..=random.below(3) {
        let (kind, data) = junk[random.below(4) as usize];
        put_event(store, &stream, kind, data);
    }
}

/// Hides events of the stream, as another writer might.
fn hide(store: &Store, random: &mut Random) {
    let (stream, state) = system_stream::find(store, CONFIG).unwrap();
    // Metadata that hides events which do not exist yet would hide each new list, too.
    let Some(last) = system_stream::last_revision(state) else { return };
    match random.below(10) {
        0 => drop(store.delete(&stream, ExpectedVersion::Any).map(|_| ())),
        1 if system_stream::names(CONFIG).nth(7).as_ref() != Some(&stream) => {
            store.tombstone(&stream, ExpectedVersion::Any).unwrap();
        }
        2..=5 => {
            let first = last.saturating_sub(random.below(5)) + 1;
            let metadata = format!(r#"{{"$tb":{first}}}"#);
            put_event(store, &metadata_stream(&stream), "$metadata", &metadata);
        }
        _ => {
            let count = random.below(7) + 4;
            let metadata = format!(r#"{{"$tb":{},"$maxCount":{count}}}"#, last / 2);
            put_event(store, &metadata_stream(&stream), "$metadata", &metadata);
        }
    }
}

/// A retention that would hide the list after some changes, or at some time.
#[test]
fn retention_of_the_stream_hides_no_group() {
    for (metadata, wanted) in [
        (r#"{"$maxCount":1}"#, 0),
        (r#"{"$maxCount":1003}"#, 8),
        (r#"{"$maxCount":1100}"#, 12),
        (r#"{"$maxAge":3600}"#, 0),
        (r#"{"$maxCount":9000,"$maxAge":3600}"#, 0),
        (r#"{"color":"red"}"#, 12),
    ] {
        let fixture = TestService::new();
        let mut server = Server::start(&fixture.store);
        for number in 0..40 {
            server.put(number, 0);
        }
        set_metadata(&fixture.store, metadata);
        server.log = write_list(&fixture.store, &server.configs, &server.log, 1).unwrap();
        let mut changes = 0;
        for number in 0..12 {
            server.put(number, 1);
            server.assert_stored(metadata);
            let newest = fixture.store.read(CONFIG, Revision::END, Direction::Backwards).next();
            changes += u64::from(newest.unwrap().unwrap().kind == CHANGE_TYPE);
        }
        assert_eq!(changes, wanted, "{metadata}");
    }
}

/// A store of an earlier version: lists only, of which `$maxCount` keeps five.
#[test]
fn stream_of_an_earlier_version_is_continued() {
    let fixture = TestService::new();
    let store = &fixture.store;
    let mut groups = GroupConfigs::new();
    for number in 0..50 {
        let key = key(number);
        groups.insert(key.clone(), config(&key, 0));
        put_event(store, CONFIG, LIST_TYPE, &list_json(&groups, &ConfigLog::default(), 1));
    }
    set_metadata(store, r#"{"$acl":{"$r":["ada"]},"$maxCount":5,"color":"red"}"#);
    let mut server = Server::start(store);
    assert_eq!(server.configs.len(), 50);
    for number in 0..200 {
        server.put(number, 1);
        server.assert_stored("after a change");
        // Older lists that are not scavenged yet do not return.
        assert!(count(store, LIST_TYPE) <= 5);
    }
    assert!(count(store, CHANGE_TYPE) > 20, "{:?}", events(store));
    let metadata = String::from_utf8(store.metadata(CONFIG).unwrap().unwrap().data).unwrap();
    for part in [r#""$acl":{"$r":["ada"]}"#, r#""$maxCount":2802"#, r#""color":"red""#] {
        assert!(metadata.contains(part), "{metadata}");
    }
}

/// An earlier version, or an import, writes a list after changes: the list counts.
#[test]
fn later_list_of_another_writer_replaces_earlier_changes() {
    let fixture = TestService::new();
    let mut server = Server::start(&fixture.store);
    for number in 0..20 {
        server.put(number, 0);
    }
    let (key, mut groups) = (key(3), GroupConfigs::new());
    groups.insert(key.clone(), config(&key, 8));
    put_event(&fixture.store, CONFIG, LIST_TYPE, &list_json(&groups, &server.log, 1));
    let error = server.change(&key, None).unwrap_err();
    assert!(matches!(error, Error::WrongExpectedVersion { .. }), "{error}");
    assert_eq!(server.configs.len(), 20, "the failed change is undone");
    let mut server = Server::start(&fixture.store);
    assert_eq!(as_json(&server.configs), as_json(&groups));
    server.change(&key, None).unwrap();
    server.assert_stored("deleted");
    assert!(server.configs.is_empty());
}

#[test]
fn change_of_another_writer_is_a_conflict() {
    for is_deletion in [false, true] {
        let fixture = TestService::new();
        let mut server = Server::start(&fixture.store);
        server.put(1, 0);
        server.put(2, 0);
        let of = key(1);
        let update = (!is_deletion).then(|| config(&of, 9));
        put_event(&fixture.store, CONFIG, CHANGE_TYPE, &change_json(&of, update.as_ref(), 1));
        let error = server.change(&key(2), None).unwrap_err();
        assert!(matches!(error, Error::WrongExpectedVersion { .. }), "{error}");
        let (configs, log) = read_valid_configs(&fixture.store).unwrap().unwrap();
        assert_eq!(configs.contains_key(&of), !is_deletion);
        (server.configs, server.log) = (Arc::new(configs), log);
        server.change(&key(2), None).unwrap();
        server.assert_stored("changed after a new read");
    }
}

#[test]
fn junk_after_the_last_change_hides_no_group() {
    let fixture = TestService::new();
    let mut server = Server::start(&fixture.store);
    for number in 0..12 {
        server.put(number, 0);
    }
    for _ in 0..EVENTS_EXAMINED_MAX - 1 {
        put_event(&fixture.store, CONFIG, "Other", "[junk");
    }
    server.assert_stored("after junk");
    // The next change lists all groups, so that further junk has to hide that list.
    server.put(3, 1);
    assert_eq!(events(&fixture.store).last().unwrap().0, LIST_TYPE);
    for _ in 0..EVENTS_EXAMINED_MAX - 1 {
        put_event(&fixture.store, CONFIG, "Other", "[junk");
    }
    server.assert_stored("after more junk");
}

/// Creates a group with a change: a list comes before it.
fn put_change(server: &mut Server<'_>) {
    server.log = write_list(server.store, &server.configs, &server.log, 1).unwrap();
    server.put(99, 0);
    assert_eq!(events(server.store).last().unwrap().0, CHANGE_TYPE);
}

/// The replacement of a tombstoned stream happens to have as many events as the stream had.
#[test]
fn change_is_not_appended_to_another_stream_than_its_list() {
    let fixture = TestService::new();
    let mut server = Server::start(&fixture.store);
    for number in 0..12 {
        server.put(number, 0);
    }
    put_change(&mut server);
    let last = server.log.last.unwrap();
    fixture.store.tombstone(CONFIG, ExpectedVersion::Any).unwrap();
    let (stream, _) = system_stream::find(&fixture.store, CONFIG).unwrap();
    for _ in 0..=last {
        put_event(&fixture.store, &stream, "Other", "[junk");
    }
    server.put(3, 1);
    server.assert_stored("in the replacement");
}

/// A server that stops after events of other writers still leaves a list.
#[test]
fn list_of_a_stop_follows_events_of_other_writers() {
    let fixture = TestService::new();
    let mut server = Server::start(&fixture.store);
    for number in 0..12 {
        server.put(number, 0);
    }
    put_change(&mut server);
    put_event(&fixture.store, CONFIG, "Other", "[junk");
    assert!(newest_list(&fixture.store).len() < server.configs.len());
    let server = Server::start(&fixture.store);
    write_list(&fixture.store, &server.configs, &server.log, 1).unwrap();
    assert_eq!(newest_list(&fixture.store).len(), server.configs.len());
}

/// The groups of changes whose list is hidden are complete, and stay.
#[test]
fn changes_without_their_list_are_kept_at_a_start() {
    let fixture = TestService::new();
    let mut server = Server::start(&fixture.store);
    for number in 0..40 {
        server.put(number, 0);
    }
    server.log = write_list(&fixture.store, &server.configs, &server.log, 1).unwrap();
    let list = server.log.last.unwrap();
    server.put(50, 0);
    server.put(51, 0);
    server.change(&key(50), None).unwrap();
    set_metadata(&fixture.store, &format!(r#"{{"$tb":{}}}"#, list + 1));
    assert!(read_valid_configs(&fixture.store).unwrap().is_none());
    let restarted = Server::start(&fixture.store);
    assert_eq!(restarted.configs.keys().collect::<Vec<_>>(), [&key(51)]);
    assert_eq!(restarted.log.base, None, "its next change writes a list");
    server.put(52, 0);
    server.assert_stored("the running server stores all groups again");
}

/// Story: a list over the limit of an event failed as an append that was too large, whose message
/// did not name the groups. With changes, the list could have failed long after them.
#[test]
fn groups_that_no_list_can_hold_are_refused() {
    let fixture = TestService::new();
    let mut server = Server::start(&fixture.store);
    let long = |number: usize, letters: usize| {
        let key = GroupKey { stream: None, group: format!("g{number}") };
        let filter =
            Filter::StreamIdentifier(Expression { regex: "x".repeat(letters), prefix: Vec::new() });
        let filter = umbel_proto::streams::read_req::FilterOptions {
            filter: Some(filter),
            window: None,
            checkpoint_interval_multiplier: 1,
        };
        let of = self::key(0);
        (key, GroupConfig { filter: Some(filter), ..config(&of, 0) })
    };
    let mut created = BTreeSet::new();
    let refused = (0..20).find_map(|number| {
        let (key, config) = long(number, 1 << 20);
        let changed = server.change(&key, Some(config));
        if changed.is_ok() {
            created.insert(key);
        }
        changed.err()
    });
    let message = refused.expect("8 MiB are not enough").to_string();
    assert!(message.contains("the limit is 8388608 bytes"), "{message}");
    assert_eq!(created.len(), 7);
    server.assert_stored("after the refusal");
    assert!(server.configs.keys().eq(created.iter()), "nothing is lost");
    let (key, small) = long(30, 10);
    server.change(&key, Some(small)).unwrap();
    let (_, large) = long(30, 1 << 20);
    assert!(matches!(server.change(&key, Some(large)), Err(Error::Invalid(_))));
    server.assert_stored("after a refused update");
    // A list is still possible, and a smaller group, too.
    server.log = write_list(&fixture.store, &server.configs, &server.log, 1).unwrap();
    let (key, smaller) = long(0, 10);
    server.change(&key, Some(smaller)).unwrap();
    server.assert_stored("after an update to a shorter filter");
}

#[test]
fn damaged_changes_are_no_changes() {
    let of = key(1);
    let valid = [change_json(&of, Some(&config(&of, 3)), 5), change_json(&of, None, 5)];
    let parse = |data: &[u8]| {
        parse_change(&RecordedEvent {
            stream: CONFIG.to_string(),
            revision: 1,
            position: 1,
            id: umbel_events::EventId([7; 16]),
            kind: CHANGE_TYPE.to_string(),
            is_json: true,
            created: 1,
            data: data.to_vec(),
            metadata: Vec::new(),
        })
    };
    for data in &valid {
        let (read, config) = parse(data.as_bytes()).expect("it is valid");
        assert_eq!(change_json(&read, config.as_ref(), 5), *data);
        for end in 0..data.len() {
            assert!(parse(&data.as_bytes()[..end]).is_none(), "{end} bytes of {data}");
        }
        // A damaged byte makes another change or none, and never fails otherwise.
        for at in 0..data.len() {
            let mut damaged = data.clone().into_bytes();
            damaged[at] ^= 1 << (at % 8);
            let _ = parse(&damaged);
        }
    }
    for damaged in [
        "{}",
        "[]",
        r#"{"entry":null}"#,
        r#"{"deleted":null}"#,
        r#"{"deleted":{"stream":"a"}}"#,
        r#"{"deleted":{"stream":"a","group":""}}"#,
        r#"{"deleted":{"stream":7,"group":"g"}}"#,
        &format!(r#"{{"deleted":{{"stream":"a","group":"{}"}}}}"#, "g".repeat(513)),
        &valid[0].replace("\"entry\"", "\"deleted\":{\"stream\":\"a\",\"group\":\"g\"},\"entry\""),
    ] {
        assert!(parse(damaged.as_bytes()).is_none(), "{damaged}");
    }
}
