//! Scripts about flushes, compactions, snapshots, iterators and checkpoints.

use umbel::Durability::Synced;

use crate::simulation::script::{
    Op, Script, compressed, delete, delete_range, key, put, roomy, small,
};

fn tiny_script(name: &str) -> Script {
    Script::new(name).keyspace("a", small())
}

/// Returns the scripts.
pub fn scripts() -> Vec<Script> {
    let mut scripts = flushes();
    scripts.extend(compactions());
    scripts.extend(readers());
    scripts
}

fn flushes() -> Vec<Script> {
    let roomy = |name: &str| Script::new(name).keyspace("a", roomy());
    let mut unmapped = roomy("unmapped-flush")
        .fill("a", 0..8, "x", 100)
        .op(Op::Flush)
        .fill("a", 4..12, "y", 100)
        .op(Op::Reopen)
        .fill("a", 0..2, "z", 100)
        .op(Op::Kill);
    unmapped.mapping = false;
    vec![
        unmapped,
        roomy("flush-once").fill("a", 0..8, "x", 50).op(Op::Flush).put("a", 1, "y", 50),
        roomy("flush-unsynced-order")
            .fill("a", 0..4, "x", 50)
            .op(Op::FlushOne("a"))
            .fill("a", 2..6, "y", 50)
            .op(Op::FlushOne("a"))
            .delete("a", 0)
            .batch(Synced, vec![put("a", 3, "z", 5)]),
        tiny_script("automatic-flushes").fill("a", 0..60, "x", 300),
        roomy("flush-of-deletes")
            .fill("a", 0..10, "x", 50)
            .op(Op::Flush)
            .delete("a", 2)
            .delete_range("a", 4..7)
            .op(Op::Flush)
            .op(Op::Kill)
            .put("a", 5, "y", 50)
            .op(Op::Flush),
        roomy("flush-only-a-range-delete")
            .fill("a", 0..10, "x", 50)
            .op(Op::Flush)
            .delete_range("a", 0..5)
            .op(Op::Flush)
            .op(Op::Reopen)
            .op(Op::Compact("a", None, None)),
    ]
}

fn compactions() -> Vec<Script> {
    let layered = |name: &str, options| {
        Script::new(name)
            .keyspace("a", options)
            .fill("a", 0..30, "x", 200)
            .fill("a", 10..40, "y", 200)
            .op(Op::Settle)
            .fill("a", 0..20, "z", 200)
            .op(Op::Compact("a", None, None))
            .delete_range("a", 5..15)
            .op(Op::Flush)
            .op(Op::Compact("a", None, None))
            .op(Op::Read)
    };
    vec![
        layered("compaction", small()),
        layered("compressed-compaction", compressed()),
        tiny_script("trivial-moves").fill("a", 0..80, "x", 250).op(Op::Settle).op(Op::Reopen),
        tiny_script("deep-levels")
            .fill("a", 0..60, "x", 300)
            .fill("a", 20..80, "y", 300)
            .fill("a", 0..60, "z", 100)
            .op(Op::Compact("a", None, None))
            .delete("a", 30),
        tiny_script("compact-a-range")
            .fill("a", 0..50, "x", 200)
            .op(Op::Flush)
            .fill("a", 20..40, "y", 200)
            .op(Op::Compact("a", Some(key(25)), Some(key(30))))
            .op(Op::Kill)
            .op(Op::Compact("a", Some(key(0)), None)),
        tiny_script("tombstones-to-the-bottom")
            .fill("a", 0..40, "x", 200)
            .op(Op::Compact("a", None, None))
            .batch(Synced, (0..40).step_by(2).map(|n| delete("a", n)).collect())
            .op(Op::Flush)
            .op(Op::Compact("a", None, None))
            .batch(Synced, vec![delete_range("a", 0..40)])
            .op(Op::Compact("a", None, None))
            .op(Op::Reopen)
            .put("a", 3, "y", 20),
        tiny_script("range-over-part-of-a-table")
            .fill("a", 0..40, "x", 200)
            .op(Op::Compact("a", None, None))
            .batch(Synced, vec![delete_range("a", 0..23)])
            .op(Op::Compact("a", None, None))
            .op(Op::Reopen),
        tiny_script("overwrites")
            .fill("a", 0..5, "x", 500)
            .fill("a", 0..5, "y", 500)
            .fill("a", 0..5, "z", 500)
            .fill("a", 0..5, "w", 500)
            .op(Op::Flush)
            .op(Op::Settle),
    ]
}

/// Reads turn deleted ranges into skip spans; later puts into these spans must be found.
fn puts_into_skip_spans() -> Script {
    // Compactions would drop the deleted entries.
    let mut script = Script::new("puts-into-skip-spans").keyspace("a", roomy());
    script = script.fill("a", 0..80, "x", 20);
    for number in 2..78 {
        script = script.delete("a", number);
    }
    for number in [9, 20, 77] {
        script = script.op(Op::Read).op(Op::Read).put("a", number, "y", 20);
    }
    script.op(Op::Read).op(Op::Flush).put("a", 12, "z", 20).op(Op::Read)
}

fn readers() -> Vec<Script> {
    vec![
        tiny_script("snapshot-across-compactions")
            .fill("a", 0..20, "x", 200)
            .op(Op::Snapshot)
            .fill("a", 5..25, "y", 200)
            .delete_range("a", 0..10)
            .op(Op::Flush)
            .op(Op::Compact("a", None, None))
            .op(Op::Release)
            .op(Op::Compact("a", None, None)),
        puts_into_skip_spans(),
        tiny_script("iterator-across-compactions")
            .fill("a", 0..20, "x", 200)
            .op(Op::HoldIterator("a"))
            .fill("a", 5..25, "y", 200)
            .op(Op::Compact("a", None, None))
            .op(Op::ReadIterator)
            .put("a", 1, "z", 20),
        tiny_script("checkpoint")
            .fill("a", 0..30, "x", 200)
            .op(Op::Checkpoint("/data/copy"))
            .fill("a", 10..20, "y", 200)
            .op(Op::Compact("a", None, None))
            .op(Op::Checkpoint("/data/second/copy"))
            .op(Op::Kill)
            .put("a", 1, "z", 20),
        tiny_script("read-only-with-tables")
            .fill("a", 0..40, "x", 200)
            .op(Op::ReadOnly)
            .fill("a", 0..10, "y", 200)
            .op(Op::KillReadOnly),
    ]
}
