//! What is written again in the last level, and that it ends.

use super::*;
use crate::compaction::pick::{PickOptions, RangePick, pick_range};

fn table<'a>(id: u64, bytes: u64, keys: &'a [u8; 2], sequences: (u64, u64)) -> TableFact<'a> {
    TableFact {
        id,
        bytes,
        entries: 100,
        deletes: 0,
        smallest: &keys[..1],
        largest: &keys[1..],
        largest_is_exclusive: false,
        sequence_min: sequences.0,
        sequence_max: sequences.1,
        kept_for: &[],
        busy: false,
    }
}

fn view(last: Vec<TableFact>) -> LevelsView {
    let mut levels = vec![Vec::new(); LEVELS];
    levels[LAST] = last;
    let options =
        PickOptions { level0_tables: 4, level_bytes_base: 1000, level_ratio: 10, table_bytes: 100 };
    LevelsView { levels, options, cursors: Vec::new() }
}

fn ids(pick: LastPick) -> Vec<u64> {
    match pick {
        LastPick::Run(pick) => {
            assert_eq!((pick.level, pick.target_level, pick.inputs.len()), (LAST, LAST, 1));
            pick.inputs[0].1.clone()
        }
        LastPick::Done => Vec::new(),
        LastPick::Blocked => panic!("blocked"),
    }
}

const ALL: (Option<&[u8]>, Option<&[u8]>) = (None, None);

#[test]
fn leftovers_wait_for_the_oldest_reader() {
    let merged = view(vec![table(1, 50, b"ac", (0, 0)), table(2, 50, b"df", (0, 9))]);
    assert_eq!(leftovers(&merged, &[8]), Leftovers { waits_for: Some(9), ..Leftovers::default() });
    let found = leftovers(&merged, &[9]).pick.unwrap();
    assert_eq!(found.inputs, [(LAST, vec![2])]);
    let moved = table(3, 50, b"gi", (4, 9));
    assert_eq!(leftovers(&view(vec![moved]), &[9]), Leftovers::default());
    let rich = TableFact { deletes: 30, ..moved };
    assert_eq!(leftovers(&view(vec![rich]), &[9]).pick.unwrap().inputs, [(LAST, vec![3])]);
    let busy = TableFact { busy: true, ..rich };
    assert_eq!(leftovers(&view(vec![busy]), &[9]), Leftovers::default());
}

/// What was kept for a newer reader waited for the oldest one.
#[test]
fn leftovers_of_a_newer_reader_go_before_the_oldest_one() {
    let kept = TableFact { kept_for: &[(3, 3), (6, 6)], ..table(1, 50, b"ac", (0, 9)) };
    let waits = leftovers(&view(vec![kept]), &[3, 6, 12]);
    assert_eq!((waits.pick, waits.waits_for_end_of), (None, vec![3, 6]));
    for readers in [&[3, 12][..], &[6, 12]] {
        let found = leftovers(&view(vec![kept]), readers).pick.unwrap();
        assert_eq!(found.inputs, [(LAST, vec![1])]);
        assert_eq!(ids(pick_last(&view(vec![kept]), Wanted::Stale(readers), ALL, &None)), [1]);
    }
}

/// A table was written again, with nothing dropped, as soon as one of several states was held no
/// more that all saw the same versions.
#[test]
fn versions_that_several_readers_see_go_with_the_last_of_them() {
    let kept = TableFact { kept_for: &[(3, 6)], ..table(1, 50, b"ac", (0, 9)) };
    for (readers, held) in [(&[2, 3, 5, 6, 12][..], &[3, 5, 6][..]), (&[2, 5, 12], &[5])] {
        let waits = leftovers(&view(vec![kept]), readers);
        assert_eq!((waits.pick, waits.waits_for_end_of), (None, held.to_vec()));
    }
    let found = leftovers(&view(vec![kept]), &[2, 12]).pick.unwrap();
    assert_eq!(found.inputs, [(LAST, vec![1])]);
}

#[test]
fn asked_for_every_table_with_numbers_is_written_again_once() {
    let last = vec![
        table(1, 50, b"ac", (4, 9)),
        table(2, 50, b"df", (0, 8)),
        table(3, 50, b"gi", (0, 0)),
        table(4, 50, b"jl", (0, 10)),
        table(5, 50, b"mo", (7, 7)),
    ];
    let view = view(last);
    let stale = |behind: &Behind| ids(pick_last(&view, Wanted::Stale(&[9]), ALL, behind));
    assert_eq!(stale(&None), [1, 2]);
    assert_eq!(stale(&end_of(b"f", false)), [5]);
    assert_eq!(stale(&end_of(b"d", true)), [2]);
    assert_eq!(stale(&end_of(b"o", false)), []);
    let part = (Some(&b"d"[..]), Some(&b"m"[..]));
    assert_eq!(ids(pick_last(&view, Wanted::Stale(&[10]), part, &None)), [2]);
}

#[test]
fn neighbours_are_joined_where_one_table_holds_them() {
    let clean = |id, bytes, keys| table(id, bytes, keys, (0, 0));
    let last = vec![
        clean(1, 90, b"ac"),
        clean(2, 30, b"df"),
        clean(3, 30, b"gi"),
        clean(4, 40, b"jl"),
        clean(5, 61, b"mo"),
    ];
    let mut view = view(last);
    assert_eq!(ids(pick_last(&view, Wanted::Small, ALL, &None)), [2, 3, 4]);
    assert_eq!(ids(pick_last(&view, Wanted::Small, ALL, &end_of(b"l", false))), []);
    // One that comes down between two of them has to be waited for.
    view.levels[LAST - 1] = vec![TableFact { busy: true, ..clean(6, 9, b"hh") }];
    assert_eq!(pick_last(&view, Wanted::Small, ALL, &None), LastPick::Blocked);
}

/// Two tables that are being joined may become one that covers the gap between them: nothing may
/// come down into it meanwhile.
#[test]
fn the_gap_between_joined_tables_is_lent_to_nobody() {
    let clean = |id, keys| table(id, 30, keys, (0, 0));
    let joined = |id, keys| TableFact { busy: true, ..clean(id, keys) };
    let mut view = view(vec![joined(1, b"ac"), joined(2, b"mo")]);
    view.levels[LAST - 1] = vec![clean(3, b"eg"), clean(4, b"qs")];
    let down = |end: &[u8]| pick_range(&view, LAST - 1, None, Some(end));
    assert_eq!(down(b"p"), RangePick::Blocked);
    let RangePick::Run(behind) = down(b"z") else { panic!("nothing picked") };
    assert_eq!(behind.inputs, [(LAST - 1, vec![4])]);
}
