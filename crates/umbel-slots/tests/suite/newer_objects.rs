//! Objects of a newer Umbel: a node of this one stops, and its error names the only remedy. No
//! object is called damaged, since an operator would restore it or move it away.

use umbel_base::checksum::checksum;
use umbel_slots::{
    ChainState, CollectionStep, Floor, Slot, SlotCollection, SlotEntry, SlotError, SlotIds,
    SlotSettings, SlotSnapshot,
};

use super::histories::{STORE, Script, candidate, times};

/// The object with another version, and with the checksum for it.
fn with_version(object: &[u8], version: u8, number: u64, offset: u64) -> Vec<u8> {
    let mut bytes = object[..object.len() - 8].to_vec();
    bytes[8] = version;
    let sum = checksum(number, offset, &bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// The slot after this chain.
fn slot(chain: &ChainState, entry: SlotEntry) -> Slot {
    Slot {
        ids: SlotIds { store: STORE, uid: [99; 16] },
        number: chain.end.number + 1,
        epoch: chain.end.epoch,
        previous: chain.end.uid,
        node: "node".into(),
        wall_micros: 0,
        entries: vec![entry],
    }
}

/// A node without a state reads the objects. Returns its error.
fn error_of(script: &mut Script) -> SlotError {
    script.follow(&mut candidate(None)).expect_err("an object that it does not know")
}

fn check_newer(error: &SlotError, what: &str) {
    assert!(matches!(error, SlotError::Refused(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.ends_with(&format!("a newer Umbel wrote it ({what}); use that Umbel")), "{text}");
}

#[test]
fn slots_of_a_newer_umbel_are_no_damage() {
    let newer = SlotSettings { format: 3, ..SlotSettings::default() };
    let mut script = Script::new();
    let writer = script.lead(None).expect("a leader");
    let name = "slots/00000000000000000002";
    let heartbeat = slot(writer.chain(), SlotEntry::Nothing).encode();
    let raised = slot(writer.chain(), SlotEntry::Settings(newer)).encode();
    for (bytes, what) in
        [(with_version(&heartbeat, 3, 2, 0), "format 3"), (raised, "its settings have format 3")]
    {
        script.store.land(name, &bytes);
        check_newer(&error_of(&mut script), what);
        // The slot at the end of a node's state is read, too.
        let mut chain = writer.chain().clone();
        chain.advance(&slot(writer.chain(), SlotEntry::Nothing)).expect("it follows");
        let error = script.follow(&mut candidate(Some(&chain))).expect_err("it is read");
        check_newer(&error, what);
        script.store.objects.remove(name).expect("it exists");
    }
    script.store.land(name, &with_version(&heartbeat, 1, 2, 0));
    let error = error_of(&mut script);
    assert!(matches!(error, SlotError::Damaged { .. }), "{error:?}");
    assert!(error.to_string().contains("it has format 1, and this Umbel reads format 2 only"));
}

#[test]
fn snapshots_of_a_newer_umbel_are_no_damage() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    script.write(&mut writer).expect("a slot");
    script.put_snapshot(writer.chain());
    let ids = SlotIds { store: STORE, uid: [98; 16] };
    let snapshot = SlotSnapshot { ids, chain: writer.chain().clone(), state: Vec::new() };
    let bytes = with_version(&snapshot.encode(), 3, 2, 1);
    script.store.land(snapshot.name().as_str(), &bytes);
    check_newer(&error_of(&mut script), "format 3");
    // Nor does a leader of this release delete by it.
    let before = script.store.objects.len();
    let mut collection = SlotCollection::new(STORE, times());
    script.collect(&mut collection).expect("a round");
    script.store.advance(401);
    let error = loop {
        match script.collect_step(&mut collection) {
            Ok(CollectionStep::Done) => panic!("it reads the snapshot"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    check_newer(&error, "format 3");
    assert_eq!(script.store.objects.len(), before);
}

#[test]
fn floors_of_a_newer_umbel_are_no_damage() {
    let mut script = Script::new();
    let writer = script.lead(None).expect("a leader");
    let floor = Floor { number: 1, slot: 1, uid: writer.end().uid };
    script.store.land(floor.name().as_str(), &with_version(&floor.encode(&STORE), 3, 1, 2));
    check_newer(&error_of(&mut script), "format 3");
    // Nor does a leader of this release delete by it.
    script.put_snapshot(writer.chain());
    let before = script.store.objects.len();
    let mut collection = SlotCollection::new(STORE, times());
    let error = script.collect(&mut collection).expect_err("it reads the floor");
    check_newer(&error, "format 3");
    assert_eq!(script.store.objects.len(), before);
}
