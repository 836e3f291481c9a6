//! Scripts about several keyspaces, keyspaces without a WAL, markers and the manifest.

use umbel::Durability::{Buffered, Synced};

use crate::simulation::script::{Op, Script, compressed, delete, put, roomy, small, unlogged};

/// Returns the scripts.
pub fn scripts() -> Vec<Script> {
    let mut scripts = several_keyspaces();
    scripts.extend(without_wal());
    scripts.extend(manifests());
    scripts
}

fn several_keyspaces() -> Vec<Script> {
    let two = |name: &str| Script::new(name).keyspace("a", roomy()).keyspace("b", small());
    vec![
        two("batches-across-keyspaces")
            .batch(Buffered, vec![put("a", 1, "x", 50), put("b", 1, "x", 50)])
            .batch(Synced, vec![put("a", 2, "x", 50), delete("b", 1), put("b", 2, "x", 9)])
            .batch(Buffered, vec![delete("a", 1), put("b", 3, "x", 700)])
            .op(Op::FlushOne("b"))
            .batch(Buffered, vec![put("a", 3, "y", 50), put("b", 3, "y", 50)]),
        two("large-batch")
            .batch(Buffered, (0..120).map(|n| put(["a", "b"][n % 2], n, "x", 60)).collect())
            .batch(Synced, (0..60).map(|n| put(["a", "b"][n % 2], n, "y", 300)).collect()),
        two("idle-keyspace-holds-logs").put("a", 1, "idle", 30).fill("b", 0..90, "x", 400).fill(
            "b",
            0..90,
            "y",
            400,
        ),
        two("flush-one-of-two")
            .batch(Buffered, vec![put("a", 1, "x", 50), put("b", 1, "x", 50)])
            .op(Op::FlushOne("b"))
            .batch(Buffered, vec![put("a", 2, "x", 50), put("b", 2, "x", 50)])
            .op(Op::FlushOne("a"))
            .op(Op::Kill),
        two("drop-a-keyspace")
            .fill("b", 0..20, "x", 300)
            .put("a", 1, "x", 50)
            .op(Op::Drop("b"))
            .put("a", 2, "x", 50)
            .op(Op::Kill)
            .put("a", 3, "x", 50),
        two("drop-and-create-again")
            .fill("b", 0..12, "x", 300)
            .op(Op::Drop("b"))
            .keyspace("b", compressed())
            .fill("b", 6..10, "y", 300)
            .op(Op::Reopen)
            .op(Op::Drop("b"))
            .op(Op::Kill)
            .keyspace("b", small())
            .put("b", 1, "z", 30),
        two("drop-the-newest-and-reopen")
            .op(Op::Drop("b"))
            .op(Op::Reopen)
            .keyspace("c", small())
            .put("c", 1, "x", 30)
            .op(Op::Kill),
        two("options-change")
            .fill("a", 0..10, "x", 100)
            .keyspace("a", compressed())
            .fill("a", 5..15, "y", 100)
            .op(Op::Flush)
            .keyspace("a", small())
            .op(Op::Reopen)
            .fill("a", 0..30, "z", 200),
        Script::new("many-keyspaces")
            .keyspace("a", small())
            .keyspace("b", small())
            .keyspace("c", small())
            .keyspace("d", roomy())
            .keyspace("n", unlogged())
            .batch(Synced, ["a", "b", "c", "d"].map(|name| put(name, 1, "x", 20)).to_vec())
            .op(Op::Flush)
            .batch(Buffered, ["a", "b", "c", "d"].map(|name| put(name, 2, "x", 20)).to_vec()),
    ]
}

fn without_wal() -> Vec<Script> {
    let two = |name: &str| {
        Script::new(name).keyspace("a", roomy()).keyspace("n", unlogged()).keyspace("m", unlogged())
    };
    vec![
        two("unlogged-flushes")
            .fill("n", 0..6, "x", 50)
            .op(Op::FlushOne("n"))
            .fill("n", 3..9, "y", 50)
            .put("a", 1, "x", 20)
            .op(Op::Kill)
            .fill("n", 5..7, "z", 50)
            .op(Op::Flush),
        two("markers")
            .marker_batch("n", b"one", vec![put("n", 1, "x", 30)])
            .op(Op::FlushOne("n"))
            .marker_batch("n", b"two", vec![put("n", 2, "x", 30), delete("n", 1)])
            .marker_batch("n", b"three", vec![])
            .op(Op::FlushOne("n"))
            .marker_batch("n", b"four", vec![put("n", 3, "x", 30)])
            .op(Op::Kill)
            .marker_batch("n", b"five", vec![put("n", 4, "x", 30)])
            .op(Op::Reopen),
        two("flush-all")
            .fill("n", 0..4, "x", 50)
            .fill("m", 0..4, "x", 50)
            .op(Op::FlushAll(vec!["n", "m"], b"first".to_vec()))
            .fill("n", 2..4, "y", 50)
            .put("a", 1, "x", 20)
            .fill("m", 3..7, "y", 50)
            .op(Op::FlushAll(vec!["n", "m"], b"second".to_vec()))
            .op(Op::FlushAll(vec!["n", "m"], b"third".to_vec()))
            .put("n", 9, "z", 50),
        two("logged-and-unlogged-batch")
            .batch(Buffered, vec![put("a", 1, "x", 50), put("n", 1, "x", 50)])
            .batch(Buffered, vec![put("n", 2, "x", 50), put("a", 2, "x", 50)])
            .op(Op::FlushOne("n"))
            .batch(Buffered, vec![put("m", 3, "x", 50), put("a", 3, "x", 50)])
            .op(Op::Sync),
        two("to-and-from-unlogged")
            .fill("a", 0..4, "x", 50)
            .op(Op::Flush)
            .keyspace("a", unlogged())
            .fill("a", 2..6, "y", 50)
            .op(Op::FlushOne("a"))
            .keyspace("a", roomy())
            .fill("a", 4..8, "z", 50)
            .op(Op::Kill)
            .put("a", 1, "w", 20),
        Script::new("unlogged-compactions")
            .keyspace("n", crate::simulation::script::KeyspaceOptions { log: false, ..small() })
            .fill("n", 0..60, "x", 300)
            .fill("n", 20..50, "y", 300)
            .op(Op::Compact("n", None, None))
            .delete_range("n", 0..30)
            .op(Op::Flush)
            .op(Op::Kill),
    ]
}

fn manifests() -> Vec<Script> {
    // Markers near their largest size fill a manifest quickly.
    let big_marker = |n: u8| vec![n; 65_000];
    let grown = (0..20u8).fold(
        Script::new("manifest-rewrite").keyspace("n", unlogged()).keyspace("a", roomy()),
        |script, n| {
            let script = if n > 14 { script.put("a", usize::from(n), "x", 40) } else { script };
            script.op(Op::FlushAll(vec!["n"], big_marker(n)))
        },
    );
    vec![grown.put("n", 1, "x", 30).op(Op::Reopen).put("n", 2, "x", 30)]
}
