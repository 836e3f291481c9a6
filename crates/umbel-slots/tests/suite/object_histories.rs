//! Histories of the objects that slots name, one test for each rule of C15 and C16.

use umbel_base::checksum::checksum;
use umbel_env::ObjectName;
use umbel_slots::{
    CollectionStep, Floor, FollowStep, LogId, NamedObject, OBJECT_PART_BYTES, ObjectContent,
    ObjectTable, Slot, SlotCollection, SlotEntry, SlotError, SlotIds, SlotSnapshot, SlotTakeover,
    SlotWriter, TakeoverStep, WriteStep,
};

use super::explored_store::{ExploredClock, ExploredStore};
use super::histories::{STORE, Script, candidate, times};

const LOG: LogId = LogId { kind: 1, id: 1 };
/// Requests within which a node reaches the end.
const STEPS_MAX: usize = 100;

/// A file with this uid and these bytes, which replaces the earlier ones of its log.
fn file(uid: u8, bytes: &[u8]) -> NamedObject {
    let name = format!("chunks/1-{:032x}", u128::from_be_bytes([uid; 16]));
    NamedObject {
        log: LOG,
        name: ObjectName::new(name).expect("a name"),
        bytes: bytes.len() as u64,
        checksum: checksum(LOG.id, 0, bytes),
        content: ObjectContent::Replacement {
            version: u64::from(uid),
            source_version: 0,
            first_event: 0,
            last_event: 0,
        },
    }
}

fn entry(file: &NamedObject) -> SlotEntry {
    let NamedObject { log, name, bytes, checksum, content } = file.clone();
    SlotEntry::Object { log, name, bytes, checksum, content }
}

fn begins(uid: u8) -> SlotEntry {
    SlotEntry::UploadBegins { uid: [uid; 16] }
}

fn write(script: &mut Script, writer: &mut SlotWriter, entries: Vec<SlotEntry>) {
    writer.propose(script.uid(), 0, entries).expect("a valid slot");
    let step = script.act(|store, clock| writer.step(store, clock)).expect("an answer");
    assert!(matches!(step, WriteStep::Acknowledged(_)), "{step:?}");
}

/// Lets time pass while a leader writes.
fn pass(script: &mut Script, writer: &mut SlotWriter, units: u64) {
    for _ in 0..units.div_ceil(9) {
        script.store.advance(9);
        write(script, writer, vec![SlotEntry::Nothing]);
    }
}

/// Uploads a file and names it.
fn upload(script: &mut Script, writer: &mut SlotWriter, uid: u8, bytes: &[u8]) -> NamedObject {
    let file = file(uid, bytes);
    write(script, writer, vec![begins(uid)]);
    script.store.land(file.name.as_str(), bytes);
    write(script, writer, vec![entry(&file)]);
    file
}

/// Steps until the node is at the end. Returns the parts of objects that it read.
fn follow(
    script: &mut Script,
    takeover: &mut SlotTakeover,
    needed: &[NamedObject],
) -> Result<Vec<(NamedObject, Vec<u8>)>, SlotError> {
    let mut parts = Vec::new();
    for _ in 0..STEPS_MAX {
        match script.act(|store, clock| takeover.step(store, clock))? {
            TakeoverStep::AtEnd => return Ok(parts),
            TakeoverStep::Followed(FollowStep::Object { object, from, bytes }) => {
                let read: usize =
                    parts.iter().filter(|it| it.0 == object).map(|it| it.1.len()).sum();
                assert_eq!(read as u64, from);
                parts.push((object, bytes));
            }
            TakeoverStep::Followed(FollowStep::Restart(_)) => takeover.fetch(needed.to_vec()),
            _ => {}
        }
    }
    panic!("the node does not reach the end");
}

#[test]
fn long_objects_are_read_in_parts() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    let bytes: Vec<u8> = (0..2 * OBJECT_PART_BYTES + 5).map(|it| (it % 251) as u8).collect();
    let file = upload(&mut script, &mut writer, 101, &bytes);
    let mut takeover = candidate(None);
    let parts = follow(&mut script, &mut takeover, &[]).expect("the end");
    assert_eq!(parts.len(), 3);
    let parts: Vec<&[u8]> = parts.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    assert!(file.has_bytes(&parts) && !file.has_bytes(&parts[1..]));
    assert_eq!(takeover.follower().end(), writer.end());
}

#[test]
fn object_that_the_store_lost_is_damage() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    let file = upload(&mut script, &mut writer, 101, b"file");
    for bytes in [None, Some(b"files")] {
        let lost = script.store.objects.remove(file.name.as_str()).expect("it exists");
        if let Some(bytes) = bytes {
            script.store.land(file.name.as_str(), bytes);
        }
        let mut takeover = candidate(None);
        let error = follow(&mut script, &mut takeover, &[]).expect_err("its file is lost");
        assert!(
            matches!(&error, SlotError::Damaged { object, .. }
            if object.ends_with(file.name.as_str())),
            "{error}"
        );
        assert_eq!(takeover.follower().end().number, 2, "the slot is not applied");
        script.store.objects.insert(file.name.as_str().into(), lost);
    }
    follow(&mut script, &mut candidate(None), &[]).expect("the end");
}

