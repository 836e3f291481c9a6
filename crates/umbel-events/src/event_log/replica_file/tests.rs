//! Tests of the file `REPLICA`.

use umbel_sim::{Fault, FaultKind, Sim};
use umbel_slots::SlotIds;

use super::*;

const PAGE: &str = include_str!("../../../../../docs/formats/replica.md");
const LOG: LogId = LogId { kind: EVENT_LOG_KIND, id: 5 };

fn slot(state: &ReplicaState, uid: u8, entries: Vec<SlotEntry>) -> Slot {
    let end = state.chain.end;
    let ids = SlotIds { store: state.store, uid: [uid; 16] };
    let (number, previous) = (end.number + 1, end.uid);
    let mut slot =
        Slot { ids, number, epoch: end.epoch, previous, node: "a".into(), wall_micros: 0, entries };
    slot.epoch += u64::from(slot.begins_epoch());
    slot
}

fn log_with_id(id: [u8; 16]) -> ReplicatedLog {
    ReplicatedLog { id, seed: [0; 16], settings: SlotSettings::default() }
}

/// The state of the page: after two slots, of which the second one has records of chunk 5.
fn example() -> ReplicaState {
    let mut state = ReplicaState::new(&log_with_id([0xaa; 16]), [0xbb; 16]);
    let begins = SlotEntry::EpochBegins { host: "a".into(), port: 2113 };
    let first = slot(&state, 0x11, vec![begins]);
    state.advance(&first).expect("it follows");
    let chunk = SlotEntry::LogBegins { log: LOG, start: 65_536, capacity: 4096, key: 9 };
    let bytes = SlotEntry::Bytes { log: LOG, from: 64, bytes: vec![0; 136] };
    let second = slot(&state, 0x22, vec![chunk, bytes]);
    state.advance(&second).expect("it follows");
    state
}

/// The bytes of an example of the page.
fn shown(name: &str) -> Vec<u8> {
    let (_, tail) = PAGE.split_once(&format!("```example {name}\n")).expect("an example");
    let (block, _) = tail.split_once("```").expect("the example ends");
    let mut bytes = Vec::new();
    for line in block.lines() {
        let (_, rest) = line.split_once("  ").expect("an offset");
        let pairs = rest.split("  ").next().expect("bytes").split_whitespace();
        bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).expect("a byte")));
    }
    bytes
}

#[test]
fn example_of_the_page_is_the_file() {
    let bytes = example().encode();
    let rows: Vec<_> = bytes.chunks(16).map(|row| format!("{row:02x?}")).collect();
    // The checksum of the page is compared by the decoder.
    let (page, sum) = (shown("state"), bytes.len() - 8);
    assert!(page[..sum.min(page.len())] == bytes[..sum], "it should be\n{}", rows.join("\n"));
    assert!(page == bytes, "it should be\n{}", rows.join("\n"));
}

#[test]
fn state_follows_the_slots() {
    let mut state = example();
    let applied = AppliedLog { log: LOG, end: 200, has_ended: false };
    assert_eq!((state.last_log, applied.file_bytes()), (Some(applied), 200));
    let ended = SlotEntry::LogEnded { log: LOG, end: 200, mark: 8, running: 7 };
    let last = slot(&state, 0x33, vec![ended]);
    state.advance(&last).expect("it follows");
    let applied = AppliedLog { has_ended: true, ..applied };
    assert_eq!((state.last_log, applied.file_bytes()), (Some(applied), 248));
    let before = state.clone();
    state.advance(&last).expect_err("it is applied");
    assert_eq!(state, before, "nothing changed");
}

#[test]
fn states_round_trip_and_changed_bytes_are_damage() {
    let path = Path::new(FILE_NAME);
    let led = ReplicaState { has_led: true, cut: 3, ..example() };
    for state in [example(), led, ReplicaState::new(&log_with_id([1; 16]), [2; 16])] {
        let bytes = state.encode();
        assert_eq!(ReplicaState::decode(&bytes, path).expect("just encoded"), state);
        for len in 0..bytes.len() {
            let decoded = ReplicaState::decode(&bytes[..len], path);
            assert!(matches!(decoded, Err(Error::Corruption { .. })), "{len} bytes");
        }
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let decoded = ReplicaState::decode(&changed, path);
            assert!(matches!(decoded, Err(Error::Corruption { .. })), "bit {bit}");
        }
    }
    let impossible = ReplicaState { cut: 3, ..example() };
    assert!(ReplicaState::decode(&impossible.encode(), path).is_err(), "a cut of a follower");
}

#[test]
fn newer_format_is_named() {
    let mut bytes = example().encode();
    bytes[8] = VERSION + 1;
    let end = bytes.len() - 8;
    let sum = checksum(0, 0, &bytes[..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
    let error = ReplicaState::decode(&bytes, Path::new(FILE_NAME)).expect_err("newer");
    assert!(error.to_string().contains("newer Umbel (replica format 2"), "{error}");
}

#[test]
fn failed_write_is_repeated() {
    let sim = Sim::new(1);
    let (env, folder) = (sim.env(), Path::new("/replica"));
    env.files.create_dir_all(folder).expect("created");
    assert_eq!(ReplicaState::read(&env, folder).expect("readable"), None);
    check_not_replica(&env, folder).expect("no replica");
    let mut state = ReplicaState::new(&log_with_id([1; 16]), [2; 16]);
    state.write(&env, folder).expect("written");
    check_not_replica(&env, folder).expect_err("a replica");
    let record = ReplicaRecord::new(&env, folder, state.clone());
    state = example();
    record.change(|it| *it = state.clone());
    sim.fail_site("rename", 1, Fault { kind: FaultKind::Eio, sticky: false });
    record.write().expect_err("the call fails");
    record.write().expect("written");
    assert_eq!(ReplicaState::read(&env, folder).expect("readable"), Some(state));
    let calls = sim.calls();
    record.write().expect("nothing to write");
    assert_eq!(sim.calls(), calls);
}
