//! Scripts about commits, the WAL, syncs and recovery.

use umbel::Durability::{Buffered, Synced};

use super::empty_value;
use crate::simulation::script::{
    Condition, Op, Script, Write, delete, delete_range, key, put, roomy, value,
};

fn wal_script(name: &str) -> Script {
    Script::new(name).keyspace("a", roomy())
}

/// Returns the scripts.
pub fn scripts() -> Vec<Script> {
    let mut scripts = plain();
    scripts.extend(rotation());
    scripts.extend(reopens());
    scripts.extend(with_less_memory());
    scripts
}

fn plain() -> Vec<Script> {
    let mut deep = wal_script("deep-folder").batch(Synced, vec![put("a", 1, "x", 10)]);
    deep.folder = "/data/one/two/three/store";
    let mut always = wal_script("synced-singles").fill("a", 0..6, "x", 20).delete("a", 2);
    always.durability = Synced;
    let mut unmapped = wal_script("unmapped-log")
        .fill("a", 0..4, "x", 300)
        .batch(Synced, vec![put("a", 5, "x", 300)])
        .fill("a", 6..20, "y", 400)
        .op(Op::Sync)
        .fill("a", 20..24, "z", 100);
    unmapped.mapping = false;
    let absent = |n| Condition::Absent("a", key(n));
    let is = |n, tag: &str, len| Condition::Value("a", key(n), value(n, tag, len));
    vec![
        deep,
        always,
        unmapped,
        wal_script("buffered-singles").fill("a", 0..12, "x", 30).delete("a", 3).delete("a", 99),
        wal_script("synced-batches")
            .batch(Synced, (0..3).map(|n| put("a", n, "x", 20)).collect())
            .batch(Synced, vec![put("a", 1, "y", 20), delete("a", 0)])
            .batch(Synced, vec![delete_range("a", 0..2), put("a", 0, "z", 5)]),
        wal_script("mixed-durability")
            .put("a", 0, "x", 20)
            .batch(Synced, vec![put("a", 1, "x", 20)])
            .put("a", 2, "x", 20)
            .put("a", 3, "x", 20)
            .batch(Synced, vec![put("a", 2, "y", 20)])
            .put("a", 4, "x", 20),
        wal_script("sync-call").fill("a", 0..5, "x", 40).op(Op::Sync).fill("a", 2..7, "y", 40),
        wal_script("empty-and-binary")
            .op(Op::Single(Write::Put("a", empty_value(), empty_value())))
            .op(Op::Single(Write::Put("a", vec![0], vec![0; 3])))
            .op(Op::Single(Write::Put("a", vec![255; 40], empty_value())))
            .batch(
                Synced,
                vec![Write::Delete("a", empty_value()), Write::Put("a", vec![0, 0], vec![1])],
            )
            .op(Op::Flush)
            .op(Op::Read)
            .op(Op::Single(Write::Put("a", empty_value(), vec![7]))),
        wal_script("conditional-batches")
            .conditional_batch(Synced, vec![absent(1)], vec![put("a", 1, "x", 9)])
            .conditional_batch(Synced, vec![absent(1)], vec![put("a", 1, "wrong", 9)])
            .conditional_batch(Buffered, vec![is(1, "x", 9)], vec![put("a", 1, "y", 9)])
            .conditional_batch(Buffered, vec![is(1, "x", 9)], vec![delete("a", 1)])
            .op(Op::Snapshot)
            .put("a", 2, "x", 9)
            .conditional_batch(
                Synced,
                vec![Condition::Unchanged("a", key(2))],
                vec![put("a", 3, "wrong", 9)],
            )
            .op(Op::Flush)
            .conditional_batch(
                Synced,
                vec![Condition::Unchanged("a", key(1)), absent(7)],
                vec![put("a", 3, "right", 9), delete("a", 2)],
            )
            .op(Op::Read),
        wal_script("range-deletes-in-the-log")
            .fill("a", 0..10, "x", 20)
            .delete_range("a", 2..6)
            .put("a", 4, "y", 20)
            .delete_range("a", 0..3)
            .batch(Synced, vec![delete_range("a", 8..10), put("a", 9, "y", 10)]),
    ]
}

fn rotation() -> Vec<Script> {
    let big = |n, len| vec![put("a", n, "big", len)];
    vec![
        wal_script("log-rotation").fill("a", 0..30, "x", 400),
        wal_script("log-rotation-synced")
            .fill("a", 0..9, "x", 400)
            .batch(Synced, vec![put("a", 9, "x", 400)])
            .fill("a", 10..19, "x", 400)
            .batch(Synced, vec![put("a", 9, "y", 400)])
            .fill("a", 20..29, "x", 400),
        wal_script("several-unsynced-segments").fill("a", 0..40, "x", 700).op(Op::Sync).fill(
            "a",
            0..20,
            "y",
            700,
        ),
        wal_script("big-values")
            .batch(Buffered, big(1, 20_000))
            .batch(Synced, big(2, 9_000))
            .put("a", 3, "x", 10)
            .batch(Buffered, big(1, 30_000)),
        wal_script("rotation-and-flush")
            .fill("a", 0..20, "x", 400)
            .op(Op::Flush)
            .fill("a", 10..30, "y", 400)
            .op(Op::Flush)
            .fill("a", 0..10, "z", 400),
        wal_script("rotation-then-kill")
            .fill("a", 0..20, "x", 500)
            .op(Op::Kill)
            .fill("a", 5..15, "y", 500)
            .op(Op::Sync)
            .fill("a", 0..4, "z", 500),
    ]
}

