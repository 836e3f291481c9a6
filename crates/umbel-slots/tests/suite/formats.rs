//! The bytes of slots, snapshots, floors, claims and `STORE`: the worked examples of
//! `docs/formats/slots.md`, and damage.

use umbel_env::ObjectName;
use umbel_sim::Random;
use umbel_slots::{
    ChainEnd, ChainState, EpochStart, EpochTable, Floor, LogId, NodeClaim, ObjectContent, Slot,
    SlotEntry, SlotIds, SlotSettings, SlotSnapshot, StoreObject, fuzz_slot,
};

const PAGE: &str = include_str!("../../../../docs/formats/slots.md");
const STORE: [u8; 16] = [0xaa; 16];
const NUMBER: u64 = 300;
const FLOOR_NUMBER: u64 = 5;
/// Random changes of each example, which the decoders must survive.
const MUTATIONS: usize = 20_000;
/// Bytes of the frame before the body, and after it.
const FRAME_BYTES: (usize, usize) = (9, 8);

/// The bytes of an example of the page: on each line, those between the offset with two spaces and
/// the next two spaces.
fn shown(name: &str) -> Vec<u8> {
    let (_, tail) =
        PAGE.split_once(&format!("```example {name}\n")).expect("the page has the example");
    let (block, _) = tail.split_once("```").expect("the example ends");
    let mut bytes = Vec::new();
    for line in block.lines() {
        let (_, rest) = line.split_once("  ").expect("an offset");
        let shown = rest.split("  ").next().expect("something");
        let pairs = shown.split_whitespace();
        bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).expect("a byte")));
    }
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x} ")).collect()
}

/// A slot with an entry of each kind.
fn slot() -> Slot {
    let log = LogId { kind: 1, id: 5 };
    let name = |name: &str| ObjectName::new(name).expect("a name");
    let replacement = ObjectContent::Replacement {
        version: 2,
        source_version: 1,
        first_event: 96,
        last_event: 104,
    };
    let object = |file: &str, bytes, content| {
        let (name, checksum) = (name(file), 0x0102_0304_0506_0708);
        SlotEntry::Object { log, name, bytes, checksum, content }
    };
    let entries = vec![
        SlotEntry::EpochBegins { host: "a.example".into(), port: 2113 },
        SlotEntry::LogBegins { log, start: 65_536, capacity: 4096, key: 0x1112_1314_1516_1718 },
        SlotEntry::Bytes { log, from: 64, bytes: b"records!".into() },
        SlotEntry::LogEnded { log, end: 72, mark: 8, running: 0x2122_2324_2526_2728 },
        object("chunks/5-2-dd", 300, replacement),
        object("records/5-72-dd", 4000, ObjectContent::Records { from: 72 }),
        SlotEntry::ClockEpochBegins { position: 69_632, start: 1000 },
        SlotEntry::Settings(SlotSettings::default()),
        SlotEntry::UploadBegins { uid: [0xdd; 16] },
        SlotEntry::Snapshot { number: 290, uid: [0xee; 16] },
        SlotEntry::Nothing,
        SlotEntry::Resigned,
    ];
    Slot {
        ids: SlotIds { store: STORE, uid: [0xbb; 16] },
        number: NUMBER,
        epoch: 2,
        previous: [0xcc; 16],
        node: "a".into(),
        wall_micros: 1000,
        entries,
    }
}

/// The snapshot after [`slot`].
fn snapshot() -> SlotSnapshot {
    let start = |epoch, number, uid| EpochStart { epoch, number, uid: [uid; 16] };
    let starts = vec![start(1, 1, 0x99), start(2, NUMBER, 0xbb)];
    let chain = ChainState {
        end: ChainEnd { number: NUMBER, uid: [0xbb; 16], epoch: 2, has_resigned: true },
        epochs: EpochTable::new(starts).expect("a table"),
        settings: SlotSettings::default(),
    };
    SlotSnapshot { ids: SlotIds { store: STORE, uid: [0xff; 16] }, chain, state: b"state".into() }
}

