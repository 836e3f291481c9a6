//! Tests of the rewrites in the last level; the tests also check that the rewrites end.

use super::*;
use crate::compaction::picker::{PickOptions, RangePick, pick_range};

fn table<'a>(id: u64, bytes: u64, keys: &'a [u8; 2], sequences: (u64, u64)) -> TableInfo<'a> {
    TableInfo {
        id,
        bytes,
        entries: 100,
        deletes: 0,
        smallest: &keys[..1],
        largest: &keys[1..],
        largest_is_exclusive: false,
        sequence_min: sequences.0,
        sequence_max: sequences.1,
        retained_for: &[],
        busy: false,
    }
}

fn view(last: Vec<TableInfo>) -> PickerInput {
    let mut levels = vec![Vec::new(); LEVELS];
    levels[LAST_LEVEL] = last;
    let options =
        PickOptions { level0_tables: 4, level_bytes_base: 1000, level_ratio: 10, table_bytes: 100 };
    PickerInput { levels, options, cursors: Vec::new() }
}

fn ids(pick: BottommostPick) -> Vec<u64> {
    match pick {
        BottommostPick::Run(pick) => {
            assert_eq!(
                (pick.level, pick.target_level, pick.inputs.len()),
                (LAST_LEVEL, LAST_LEVEL, 1)
            );
            pick.inputs[0].1.clone()
        }
        BottommostPick::Done => Vec::new(),
        BottommostPick::Blocked => panic!("blocked"),
    }
}

const ALL: (Option<&[u8]>, Option<&[u8]>) = (None, None);

#[test]
fn garbage_waits_for_the_oldest_reader() {
    let merged = view(vec![table(1, 50, b"ac", (0, 0)), table(2, 50, b"df", (0, 9))]);
    assert_eq!(
        pick_rewrite(&merged, &[8]),
        BottommostRewrite { oldest_reader_needed: Some(9), ..BottommostRewrite::default() }
    );
    let found = pick_rewrite(&merged, &[9]).pick.unwrap();
    assert_eq!(found.inputs, [(LAST_LEVEL, vec![2])]);
    let moved = table(3, 50, b"gi", (4, 9));
    assert_eq!(pick_rewrite(&view(vec![moved]), &[9]), BottommostRewrite::default());
    let rich = TableInfo { deletes: 30, ..moved };
    assert_eq!(pick_rewrite(&view(vec![rich]), &[9]).pick.unwrap().inputs, [(LAST_LEVEL, vec![3])]);
    let busy = TableInfo { busy: true, ..rich };
    assert_eq!(pick_rewrite(&view(vec![busy]), &[9]), BottommostRewrite::default());
}

/// Garbage kept for a newer reader stayed until the oldest reader ended.
#[test]
fn garbage_of_newer_reader_is_dropped_before_the_oldest() {
    let kept = TableInfo { retained_for: &[(3, 3), (6, 6)], ..table(1, 50, b"ac", (0, 9)) };
    let waits = pick_rewrite(&view(vec![kept]), &[3, 6, 12]);
    assert_eq!((waits.pick, waits.blocking_snapshots), (None, vec![3, 6]));
    for readers in [&[3, 12][..], &[6, 12]] {
        let found = pick_rewrite(&view(vec![kept]), readers).pick.unwrap();
        assert_eq!(found.inputs, [(LAST_LEVEL, vec![1])]);
        assert_eq!(
            ids(pick_in_range(&view(vec![kept]), RewriteReason::Stale(readers), ALL, &None)),
            [1]
        );
    }
}

/// Story: after the drop of one of several snapshots that saw the same versions, the table was
/// rewritten and nothing was dropped from it.
#[test]
fn shared_versions_are_dropped_with_their_last_reader() {
    let kept = TableInfo { retained_for: &[(3, 6)], ..table(1, 50, b"ac", (0, 9)) };
    for (readers, held) in [(&[2, 3, 5, 6, 12][..], &[3, 5, 6][..]), (&[2, 5, 12], &[5])] {
        let waits = pick_rewrite(&view(vec![kept]), readers);
        assert_eq!((waits.pick, waits.blocking_snapshots), (None, held.to_vec()));
    }
    let found = pick_rewrite(&view(vec![kept]), &[2, 12]).pick.unwrap();
    assert_eq!(found.inputs, [(LAST_LEVEL, vec![1])]);
}

