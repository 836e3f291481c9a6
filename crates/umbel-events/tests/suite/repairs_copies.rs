//! Repairs of stores into which somebody put what is of another time, or of another copy of the
//! store: one that was restored from a backup and went on.

use super::repairs::{check, chunk, fix, specimen, without_index};
use super::repairs_exchanged::{TABLE, left};
use super::repairs_misled::put;

/// A chunk's file was called as its highest version: the number behind that is 0, and the chunk that
/// was written anew was taken for the one that had been appended to. All of it was lost, with exit
/// code 0.
#[test]
fn the_highest_version_is_no_reason_to_begin_again() {
    let (sim, before) = specimen(90);
    for has_table in [true, false] {
        let what = format!("table: {has_table}");
        let named = sim.clone_disk();
        put(&named, "/events/log/00000002-18446744073709551615.chunk", &sim.read(chunk(2)));
        put(&named, "/events/log/18446744073709551615.chunk", &sim.read(chunk(1)));
        named.remove(chunk(2));
        without_index(&named);
        if !has_table {
            named.remove(TABLE);
        }
        let report = fix(&named);
        assert!(!report.is_loss(), "{what}: {report}");
        check(&named, &before, &report, &what);
        assert_eq!(left(&named), before.len() + 1, "{what}");
    }
}