/// The floor that ends with [`slot`].
fn floor() -> Floor {
    Floor { number: FLOOR_NUMBER, slot: NUMBER, uid: [0xbb; 16] }
}

/// The object `STORE` of their log.
fn store_object() -> StoreObject {
    StoreObject::new(STORE)
}

/// The claim of a name in their log.
fn claim() -> NodeClaim {
    NodeClaim { store: STORE, instance: [0xbb; 16] }
}

/// Whether the bytes are an object of one kind. The others must not panic.
fn is_slot(bytes: &[u8]) -> bool {
    Slot::decode(bytes, &STORE, NUMBER).is_ok()
}

fn is_snapshot(bytes: &[u8]) -> bool {
    SlotSnapshot::decode(bytes, &STORE, NUMBER).is_ok()
}

fn is_floor(bytes: &[u8]) -> bool {
    Floor::decode(bytes, &STORE, FLOOR_NUMBER).is_ok()
}

fn is_store_object(bytes: &[u8]) -> bool {
    StoreObject::decode(bytes).is_ok()
}

fn is_claim(bytes: &[u8]) -> bool {
    NodeClaim::decode(bytes).is_ok()
}

/// An object of each kind.
fn objects() -> [Vec<u8>; 5] {
    let (floor, claim) = (floor().encode(&STORE), claim().encode());
    [slot().encode(), snapshot().encode(), floor, store_object().encode(), claim]
}

#[test]
fn worked_examples_of_the_page_are_the_bytes() {
    let names = ["slot", "snapshot", "floor", "store", "claim"];
    for (name, bytes) in names.into_iter().zip(objects()) {
        assert_eq!(hex(&shown(name)), hex(&bytes), "{name}");
    }
    assert_eq!(StoreObject::decode(&shown("store")), Ok(store_object()));
    assert_eq!(Slot::decode(&shown("slot"), &STORE, NUMBER), Ok(slot()));
    assert_eq!(SlotSnapshot::decode(&shown("snapshot"), &STORE, NUMBER), Ok(snapshot()));
    assert_eq!(Floor::decode(&shown("floor"), &STORE, FLOOR_NUMBER), Ok(floor()));
}

#[test]
fn every_changed_bit_and_every_cut_is_refused() {
    for (bytes, is_valid) in [
        (slot().encode(), is_slot as fn(&[u8]) -> bool),
        (snapshot().encode(), is_snapshot as fn(&[u8]) -> bool),
        (floor().encode(&STORE), is_floor as fn(&[u8]) -> bool),
        (store_object().encode(), is_store_object as fn(&[u8]) -> bool),
        (claim().encode(), is_claim as fn(&[u8]) -> bool),
    ] {
        assert!(is_valid(&bytes));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_valid(&changed), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(!is_valid(&bytes[..len]), "{len} bytes");
        }
        assert!(!is_valid(&[&bytes[..], &[0]].concat()), "a byte more");
    }
}

#[test]
fn objects_of_another_number_or_log_are_refused() {
    let (slot, snapshot, floor) = (slot().encode(), snapshot().encode(), floor().encode(&STORE));
    for (store, number) in [([6; 16], NUMBER), (STORE, NUMBER + 1)] {
        Slot::decode(&slot, &store, number).expect_err("another slot");
        SlotSnapshot::decode(&snapshot, &store, number).expect_err("another snapshot");
    }
    for (store, number) in [([6; 16], FLOOR_NUMBER), (STORE, FLOOR_NUMBER + 1)] {
        Floor::decode(&floor, &store, number).expect_err("another floor");
    }
    assert!(!is_slot(&snapshot) && !is_snapshot(&slot), "another kind of object");
    assert!(!is_slot(&floor) && !is_snapshot(&floor), "another kind of object");
    assert!(!is_floor(&slot) && !is_floor(&snapshot), "another kind of object");
    assert!(!is_store_object(&slot) && !is_slot(&store_object().encode()), "another kind");
    assert!(!is_store_object(&floor) && !is_floor(&store_object().encode()), "another kind");
}