/// Each snapshot was listed once for each table that keeps versions for it.
#[test]
fn snapshots_that_block_many_tables_are_listed_once() {
    let states = [(1, 5), (2, 3), (4, 9), (12, 12)];
    let tables = (0..1_000)
        .map(|id| TableInfo { retained_for: &states, ..table(id, 50, b"ac", (0, 9)) })
        .collect();
    let readers: Vec<u64> = (0..10).chain([12, 20]).collect();
    let waits = pick_rewrite(&view(tables), &readers);
    assert_eq!(waits.blocking_snapshots, [1, 2, 3, 4, 5, 6, 7, 8, 9, 12]);
}

#[test]
fn manual_compaction_rewrites_each_numbered_table_once() {
    let last = vec![
        table(1, 50, b"ac", (4, 9)),
        table(2, 50, b"df", (0, 8)),
        table(3, 50, b"gi", (0, 0)),
        table(4, 50, b"jl", (0, 10)),
        table(5, 50, b"mo", (7, 7)),
    ];
    let view = view(last);
    let stale = |resume_after: &ResumeKey| {
        ids(pick_in_range(&view, RewriteReason::Stale(&[9]), ALL, resume_after))
    };
    assert_eq!(stale(&None), [1, 2]);
    assert_eq!(stale(&resume_key_of(b"f", false)), [5]);
    assert_eq!(stale(&resume_key_of(b"d", true)), [2]);
    assert_eq!(stale(&resume_key_of(b"o", false)), []);
    let part = (Some(&b"d"[..]), Some(&b"m"[..]));
    assert_eq!(ids(pick_in_range(&view, RewriteReason::Stale(&[10]), part, &None)), [2]);
}

#[test]
fn neighbours_that_fit_one_table_are_joined() {
    let clean = |id, bytes, keys| table(id, bytes, keys, (0, 0));
    let last = vec![
        clean(1, 90, b"ac"),
        clean(2, 30, b"df"),
        clean(3, 30, b"gi"),
        clean(4, 40, b"jl"),
        clean(5, 61, b"mo"),
    ];
    let mut view = view(last);
    assert_eq!(ids(pick_in_range(&view, RewriteReason::Small, ALL, &None)), [2, 3, 4]);
    assert_eq!(
        ids(pick_in_range(&view, RewriteReason::Small, ALL, &resume_key_of(b"l", false))),
        []
    );
    // A compaction that writes between two of them blocks the pick.
    view.levels[LAST_LEVEL - 1] = vec![TableInfo { busy: true, ..clean(6, 9, b"hh") }];
    assert_eq!(pick_in_range(&view, RewriteReason::Small, ALL, &None), BottommostPick::Blocked);
}

/// Two tables that are being joined can become one table that covers the gap between them. So no
/// other compaction must write into the gap meanwhile.
#[test]
fn gap_between_joined_tables_is_reserved() {
    let clean = |id, keys| table(id, 30, keys, (0, 0));
    let joined = |id, keys| TableInfo { busy: true, ..clean(id, keys) };
    let mut view = view(vec![joined(1, b"ac"), joined(2, b"mo")]);
    view.levels[LAST_LEVEL - 1] = vec![clean(3, b"eg"), clean(4, b"qs")];
    let down = |end: &[u8]| pick_range(&view, LAST_LEVEL - 1, None, Some(end));
    assert_eq!(down(b"p"), RangePick::Blocked);
    let RangePick::Run(pick) = down(b"z") else { panic!("nothing picked") };
    assert_eq!(pick.inputs, [(LAST_LEVEL - 1, vec![4])]);
}