/// Story: a node read the objects of a slot for so long that a collection deleted them.
#[test]
fn node_whose_objects_are_deleted_meanwhile_begins_again() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    let first = upload(&mut script, &mut writer, 101, b"first");
    let mut takeover = candidate(None);
    while !takeover.follower().is_fetching() {
        script.act(|store, clock| takeover.step(store, clock)).expect("an answer");
    }
    let second = upload(&mut script, &mut writer, 102, b"second");
    script.put_snapshots(writer.chain());
    let end = writer.end();
    let floor = Floor { number: 1, slot: end.number, uid: end.uid };
    script.store.land(floor.name().as_str(), &floor.encode(&STORE));
    script.store.objects.remove(first.name.as_str()).expect("it exists");
    script.store.objects.retain(|name, _| !name.starts_with("slots/"));
    script.store.advance(101);
    let parts = follow(&mut script, &mut takeover, std::slice::from_ref(&second)).expect("the end");
    assert_eq!(parts, [(second, b"second".to_vec())]);
    assert_eq!(takeover.follower().end(), end);
    assert!(!takeover.follower().is_fetching());
}

/// A node that reads the objects of its slot for long, and finds them, goes on where it was.
#[test]
fn slow_node_goes_on_while_its_objects_exist() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    let file = upload(&mut script, &mut writer, 101, b"file");
    let mut takeover = candidate(None);
    while !takeover.follower().is_fetching() {
        script.act(|store, clock| takeover.step(store, clock)).expect("an answer");
    }
    script.store.advance(201);
    let parts = follow(&mut script, &mut takeover, &[]).expect("the end");
    assert_eq!(parts, [(file, b"file".to_vec())]);
    assert_eq!(takeover.follower().end(), writer.end());
}

/// Story: the only snapshot was damaged after a deletion, and no node could start.
#[test]
fn one_readable_snapshot_permits_no_deletion() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    script.write(&mut writer).expect("a slot");
    script.put_snapshot(writer.chain());
    let mut collection = SlotCollection::new(STORE, times());
    script.collect(&mut collection).expect("a round");
    script.announce(&mut collection).expect("a round");
    assert_eq!(collection.floor().number, 0, "nothing is announced");
    let second = script.put_snapshot(writer.chain());
    script.collect(&mut collection).expect("a round");
    script.announce(&mut collection).expect("a floor");
    assert_eq!(collection.floor().slot, 2);
    // The second one is moved away before the deletion.
    let (bytes, created) = script.store.objects.remove(second.as_str()).expect("it exists");
    script.store.advance(201);
    script.collect(&mut collection).expect("a round");
    assert_eq!(script.store.objects.keys().filter(|it| it.starts_with("slots/")).count(), 2);
    script.store.objects.insert(second.as_str().into(), (bytes, created));
    script.collect(&mut collection).expect("a deletion");
    assert!(!script.store.objects.keys().any(|it| it.starts_with("slots/")));
}

/// The table after all slots that ever were.
fn table(script: &Script) -> ObjectTable {
    let mut table = ObjectTable::default();
    for number in 1.. {
        let Some(bytes) = script.store.first.get(&format!("slots/{number:020}")) else { break };
        let slot = Slot::decode(bytes, &STORE, number).expect("a slot");
        table.apply(&slot).expect("it follows");
    }
    table
}

/// Makes a round of a collection, while the leader writes if the round waits.
fn round(script: &mut Script, collection: &mut SlotCollection, writer: &mut SlotWriter) {
    loop {
        let table = table(script);
        let step = script.act(|store, clock| collection.step(store, clock, &table));
        match step.expect("an answer") {
            CollectionStep::Done => return,
            CollectionStep::Waiting => write(script, writer, vec![SlotEntry::Nothing]),
            CollectionStep::Again | CollectionStep::Found(_) => {}
        }
    }
}