/// The checksum hides most damage from the decoders. Here their bytes have none: each value of each
/// byte, each cut, and random changes. What is decoded is encoded as it was.
#[test]
fn decoders_survive_any_bytes() {
    let mut random = Random::new(1);
    for object in objects() {
        let body = &object[FRAME_BYTES.0..object.len() - FRAME_BYTES.1];
        for at in 0..body.len() {
            fuzz_slot(&body[..at]);
            for value in 0..=255 {
                let mut changed = body.to_vec();
                changed[at] = value;
                fuzz_slot(&changed);
            }
        }
        for _ in 0..MUTATIONS {
            let mut changed = body.to_vec();
            for _ in 0..=random.below(4) {
                let at = random.below_usize(changed.len());
                match random.below(3) {
                    0 => changed[at] = random.below(256) as u8,
                    1 => changed.insert(at, [0, 1, 0x7f, 0x80, 0xff][random.below_usize(5)]),
                    _ => drop(changed.remove(at)),
                }
            }
            fuzz_slot(&changed);
        }
    }
}

/// Lengths and counts that claim more than there is request no memory.
#[test]
fn claimed_lengths_request_no_memory() {
    let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    for object in objects() {
        let body = &object[FRAME_BYTES.0..object.len() - FRAME_BYTES.1];
        for at in 0..body.len() {
            fuzz_slot(&[&body[..at], &most, &body[at + 1..]].concat());
            fuzz_slot(&[&body[..at], &most].concat());
        }
    }
}

#[test]
fn entries_with_impossible_numbers_are_refused() {
    let log = LogId { kind: 1, id: 5 };
    let begins = |start, capacity| SlotEntry::LogBegins { log, start, capacity, key: 1 };
    let records = |from, bytes: &[u8]| SlotEntry::Bytes { log, from, bytes: bytes.into() };
    let object = |bytes, content| {
        let name = ObjectName::new("x").expect("a name");
        SlotEntry::Object { log, name, bytes, checksum: 1, content }
    };
    let file = |version, source_version, first_event, last_event| {
        let content =
            ObjectContent::Replacement { version, source_version, first_event, last_event };
        object(9, content)
    };
    let range = |from, bytes| object(bytes, ObjectContent::Records { from });
    let snapshot = |number| SlotEntry::Snapshot { number, uid: [1; 16] };
    let settings = |slot_bytes_max| {
        SlotEntry::Settings(SlotSettings { slot_bytes_max, ..SlotSettings::default() })
    };
    let is_valid = |entry: SlotEntry| {
        let slot = Slot { entries: vec![entry], ..slot() };
        let is_valid = is_slot(&slot.encode());
        assert_eq!(slot.check_entries().is_ok(), is_valid, "writers and readers differ");
        is_valid
    };
    let max = u64::MAX;
    for (good, bad) in [
        (begins(max - 1, 1), begins(max, 1)),
        (begins(0, 1), begins(0, 0)),
        (records(max - 1, b"x"), records(max, b"x")),
        (records(0, b"x"), records(0, b"")),
        (file(1, 0, 0, 0), file(1, 1, 0, 0)),
        (file(2, 1, 5, 5), file(2, 1, 6, 5)),
        (range(max - 1, 1), range(max, 1)),
        (range(0, 1), range(0, 0)),
        (snapshot((1 << 63) - 1), snapshot(1 << 63)),
        (settings(64 << 10), settings((64 << 10) - 1)),
        (settings(80 << 20), settings((80 << 20) + 1)),
    ] {
        let text = format!("{good:?}, {bad:?}");
        assert!(is_valid(good) && !is_valid(bad), "{text}");
    }
}

#[test]
fn floors_with_impossible_numbers_are_refused() {
    let is_valid = |number, slot| {
        let floor = Floor { number, slot, uid: [1; 16] };
        Floor::decode(&floor.encode(&STORE), &STORE, number).is_ok()
    };
    let most = (1 << 63) - 1;
    assert!(is_valid(1, 1) && is_valid(most, most));
    for (number, slot) in [(0, 1), (1, 0), (most + 1, 1), (1, most + 1)] {
        assert!(!is_valid(number, slot), "floor {number} with slot {slot}");
    }
}
