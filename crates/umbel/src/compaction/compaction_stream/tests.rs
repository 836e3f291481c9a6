//! Compares the compaction stream with a naive implementation of its rule, and with readers'
//! results.

use std::sync::Arc;

use proptest::prelude::*;
use umbel_base::{
    FragmentedTombstones, RangeTombstone, RangeTombstoneRef, ValueKind, cmp_internal,
};

use super::{CompactionStream, SnapshotStripes, StreamCounts};
use crate::compaction::surviving_tombstones::surviving_tombstones;
use crate::iter::range_tombstone_runs::RangeTombstoneRuns;
use crate::test_support::row_cursor::{Row, RowCursor, model};

/// A write; its index in the script is its sequence number.
#[derive(Debug, Clone)]
enum Write {
    Put(u8),
    Delete(u8),
    DeleteRange(u8, u8),
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        6 => (0u8..10).prop_map(Write::Put),
        3 => (0u8..10).prop_map(Write::Delete),
        1 => (0u8..10, 1u8..6).prop_map(|(start, width)| Write::DeleteRange(start, start + width)),
    ]
}

/// A part of the store: all writes in an interval of time.
#[derive(Debug, Clone, Default)]
struct Part {
    rows: Vec<Row>,
    ranges: Vec<RangeTombstone>,
}

impl Part {
    fn of(history: &[Write], from: usize, to: usize) -> Part {
        let mut part = Part::default();
        for (index, write) in history.iter().enumerate().take(to).skip(from) {
            let sequence = index as u64 + 1;
            let row = |key: u8, kind, value| Row { key: vec![key], sequence, kind, value };
            match *write {
                Write::Put(key) => {
                    let pointer = index.is_multiple_of(3);
                    let kind = if pointer { ValueKind::BlobPointer } else { ValueKind::Put };
                    part.rows.push(row(key, kind, vec![index as u8]));
                }
                Write::Delete(key) => part.rows.push(row(key, ValueKind::Delete, vec![])),
                Write::DeleteRange(start, end) => part.ranges.push(RangeTombstone {
                    start: vec![start],
                    end: vec![end],
                    sequence,
                }),
            }
        }
        part
    }

    fn touches(&self, start: &[u8], end: &[u8]) -> bool {
        self.rows.iter().any(|r| start <= r.key.as_slice() && r.key.as_slice() < end)
            || self.ranges.iter().any(|t| t.start.as_slice() < end && start < t.end.as_slice())
    }

    fn plus(&self, other: &Part) -> Part {
        let rows = self.rows.iter().chain(&other.rows).cloned().collect();
        let ranges = self.ranges.iter().chain(&other.ranges).cloned().collect();
        Part { rows, ranges }
    }
}

/// Runs the stream over `inputs`, in parts cut at `cuts`, with `beneath` as the older data.
fn compact(
    inputs: &Part,
    beneath: &Part,
    boundaries: &[u64],
    zero: bool,
    cuts: &[u8],
) -> (Part, StreamCounts) {
    let stripes = SnapshotStripes::new(boundaries.to_vec());
    // Each third of them is a run of its own.
    let mut tombstones = RangeTombstoneRuns::default();
    tombstones.push_single(
        (0..3).map(|run| {
            Arc::new(FragmentedTombstones::new(inputs.ranges.iter().skip(run).step_by(3)))
        }),
    );
    let surviving =
        surviving_tombstones(&inputs.ranges, &stripes, |start, end| !beneath.touches(start, end));
    let mut cuts: Vec<Vec<u8>> = cuts.iter().map(|&cut| vec![cut]).collect();
    cuts.sort();
    let mut bounds: Vec<Option<&[u8]>> = vec![None];
    bounds.extend(cuts.iter().map(|cut| Some(cut.as_slice())));
    bounds.push(None);
    let (mut out, mut counts) = (Part::default(), StreamCounts::default());
    for pair in bounds.windows(2) {
        let bottom = |key: &[u8]| !beneath.touches(key, &[key, &[0]].concat());
        let inner = RowCursor::new(inputs.rows.clone());
        let mut stream =
            CompactionStream::new(inner, tombstones.clone(), stripes.clone(), zero, bottom)
                .within(pair[0], pair[1]);
        while let Some(entry) = stream.next_entry().unwrap() {
            out.rows.push(Row {
                key: entry.key.to_vec(),
                sequence: entry.sequence,
                kind: entry.kind,
                value: entry.value.to_vec(),
            });
        }
        assert!(stream.next_entry().unwrap().is_none());
        counts.add(&stream.counts());
        out.ranges.extend(surviving.within(pair[0], pair[1]).map(RangeTombstoneRef::to_owned));
    }
    (out, counts)
}

