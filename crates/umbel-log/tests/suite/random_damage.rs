//! Tests of random logs with random damage against the model; random bytes never cause a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_base::{Error, Result};
use umbel_log::{ExpectedEnd, ReadOutcome};

use super::memory_disk::{Entry, LOG_ID, read};
use super::model_format::{self, Forge, Verdict};

#[derive(Debug, Clone)]
enum Damage {
    Flip { at: usize, mask: u8 },
    Zero { at: usize, len: usize },
    Copy { from: usize, to: usize, len: usize },
    Cut { at: usize },
    Extend { bytes: Vec<u8> },
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = || any::<prop::sample::Index>().prop_map(|index| index.index(4096));
    prop_oneof![
        (at(), 1..=255_u8).prop_map(|(at, mask)| Damage::Flip { at, mask }),
        (at(), 1..600_usize).prop_map(|(at, len)| Damage::Zero { at, len }),
        (at(), at(), 1..100_usize).prop_map(|(from, to, len)| Damage::Copy {
            from: from / 8 * 8,
            to: to / 8 * 8,
            len: len * 8
        }),
        at().prop_map(|at| Damage::Cut { at }),
        vec(any::<u8>(), 1..100).prop_map(|bytes| Damage::Extend { bytes }),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    let len = bytes.len();
    match damage {
        Damage::Flip { at, mask } if len > 0 => bytes[at % len] ^= mask,
        Damage::Zero { at, len: zeros } if len > 0 => {
            let at = at % len;
            bytes[at..(at + zeros).min(len)].fill(0);
        }
        Damage::Copy { from, to, len: copied } if len > 0 => {
            let (from, to) = (from % len / 8 * 8, to % len / 8 * 8);
            let copied = (*copied).min(len - from).min(len - to);
            bytes.copy_within(from..from + copied, to);
        }
        Damage::Cut { at } => bytes.truncate(at % (len + 1)),
        Damage::Extend { bytes: more } => bytes.extend(more),
        _ => {}
    }
}

/// Generates records: increase of the sequence number, whether all earlier records were synced, and
/// payload.
fn steps() -> impl Strategy<Value = Vec<(u64, bool, Vec<u8>)>> {
    vec((0..3_u64, prop::bool::weighted(0.3), vec(any::<u8>(), 0..200)), 0..12)
}

/// Builds a log, and returns it with its entries.
fn build(steps: &[(u64, bool, Vec<u8>)]) -> (Forge, Vec<Entry>, u64, u64) {
    let mut forge = Forge::new(LOG_ID);
    let (mut entries, mut sequence, mut durable) = (Vec::new(), 0, 0);
    for (step, synced, payload) in steps {
        sequence += step;
        if *synced {
            durable = forge.bytes.len() as u64;
        }
        forge.add(sequence, durable, payload);
        entries.push((sequence, payload.clone()));
    }
    (forge, entries, sequence, durable)
}

/// Checks that the reader and the model have the same result, and returns it.
fn agree(bytes: &[u8], expectation: ExpectedEnd) -> (Vec<Entry>, Result<ReadOutcome>) {
    let (records, end) = read(bytes, expectation);
    let (model_records, verdict) = model_format::read(bytes, expectation);
    assert_eq!(records, model_records);
    let found = match &end {
        Ok(ReadOutcome { end, sealed, torn, .. }) => {
            Verdict::Fine { end: *end, sealed: *sealed, torn: *torn }
        }
        Err(Error::Corruption { .. }) => Verdict::Corruption,
        Err(Error::Invalid(_)) => Verdict::Newer,
        Err(other) => panic!("{other}"),
    };
    assert_eq!(found, verdict);
    (records, end)
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn damaged_logs_match_the_model(
        steps in steps(),
        seal in any::<bool>(),
        zeros in 0..700_usize,
        damages in vec(damage(), 0..4),
    ) {
        let (mut forge, entries, sequence, durable) = build(&steps);
        let sealed = seal.then(|| forge.seal(sequence, durable));
        let mut bytes = forge.bytes;
        bytes.resize(bytes.len() + zeros, 0);
        let original = bytes.clone();
        damages.iter().for_each(|damage| apply(&mut bytes, damage));
        let (records, end) = agree(&bytes, ExpectedEnd::Open);
        prop_assert!(entries.starts_with(&records));
        if bytes == original {
            prop_assert_eq!(&records, &entries);
            prop_assert!(!end.expect("nothing happened to it").torn);
        }
        if let Some(sealed) = sealed {
            let (records, end) = agree(&bytes, ExpectedEnd::Sealed(sealed));
            let len = sealed.len as usize;
            prop_assert_eq!(end.is_ok(), bytes.get(..len) == Some(&original[..len]));
            prop_assert!(end.is_err() || records == entries);
        }
    }

    #[test]
    fn random_bytes_never_panic(
        bytes in vec(any::<u8>(), 0..600),
        with_header in any::<bool>(),
        heads in vec((0..600_usize, any::<u16>(), any::<u16>(), 0..4_u8), 0..6),
        len in 0..600_u64,
        checksum in any::<u64>(),
    ) {
        let mut bytes = bytes;
        // Record headers with the right id and kind at random places go further than noise does.
        for (at, payload_bytes, mark, kind) in heads {
            let head = model_format::record(LOG_ID, at as u64, 1, u32::from(mark) % 80, kind, b"");
            if let Some(place) = bytes.get_mut(at / 8 * 8..at / 8 * 8 + 32) {
                place.copy_from_slice(&head);
                place[8..10].copy_from_slice(&(payload_bytes % 700).to_le_bytes());
            }
        }
        if with_header && bytes.len() >= 64 {
            bytes[..64].copy_from_slice(&model_format::header(1, 1, LOG_ID));
        }
        read(&bytes, ExpectedEnd::Open).1.ok();
        let sealed = umbel_log::Seal { len, checksum };
        prop_assert!(read(&bytes, ExpectedEnd::Sealed(sealed)).1.is_err());
    }
}
