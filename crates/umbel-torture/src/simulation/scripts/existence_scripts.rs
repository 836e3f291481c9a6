//! Scripts about existence filters: after every crash and close, the filter must exclude no present
//! key.

use umbel::Durability::{Buffered, Synced};
use umbel::{ExistenceSize, HashKind};

use crate::simulation::script::{
    KeyspaceOptions, Op, Script, compressed, delete, put, roomy, small, unlogged,
    with_existence_filter,
};

/// Returns the scripts.
pub fn scripts() -> Vec<Script> {
    let mut scripts = with_a_log();
    scripts.extend(changed());
    scripts.extend(without_a_log());
    scripts
}

fn tiny_existence_filter(options: KeyspaceOptions) -> KeyspaceOptions {
    KeyspaceOptions { hash: HashKind::SipHash13, ..options }
}

fn with_a_log() -> Vec<Script> {
    let one = |name: &str, options| Script::new(name).keyspace("a", with_existence_filter(options));
    vec![
        one("existence-replayed", roomy())
            .fill("a", 0..8, "x", 30)
            .op(Op::Kill)
            .fill("a", 8..12, "y", 30)
            .op(Op::Sync)
            .op(Op::Kill)
            .op(Op::Read)
            .put("a", 12, "z", 30),
        one("existence-flushed", small())
            .fill("a", 0..30, "x", 300)
            .op(Op::Read)
            .delete_range("a", 3..9)
            .op(Op::Settle)
            .op(Op::Kill)
            .fill("a", 25..40, "y", 200)
            .op(Op::Read),
        one("existence-siphash", tiny_existence_filter(small()))
            .fill("a", 0..12, "x", 300)
            .op(Op::Flush)
            .batch(Synced, vec![put("a", 20, "y", 40), delete("a", 3)])
            .op(Op::Reopen)
            .fill("a", 21..30, "y", 200)
            .op(Op::PowerCut(7))
            .op(Op::Read)
            .put("a", 31, "z", 30),
        one("existence-snapshot", roomy())
            .fill("a", 0..6, "x", 30)
            .op(Op::Snapshot)
            .delete_range("a", 0..4)
            .delete("a", 5)
            .op(Op::Flush)
            .op(Op::Compact("a", None, None))
            .keyspace(
                "a",
                KeyspaceOptions {
                    existence_filter: ExistenceSize::Growing { first_keys: 40 },
                    ..roomy()
                },
            )
            .op(Op::Release)
            .fill("a", 2..9, "y", 30),
        Script::new("existence-beside-others")
            .keyspace("a", with_existence_filter(roomy()))
            .keyspace("b", small())
            .keyspace("c", with_existence_filter(compressed()))
            .batch(Buffered, vec![put("a", 1, "x", 50), put("b", 1, "x", 50), put("c", 1, "x", 9)])
            .op(Op::FlushOne("c"))
            .batch(Synced, vec![put("a", 2, "x", 50), put("b", 2, "x", 50), put("c", 2, "x", 9)])
            .op(Op::Kill)
            .batch(Buffered, vec![put("a", 3, "y", 50), put("c", 3, "y", 50)])
            .op(Op::Flush)
            .op(Op::Checkpoint("/data/copy")),
    ]
}

fn changed() -> Vec<Script> {
    let fixed = |bytes, options| KeyspaceOptions {
        existence_filter: ExistenceSize::Fixed { bytes },
        ..options
    };
    vec![
        Script::new("existence-later")
            .keyspace("a", roomy())
            .fill("a", 0..4, "x", 30)
            .op(Op::Flush)
            .fill("a", 4..8, "x", 30)
            .keyspace("a", with_existence_filter(roomy()))
            .op(Op::Read)
            .fill("a", 8..12, "x", 30)
            .op(Op::Kill)
            .op(Op::Read),
        Script::new("existence-off-and-on")
            .keyspace("a", with_existence_filter(roomy()))
            .fill("a", 0..6, "x", 30)
            .op(Op::Flush)
            .keyspace("a", roomy())
            .fill("a", 6..9, "y", 30)
            .keyspace("a", with_existence_filter(roomy()))
            .fill("a", 9..12, "z", 30)
            .op(Op::Reopen)
            .op(Op::Read),
        Script::new("existence-other-sizes")
            .keyspace("a", fixed(4096, small()))
            .fill("a", 0..20, "x", 100)
            .keyspace("a", fixed(8192, small()))
            .fill("a", 20..30, "x", 100)
            .op(Op::Reopen)
            .keyspace("a", with_existence_filter(small()))
            .fill("a", 30..34, "x", 100)
            .op(Op::Kill)
            .op(Op::Read),
        Script::new("existence-dropped-and-created")
            .keyspace("a", with_existence_filter(small()))
            .fill("a", 0..12, "x", 300)
            .op(Op::Drop("a"))
            .keyspace("a", with_existence_filter(small()))
            .fill("a", 6..16, "y", 300)
            .op(Op::Kill)
            .op(Op::Drop("a"))
            .op(Op::Reopen),
    ]
}

fn without_a_log() -> Vec<Script> {
    vec![
        Script::new("existence-unlogged")
            .keyspace("n", with_existence_filter(unlogged()))
            .keyspace("a", with_existence_filter(roomy()))
            .marker_batch("n", b"one", vec![put("n", 1, "x", 50), put("n", 2, "x", 50)])
            .op(Op::FlushAll(vec!["n"], b"two".to_vec()))
            .marker_batch("n", b"three", vec![put("n", 3, "lost", 50)])
            .op(Op::Kill)
            .marker_batch("n", b"four", vec![put("n", 4, "x", 50), delete("n", 1)])
            .put("a", 1, "x", 30)
            .op(Op::Flush)
            .op(Op::PowerCut(3))
            .marker_batch("n", b"five", vec![put("n", 5, "x", 50)])
            .op(Op::Reopen)
            .op(Op::Read),
    ]
}
