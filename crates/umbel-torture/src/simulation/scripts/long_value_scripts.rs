//! Scripts about long values.

use umbel::Durability::{Buffered, Synced};

use crate::simulation::script::{
    Condition, KeyspaceOptions, Op, Script, delete, delete_range, key, put, roomy, small, unlogged,
    value,
};

/// Creates a script in which values over 100 bytes are long values.
fn long_value_script(name: &str, options: KeyspaceOptions) -> Script {
    Script { inline_value_bytes_max: 100, ..Script::new(name) }.keyspace("a", options)
}

/// Returns the scripts.
pub fn scripts() -> Vec<Script> {
    let mut scripts = writes();
    scripts.extend(lives());
    scripts
}

fn writes() -> Vec<Script> {
    let mut always = long_value_script("long-values-synced", roomy()).fill("a", 0..3, "x", 200);
    always.durability = Synced;
    let is = |n, tag: &str, len| Condition::Value("a", key(n), value(n, tag, len));
    vec![
        always,
        long_value_script("long-values", roomy())
            .put("a", 1, "x", 300)
            .put("a", 2, "x", 20)
            .put("a", 1, "y", 700)
            .op(Op::Flush)
            .put("a", 3, "x", 101)
            .delete("a", 1)
            .op(Op::Kill)
            .put("a", 4, "x", 1500),
        long_value_script("long-values-batches", roomy())
            .batch(Synced, vec![put("a", 1, "x", 200), put("a", 2, "x", 30), put("a", 3, "x", 400)])
            .conditional_batch(Buffered, vec![is(1, "x", 200)], vec![put("a", 1, "y", 250)])
            .conditional_batch(Synced, vec![is(1, "x", 200)], vec![put("a", 5, "wrong", 250)])
            .batch(Buffered, vec![put("a", 6, "x", 200), delete("a", 3), put("a", 6, "y", 300)])
            .op(Op::Flush)
            .conditional_batch(Synced, vec![is(6, "y", 300)], vec![delete("a", 6)])
            .op(Op::Reopen),
        long_value_script("long-values-over-log-segments", roomy())
            .fill("a", 0..3, "x", 200)
            .fill("a", 3..50, "x", 90)
            .fill("a", 50..53, "x", 200)
            .op(Op::Sync)
            .fill("a", 2..4, "y", 200),
        long_value_script("long-values-without-a-log", unlogged())
            .fill("a", 0..3, "x", 200)
            .marker_batch("a", b"one", vec![put("a", 1, "y", 300)])
            .op(Op::FlushAll(vec!["a"], b"two".to_vec()))
            .fill("a", 2..4, "z", 200)
            .op(Op::Kill)
            .put("a", 9, "x", 200),
    ]
}

fn lives() -> Vec<Script> {
    vec![
        long_value_script("long-values-compacted", small())
            .fill("a", 0..8, "x", 200)
            .op(Op::Flush)
            .fill("a", 4..10, "y", 150)
            .op(Op::Compact("a", None, None))
            .batch(Synced, vec![delete("a", 5), delete_range("a", 0..3), put("a", 7, "z", 9)])
            .op(Op::Compact("a", None, None))
            .op(Op::Reopen),
        long_value_script("long-values-read-across-compactions", small())
            .fill("a", 0..4, "x", 200)
            .op(Op::HoldIterator("a"))
            .op(Op::Snapshot)
            .fill("a", 0..4, "y", 200)
            .op(Op::Compact("a", None, None))
            .op(Op::Release)
            .op(Op::Compact("a", None, None))
            .op(Op::ReadIterator)
            .put("a", 1, "z", 200),
        long_value_script("long-values-checkpoint", roomy())
            .fill("a", 0..4, "x", 200)
            .op(Op::Checkpoint("/data/copy"))
            .fill("a", 2..6, "y", 200)
            .op(Op::Compact("a", None, None))
            .op(Op::Checkpoint("/data/second/copy"))
            .put("a", 1, "z", 200),
        long_value_script("long-values-moved-down", small())
            .fill("a", 0..3, "x", 200)
            .fill("a", 10..60, "x", 90)
            .op(Op::Settle)
            .fill("a", 70..90, "x", 150)
            .op(Op::Settle)
            .op(Op::ReadOnly),
        long_value_script("long-values-of-a-dropped-keyspace", roomy())
            .keyspace("b", roomy())
            .fill("a", 0..2, "x", 200)
            .fill("b", 0..2, "x", 200)
            .op(Op::FlushOne("a"))
            .put("a", 5, "y", 200)
            .op(Op::Drop("a"))
            .op(Op::Kill)
            .keyspace("a", roomy())
            .put("a", 5, "z", 200)
            .op(Op::Leftovers)
            .put("b", 3, "z", 200),
    ]
}