/// A collection deletes what an earlier leader uploaded and did not name, and files that were
/// replaced before the floor. It spares an upload that runs.
#[test]
fn collection_deletes_what_no_slot_can_name() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    let replaced = upload(&mut script, &mut writer, 101, b"replaced");
    write(&mut script, &mut writer, vec![begins(102)]);
    let abandoned = file(102, b"abandoned");
    script.store.land(abandoned.name.as_str(), b"abandoned");
    let mut writer = script.lead(Some(writer.chain())).expect("another leader");
    let newest = upload(&mut script, &mut writer, 103, b"newest");
    let uids = [104, 105, 106];
    write(&mut script, &mut writer, uids.map(begins).to_vec());
    let chain = writer.chain().clone();
    for uid in [104, 105] {
        let (ids, state) = (SlotIds { store: STORE, uid: [uid; 16] }, Vec::new());
        let snapshot = SlotSnapshot { ids, chain: chain.clone(), state };
        script.store.land(snapshot.name().as_str(), &snapshot.encode());
    }
    let running = file(106, b"running");
    script.store.land(running.name.as_str(), b"running");
    let named = |uid| SlotEntry::Snapshot { number: chain.end.number, uid: [uid; 16] };
    write(&mut script, &mut writer, vec![named(104), named(105)]);
    let mut collection = SlotCollection::new(STORE, times());
    for _ in 0..2 {
        round(&mut script, &mut collection, &mut writer);
        pass(&mut script, &mut writer, 201);
        round(&mut script, &mut collection, &mut writer);
    }
    assert_eq!(collection.floor().slot, chain.end.number);
    let exists =
        |script: &Script, file: &NamedObject| script.store.objects.contains_key(file.name.as_str());
    assert!(exists(&script, &replaced) && exists(&script, &abandoned), "slots go first");
    round(&mut script, &mut collection, &mut writer);
    assert!(!exists(&script, &replaced) && !exists(&script, &abandoned));
    assert!(exists(&script, &newest) && exists(&script, &running));
}

/// Story: a retention rule of the bucket refused a deletion. The leader paid for its repetitions
/// without end.
#[test]
fn failed_deletions_wait_longer_each_time() {
    let mut script = Script::new();
    let writer = script.lead(None).expect("a leader");
    script.put_snapshots(writer.chain());
    let mut collection = SlotCollection::new(STORE, times());
    script.collect(&mut collection).expect("a round");
    script.announce(&mut collection).expect("a floor");
    script.store.advance(201);
    let found = |step: &CollectionStep| matches!(step, CollectionStep::Found(_));
    while !found(&script.collect_step(&mut collection).expect("an answer")) {}
    let clock = ExploredClock { node: script.store.time, wall: script.store.time };
    let mut waits = Vec::new();
    for _ in 0..8 {
        script.store.late.clear();
        let store = ExploredStore::new(script.store.clone(), 1);
        collection.step(&store, &clock, &table(&script)).expect_err("no answer");
        waits.push(collection.wait().as_millis());
    }
    assert_eq!(waits, [0, 100, 200, 400, 800, 1600, 2500, 2500]);
    script.collect_step(&mut collection).expect("a deletion");
    assert!(collection.wait().is_zero());
}

/// Story: a leader was paused after it had listed the objects. The next leader uploaded a file and
/// named it, and the paused one deleted it as unknown.
#[test]
fn paused_leader_deletes_nothing_of_the_next_one() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    write(&mut script, &mut writer, vec![begins(101), begins(102)]);
    let chain = writer.chain().clone();
    for uid in [101, 102] {
        let (ids, state) = (SlotIds { store: STORE, uid: [uid; 16] }, Vec::new());
        let snapshot = SlotSnapshot { ids, chain: chain.clone(), state };
        script.store.land(snapshot.name().as_str(), &snapshot.encode());
    }
    let named = |uid| SlotEntry::Snapshot { number: chain.end.number, uid: [uid; 16] };
    write(&mut script, &mut writer, vec![named(101), named(102)]);
    let mut collection = SlotCollection::new(STORE, times());
    for _ in 0..2 {
        round(&mut script, &mut collection, &mut writer);
        pass(&mut script, &mut writer, 201);
        round(&mut script, &mut collection, &mut writer);
    }
    let before = table(&script);
    // Slots that are acknowledged while the list of objects is under way.
    for _ in 0..2 {
        write(&mut script, &mut writer, vec![SlotEntry::Nothing]);
    }
    let known = table(&script);
    let mut next = script.lead(Some(writer.chain())).expect("another leader");
    let file = upload(&mut script, &mut next, 103, b"file");
    let step = |script: &mut Script, collection: &mut SlotCollection, table: &ObjectTable| {
        script.act(|store, clock| collection.step(store, clock, table)).expect("an answer")
    };
    let (mut probe, mut lists) = (collection.clone(), 0);
    while step(&mut script, &mut probe, &before) != CollectionStep::Waiting {
        lists += 1;
    }
    for number in 0..STEPS_MAX {
        let table = if number < lists { &before } else { &known };
        let step = step(&mut script, &mut collection, table);
        assert!(matches!(step, CollectionStep::Again | CollectionStep::Waiting), "{step:?}");
    }
    assert!(script.store.objects.contains_key(file.name.as_str()));
    let proposed = writer.propose(script.uid(), 0, vec![SlotEntry::Nothing]);
    proposed.expect("a valid slot");
    for _ in 0..2 {
        let step = script.act(|store, clock| writer.step(store, clock)).expect("an answer");
        assert!(matches!(step, WriteStep::Open | WriteStep::Deposed), "{step:?}");
    }
}