/// Least size of all memtables together.
const MEMTABLE_BYTES_MIN: u64 = 16 << 10;

/// Returns scripts whose WAL exceeds the memtables of the next open, and scripts with the least
/// memory.
fn with_less_memory() -> Vec<Script> {
    let two = |name: &str| wal_script(name).keyspace("b", roomy());
    let both = |n, tag| vec![put("a", n, tag, 200), put("b", n, tag, 200), delete("a", n + 1)];
    let mut spilled = two("recovery-into-tables")
        .fill("a", 0..24, "x", 1500)
        .fill("b", 0..14, "x", 1000)
        .delete_range("a", 3..6)
        .batch(Buffered, both(2, "y"))
        .op(Op::Kill)
        .fill("a", 5..20, "z", 900)
        .batch(Synced, both(7, "z"))
        .fill("b", 4..20, "z", 300)
        .op(Op::Kill)
        .op(Op::PowerCut(3));
    spilled.write_buffer_bytes = 256 << 10;
    spilled.write_buffer_bytes_later = Some(MEMTABLE_BYTES_MIN);
    let mut values = two("long-values-into-tables")
        .fill("a", 0..10, "x", 2000)
        .fill("b", 0..60, "x", 700)
        .fill("a", 5..12, "y", 2000)
        .op(Op::Kill)
        .fill("a", 0..4, "z", 2000)
        .delete_range("b", 0..9)
        .op(Op::Kill);
    values.write_buffer_bytes = 256 << 10;
    values.write_buffer_bytes_later = Some(MEMTABLE_BYTES_MIN);
    values.inline_value_bytes_max = 1000;
    let mut least = Script::new("least-memory-and-files")
        .keyspace("a", crate::simulation::script::small())
        .keyspace("b", crate::simulation::script::small())
        .fill("a", 0..40, "x", 300)
        .fill("b", 0..20, "x", 200)
        .op(Op::Snapshot)
        .fill("a", 10..30, "y", 400)
        .batch(Synced, both(3, "y"))
        .op(Op::Kill)
        .op(Op::Settle)
        .fill("b", 5..25, "z", 300)
        .op(Op::Read)
        .op(Op::PowerCut(5));
    least.uses_minimum_memory = true;
    vec![spilled, values, least]
}

fn reopens() -> Vec<Script> {
    let cuts = |name: &str, seeds: std::ops::Range<u64>| {
        seeds.fold(wal_script(name).fill("a", 0..8, "x", 300), |script, seed| {
            script
                .fill("a", seed as usize..seed as usize + 6, "y", 300)
                .batch(Synced, vec![put("a", 50, "s", 30)])
                .fill("a", 0..4, "z", 500)
                .op(Op::PowerCut(seed * 77 + 5))
        })
    };
    vec![
        wal_script("clean-reopen")
            .fill("a", 0..6, "x", 30)
            .op(Op::Reopen)
            .fill("a", 3..9, "y", 30)
            .op(Op::Reopen)
            .op(Op::Reopen)
            .delete("a", 1),
        wal_script("drop-reopen").fill("a", 0..6, "x", 30).op(Op::DropReopen).fill(
            "a",
            3..9,
            "y",
            30,
        ),
        wal_script("kill-reopen")
            .fill("a", 0..6, "x", 30)
            .op(Op::Kill)
            .fill("a", 3..9, "y", 30)
            .op(Op::Kill)
            .op(Op::Kill)
            .batch(Synced, vec![put("a", 0, "z", 30)]),
        cuts("power-cuts", 0..4),
        cuts("more-power-cuts", 4..9),
        wal_script("read-only-open")
            .fill("a", 0..6, "x", 30)
            .op(Op::ReadOnly)
            .fill("a", 2..4, "y", 30)
            .op(Op::KillReadOnly)
            .put("a", 9, "z", 30),
        wal_script("leftovers")
            .fill("a", 0..6, "x", 30)
            .op(Op::Leftovers)
            .fill("a", 3..9, "y", 30)
            .op(Op::Flush)
            .op(Op::Kill),
        wal_script("second-open").put("a", 1, "x", 9).op(Op::SecondOpen).put("a", 2, "x", 9),
        wal_script("reopen-with-old-logs")
            .fill("a", 0..30, "x", 400)
            .op(Op::Kill)
            .fill("a", 0..4, "y", 400)
            .op(Op::Kill)
            .fill("a", 0..4, "z", 400)
            .op(Op::Reopen)
            .fill("a", 0..4, "w", 400)
            .op(Op::Flush)
            .op(Op::Kill),
    ]
}
