//! Tests of the manifest as a file: damage, and what `CURRENT` knows of it.

use umbel_log::Sealed;
use umbel_sim::Sim;

use super::*;
use crate::options::{ExistenceSize, KeyspaceOptions};
use crate::version::LogState;
use crate::version::edit::Identity;

const FOLDER: &str = "/store";

fn identity(features: u64) -> State {
    let identity = Identity { store_id: [1; 16], hash_seed: [2; 16], seed_id: 1, features };
    State { identity: Some(identity), next_file_id: 1, ..State::default() }
}

fn create(sim: &Sim, state: State) -> Manifest {
    let env = sim.env();
    env.files.create_dir_all(Path::new(FOLDER)).expect("a folder");
    let ids = Arc::new(AtomicU64::new(state.next_file_id));
    let ownership = Arc::new(Ownership::new(Arc::clone(&env.files), Path::new(FOLDER)));
    let poison = Arc::default();
    Manifest::create(&env, Path::new(FOLDER), state, ids, poison, ownership).expect("a manifest")
}

fn read(sim: &Sim) -> Result<State> {
    Manifest::read(&sim.env(), Path::new(FOLDER)).map(|state| state.expect("there is a CURRENT"))
}

/// A small manifest of three records, and where each of them ends.
fn build(sim: &Sim) -> (Manifest, Vec<u64>) {
    let mut manifest = create(sim, identity(0));
    let mut ends = vec![manifest.writer.end()];
    let options = KeyspaceOptions::default();
    manifest.ids.fetch_add(1, Ordering::Relaxed);
    let sealed = LogState::Sealed(Sealed { len: 192, checksum: 7 });
    let first = [
        Edit::Keyspace { id: 0, name: "plants".into(), options },
        Edit::Log { id: 2, state: LogState::Open },
    ];
    for edits in [&first[..], &[Edit::Log { id: 2, state: sealed }, Edit::LastSequence(9)]] {
        manifest.commit(edits).expect("they fit");
        ends.push(manifest.writer.end());
    }
    (manifest, ends)
}

#[test]
fn a_state_knows_every_id_that_was_taken() {
    let sim = Sim::new(1);
    let (manifest, _) = build(&sim);
    assert_eq!(manifest.state().next_file_id, 3);
    assert_eq!(read(&sim).expect("it is whole"), *manifest.state());
}

#[test]
fn every_change_to_a_sealed_manifest_is_noticed() {
    let sim = Sim::new(1);
    let (mut manifest, _) = build(&sim);
    manifest.seal().expect("it seals");
    let path = names::manifest(Path::new(FOLDER), manifest.id());
    let whole = sim.read(&path);
    let state = read(&sim).expect("it is whole");
    assert_eq!(state, *manifest.state());
    for at in 0..whole.len() {
        for mask in [0x01, 0x80, 0xff] {
            sim.flip(&path, at as u64, mask);
            assert!(read(&sim).is_err(), "byte {at} changed by {mask:#x}");
            sim.flip(&path, at as u64, mask);
        }
        sim.replace(&path, &whole[..at]);
        assert!(read(&sim).is_err(), "cut at {at}");
        sim.replace(&path, &whole);
    }
    sim.extend(&path, &[1; 99]);
    assert_eq!(read(&sim).expect("what lies behind the end does not count"), state);
}

#[test]
fn an_open_manifest_is_whole_up_to_its_last_mark() {
    let sim = Sim::new(1);
    let (_, ends) = build(&sim);
    let path = names::manifest(Path::new(FOLDER), 1);
    let whole = sim.read(&path);
    let all = read(&sim).expect("it is whole");
    // The last record says that the second was durable; nothing says so of the last one.
    let (marked, last) = (ends[1], ends[2]);
    assert_eq!(last, whole.len() as u64);
    for at in 0..last {
        sim.flip(&path, at, 0x40);
        let damaged = read(&sim);
        sim.flip(&path, at, 0x40);
        match damaged {
            Err(_) => assert!(at < marked, "byte {at} is in the tail"),
            Ok(state) => {
                assert!(at >= marked, "byte {at} was durable");
                assert_ne!(state, all);
                assert_eq!(state.logs[&2], LogState::Open);
            }
        }
    }
    for cut in 0..last {
        sim.truncate(&path, cut);
        // CURRENT says that the first record was durable; the cut took the marks with it.
        assert_eq!(read(&sim).is_err(), cut < ends[0], "cut at {cut}");
        sim.replace(&path, &whole);
    }
}

#[test]
fn a_manifest_that_is_not_there_is_damage() {
    let sim = Sim::new(1);
    build(&sim);
    sim.remove(names::manifest(Path::new(FOLDER), 1));
    let error = read(&sim).expect_err("it is missing");
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
    assert!(error.to_string().contains("the file is missing"), "{error}");
}

#[test]
fn unknown_features_are_refused_in_words() {
    let sim = Sim::new(1);
    create(&sim, identity(0x10));
    let error = read(&sim).expect_err("a feature is not known");
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    assert!(error.to_string().contains("0x10"), "{error}");
}

/// Whoever does not know a feature may not know how its edits read either: it is named first.
#[test]
fn unknown_features_are_named_before_what_stands_behind_them_is_read() {
    let mut record = Vec::new();
    let identity = identity(0x20).identity.expect("it has one");
    edit::encode_record(&[Edit::Identity(identity)], &mut record);
    record.extend([250, 1, 2, 3]);
    let error = features::check(&record).expect_err("a feature is not known");
    assert!(matches!(error, Error::Invalid(_)) && error.to_string().contains("0x20"), "{error}");
}

#[test]
fn a_keyspace_with_an_existence_filter_shows_as_a_feature() {
    let sim = Sim::new(1);
    let mut manifest = create(&sim, identity(0));
    let existence_filter = ExistenceSize::Growing { first_keys: 9 };
    let options = KeyspaceOptions { existence_filter, ..KeyspaceOptions::default() };
    manifest.commit(&[Edit::Keyspace { id: 0, name: "a".into(), options }]).expect("it fits");
    let state = read(&sim).expect("it is known");
    assert_eq!(state.identity.as_ref().map(|identity| identity.features), Some(1));
    create(&sim, state.clone());
    assert_eq!(read(&sim).expect("it is known").identity, state.identity);
}

#[test]
fn a_record_that_contradicts_itself_is_named() {
    let sim = Sim::new(1);
    let (mut manifest, ends) = build(&sim);
    let mut record = Vec::new();
    edit::encode_record(&[Edit::LastSequence(10), Edit::DropLog(77)], &mut record);
    manifest.write(&record).expect("it is written");
    let error = read(&sim).expect_err("log 77 was never there");
    let said = error.to_string();
    assert!(said.contains("log 77") && said.contains(&ends[2].to_string()), "{said}");
}