/// Rows that the rules keep, found by checking every row for every reader.
fn naive_survivors(inputs: &Part, beneath: &Part, boundaries: &[u64]) -> Vec<Row> {
    let last = boundaries.iter().max().copied().unwrap_or(0);
    let oldest = boundaries.iter().min().copied();
    let seen_at = |row: &Row, reader: u64| {
        row.sequence <= reader
            && !inputs.rows.iter().any(|other| {
                other.key == row.key && other.sequence > row.sequence && other.sequence <= reader
            })
            && !inputs.ranges.iter().any(|t| {
                t.start <= row.key
                    && row.key < t.end
                    && t.sequence > row.sequence
                    && t.sequence <= reader
            })
    };
    let keep = |row: &&Row| {
        let seen = row.sequence > last || boundaries.iter().any(|&reader| seen_at(row, reader));
        let idle = row.kind == ValueKind::Delete
            && oldest.is_some_and(|oldest| row.sequence <= oldest)
            && !beneath.touches(&row.key, &[&row.key, [0].as_slice()].concat());
        seen && !idle
    };
    let mut kept: Vec<Row> = inputs.rows.iter().filter(keep).cloned().collect();
    kept.sort_by(|a, b| cmp_internal(&a.key, a.sequence, &b.key, b.sequence));
    kept
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn readers_see_the_same_before_and_after_compaction(
        history in proptest::collection::vec(write(), 1..70),
        from in 0usize..40,
        width in 0usize..60,
        snapshots in proptest::collection::vec(0u64..75, 0..4),
        visible in 0u64..80,
        zero in any::<bool>(),
        cuts in proptest::collection::vec(0u8..16, 0..3),
    ) {
        let from = from.min(history.len());
        let to = (from + width).min(history.len());
        let beneath = Part::of(&history, 0, from);
        let inputs = Part::of(&history, from, to);
        let above = Part::of(&history, to, history.len());
        let mut boundaries: Vec<u64> = snapshots.into_iter().filter(|s| *s <= visible).collect();
        boundaries.push(visible);

        let (out, counts) = compact(&inputs, &beneath, &boundaries, zero, &cuts);

        prop_assert_eq!(counts.check(inputs.rows.len() as u64), Ok(()));
        prop_assert_eq!(counts.entries_out, out.rows.len() as u64);
        for pair in out.rows.windows(2) {
            let (a, b) = (&pair[0], &pair[1]);
            prop_assert!(cmp_internal(&a.key, a.sequence, &b.key, b.sequence).is_lt());
        }
        let survivors = naive_survivors(&inputs, &beneath, &boundaries);
        let plain = |rows: &[Row]| -> Vec<_> {
            rows.iter().map(|r| (r.key.clone(), r.kind, r.value.clone())).collect()
        };
        prop_assert_eq!(plain(&out.rows), plain(&survivors));
        if !zero {
            prop_assert_eq!(&out.rows, &survivors);
            prop_assert_eq!(counts.zeroed, 0);
        }

        let before = above.plus(&inputs).plus(&beneath);
        let after = above.plus(&out).plus(&beneath);
        for reader in boundaries.iter().copied().chain(visible..90) {
            prop_assert_eq!(
                model(&before.rows, &before.ranges, reader),
                model(&after.rows, &after.ranges, reader),
                "at {}", reader
            );
        }
    }

    #[test]
    fn bottommost_without_snapshots_keeps_live_puts_only(
        history in proptest::collection::vec(write(), 1..70),
    ) {
        let inputs = Part::of(&history, 0, history.len());
        let (out, counts) = compact(&inputs, &Part::default(), &[1000], true, &[]);
        let live = model(&inputs.rows, &inputs.ranges, 1000);
        let left: Vec<_> = out.rows.into_iter().map(|r| (r.key, r.value)).collect();
        prop_assert_eq!(left, live.into_iter().collect::<Vec<_>>());
        prop_assert!(out.ranges.is_empty());
        if inputs.ranges.is_empty() {
            prop_assert_eq!(counts.zeroed, counts.entries_out);
        }
    }

    #[test]
    fn surviving_tombstones_hide_the_same_keys(
        list in proptest::collection::vec((0u8..20, 0u8..20, 1u64..30), 0..12),
        boundaries in proptest::collection::vec(0u64..31, 1..4),
        cut in 0u8..20,
    ) {
        let list: Vec<RangeTombstone> = list.into_iter()
            .map(|(a, b, sequence)| RangeTombstone { start: vec![a], end: vec![b], sequence })
            .collect();
        let before = FragmentedTombstones::new(&list);
        let stripes = SnapshotStripes::new(boundaries.clone());
        let kept = surviving_tombstones(&list, &stripes, |_, _| false);
        let again = surviving_tombstones(kept.iter(), &stripes, |_, _| false);
        prop_assert!(again.iter().eq(kept.iter()), "a second compaction changes nothing");
        prop_assert!(kept.iter().is_sorted() && kept.iter().len() <= 2 * list.len());
        let cut = [cut];
        let first: Vec<_> = kept.within(None, Some(&cut)).collect();
        let last: Vec<_> = kept.within(Some(&cut), None).collect();
        prop_assert!(first.iter().all(|t| t.end <= &cut[..]));
        prop_assert!(last.iter().all(|t| t.start >= &cut[..]));
        let after = FragmentedTombstones::new([first, last].concat());
        let visible = boundaries.iter().copied().max().unwrap_or(0);
        for key in 0u8..21 {
            for reader in boundaries.iter().copied().chain(visible..31) {
                prop_assert_eq!(before.covering(&[key], reader), after.covering(&[key], reader));
            }
        }
    }
}

#[test]
fn adjacent_fragments_are_joined() {
    let range = |start: u8, end: u8, sequence| RangeTombstone {
        start: vec![start],
        end: vec![end],
        sequence,
    };
    let list = [range(1, 9, 5), range(3, 4, 7), range(6, 7, 8)];
    assert_eq!(FragmentedTombstones::new(&list).len(), 5);
    let kept = surviving_tombstones(&list, &SnapshotStripes::new(vec![5, 10]), |_, _| false);
    let kept: Vec<_> = kept.iter().map(RangeTombstoneRef::to_owned).collect();
    assert_eq!(kept, [range(1, 9, 5), range(3, 4, 7), range(6, 7, 8)]);
}

#[test]
fn wrong_entry_count_is_detected() {
    let counts =
        StreamCounts { entries_in: 5, entries_out: 3, dropped_shadowed: 2, ..<_>::default() };
    assert_eq!(counts.check(5), Ok(()));
    assert!(counts.check(6).is_err());
    assert!(StreamCounts { entries_out: 4, ..counts }.check(5).is_err());
}
