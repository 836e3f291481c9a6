//! Tests of the manifest as a file: damage, and the lengths in `CURRENT`.

use umbel_log::Seal;
use umbel_sim::Sim;

use super::*;
use crate::options::{ExistenceSize, KeyspaceOptions};
use crate::version::LogState;
use crate::version::store_identity::Identity;

const FOLDER: &str = "/store";

fn identity(features: u64) -> ManifestState {
    let identity = Identity { store_id: [1; 16], hash_seed: [2; 16], seed_id: 1, features };
    ManifestState { identity: Some(identity), next_file_id: 1, ..ManifestState::default() }
}

fn create(sim: &Sim, state: ManifestState) -> Manifest {
    let env = sim.env();
    env.files.create_dir_all(Path::new(FOLDER)).expect("a folder");
    let ids = Arc::new(AtomicU64::new(state.next_file_id));
    let ownership = Arc::new(StoreOwnership::new(Arc::clone(&env.files), Path::new(FOLDER)));
    let poison = Arc::default();
    Manifest::create(&env, Path::new(FOLDER), state, ids, poison, ownership).expect("a manifest")
}

fn read(sim: &Sim) -> Result<ManifestState> {
    Manifest::read(&sim.env(), Path::new(FOLDER)).map(|state| state.expect("there is a CURRENT"))
}

/// Returns a small manifest of three records, and the end of each record.
fn build(sim: &Sim) -> (Manifest, Vec<u64>) {
    let mut manifest = create(sim, identity(0));
    let mut ends = vec![manifest.writer.end()];
    let options = KeyspaceOptions::default();
    manifest.ids.fetch_add(1, Ordering::Relaxed);
    let sealed = LogState::Sealed(Seal { len: 192, checksum: 7 });
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
fn state_contains_every_assigned_id() {
    let sim = Sim::new(1);
    let (manifest, _) = build(&sim);
    assert_eq!(manifest.state().next_file_id, 3);
    assert_eq!(read(&sim).expect("it is complete"), *manifest.state());
}

#[test]
fn every_change_to_sealed_manifest_is_detected() {
    let sim = Sim::new(1);
    let (mut manifest, _) = build(&sim);
    manifest.seal().expect("it seals");
    let path = filenames::manifest(Path::new(FOLDER), manifest.id());
    let complete = sim.read(&path);
    let state = read(&sim).expect("it is complete");
    assert_eq!(state, *manifest.state());
    for at in 0..complete.len() {
        for mask in [0x01, 0x80, 0xff] {
            sim.flip(&path, at as u64, mask);
            assert!(read(&sim).is_err(), "byte {at} changed by {mask:#x}");
            sim.flip(&path, at as u64, mask);
        }
        sim.replace(&path, &complete[..at]);
        assert!(read(&sim).is_err(), "cut at {at}");
        sim.replace(&path, &complete);
    }
    sim.extend(&path, &[1; 99]);
    assert_eq!(read(&sim).expect("bytes after the end are ignored"), state);
}

#[test]
fn open_manifest_is_complete_up_to_its_last_mark() {
    let sim = Sim::new(1);
    let (_, ends) = build(&sim);
    let path = filenames::manifest(Path::new(FOLDER), 1);
    let complete = sim.read(&path);
    let all = read(&sim).expect("it is complete");
    // The last record shows that the second was durable; no record shows that of the last one.
    let (marked, last) = (ends[1], ends[2]);
    assert_eq!(last, complete.len() as u64);
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
        // CURRENT shows that the first record was durable; the cut removed the marks.
        assert_eq!(read(&sim).is_err(), cut < ends[0], "cut at {cut}");
        sim.replace(&path, &complete);
    }
}

#[test]
fn missing_manifest_is_damage() {
    let sim = Sim::new(1);
    build(&sim);
    sim.remove(filenames::manifest(Path::new(FOLDER), 1));
    let error = read(&sim).expect_err("it is missing");
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
    assert!(error.to_string().contains("the file is missing"), "{error}");
}

#[test]
fn unknown_features_are_rejected_by_name() {
    let sim = Sim::new(1);
    create(&sim, identity(0x10));
    let error = read(&sim).expect_err("a feature is not known");
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    assert!(error.to_string().contains("0x10"), "{error}");
}

/// The error about an unknown feature comes before any later edit is decoded, since the edits'
/// encoding is possibly unknown, too.
#[test]
fn unknown_features_are_rejected_before_later_edits() {
    let mut record = Vec::new();
    let identity = identity(0x20).identity.expect("it has one");
    version_edit::encode_record(&[Edit::Identity(identity)], &mut record);
    record.extend([250, 1, 2, 3]);
    let error = check_features(&record).expect_err("a feature is not known");
    assert!(matches!(error, Error::Invalid(_)) && error.to_string().contains("0x20"), "{error}");
}

#[test]
fn existence_filter_sets_a_feature_bit() {
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
fn contradictory_record_is_reported() {
    let sim = Sim::new(1);
    let (mut manifest, ends) = build(&sim);
    let mut record = Vec::new();
    version_edit::encode_record(&[Edit::LastSequence(10), Edit::DropLog(77)], &mut record);
    manifest.write(&record).expect("it is written");
    let error = read(&sim).expect_err("log 77 was never there");
    let message = error.to_string();
    assert!(message.contains("log 77") && message.contains(&ends[2].to_string()), "{message}");
}

/// Story: on a full disk the manifest kept the edits that later ones had replaced, up to three
/// times its state, while deletes found no space.
#[test]
fn manifest_with_replaced_edits_is_shortened_on_a_full_disk() {
    let sim = Sim::new(1);
    let (mut manifest, _) = build(&sim);
    manifest.reserve_for_next();
    assert!(!manifest.shorten().expect("it is short"));
    let options = KeyspaceOptions::default();
    for _ in 0..200 {
        let name = "k".repeat(1000);
        manifest
            .commit(&[Edit::Keyspace { id: 1, name, options: options.clone() }])
            .expect("space");
        manifest.commit(&[Edit::DropKeyspace(1)]).expect("space");
    }
    let pages = |sim: &Sim| -> u64 {
        let bytes = |path| (sim.read(path).len() as u64).next_multiple_of(4096);
        sim.files().iter().map(bytes).sum()
    };
    let before = pages(&sim);
    sim.set_capacity(before);
    assert!(manifest.shorten().expect("the reserved space is enough"));
    assert!(pages(&sim) + (128 << 10) < before, "{} of {before} bytes are left", pages(&sim));
    assert!(!manifest.shorten().expect("it is short"));
    assert_eq!(read(&sim).expect("it is complete"), *manifest.state());
    manifest.commit(&[Edit::LastSequence(12)]).expect("there is space");
    assert_eq!(read(&sim).expect("it is complete"), *manifest.state());
}
