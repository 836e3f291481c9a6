//! Tests with loom all interleavings of the writer and a reader, and the effects of weak memory
//! order, on the real tree with nodes of two slots.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p umbel-memtable --lib --release`
//!
//! In every test some entries are inserted first, and another entry while a reader reads. In every
//! interleaving the reader must find the first entries, and also the other entry after it is
//! published.

use crate::entry::{Entry, SeekKey};
use crate::growing_filter::{FilterGrowth, GrowingFilter};
use crate::node::Bound;
use crate::tree::{Tree, TreePosition};
use loom::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use umbel_base::ValueKind;

/// Returns the key for a letter. Keys of small letters share a prefix that nodes omit, and keys of
/// capital letters do not have this prefix. Keys of digits differ only after the eight bytes of a
/// head, so that their heads are equal in a node that also has a letter's key.
fn key(letter: u8) -> Vec<u8> {
    if letter.is_ascii_digit() {
        return [&b"0123456789"[..], &[letter]].concat();
    }
    let start: &[u8] = if letter.is_ascii_lowercase() { b"shared-" } else { b"" };
    [start, &[letter; 9]].concat()
}

fn insert(tree: &Tree, letter: u8) {
    tree.writer().insert(&key(letter), u64::from(letter), ValueKind::Put, &[letter, letter]);
}

fn letter(entry: Entry<'_>) -> u8 {
    let letter = entry.value()[0];
    assert_eq!((entry.sequence(), entry.key()), (u64::from(letter), &key(letter)[..]));
    letter
}

/// Returns the position of the first entry at or after the key of a letter.
fn seek(tree: &Tree, letter: u8) -> Option<TreePosition<'_>> {
    tree.seek(SeekKey { key: &key(letter), sequence: u64::MAX }, Bound::Before)
}

fn found(tree: &Tree, wanted: u8) -> bool {
    let entry = tree.find(SeekKey { key: &key(wanted), sequence: u64::MAX });
    entry.is_some_and(|entry| letter(entry) == wanted)
}

/// Runs `read(tree, before)` concurrently with the insert of `newcomer` into a tree of the letters
/// `before`, in all interleavings with at most `preemptions` preemptions of a
/// thread that could continue.
fn beside(before: &'static [u8], newcomer: u8, preemptions: usize, read: fn(&Tree, &'static [u8])) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 20_000;
    let searched = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counter = Arc::clone(&searched);
    model.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        let tree = Arc::new(Tree::new());
        before.iter().for_each(|&letter| insert(&tree, letter));
        let published = Arc::new(AtomicBool::new(false));
        let writer = {
            let (tree, published) = (Arc::clone(&tree), Arc::clone(&published));
            loom::thread::spawn(move || {
                insert(&tree, newcomer);
                published.store(true, Ordering::Release);
            })
        };
        if published.load(Ordering::Acquire) {
            assert!(found(&tree, newcomer), "a published entry is found");
        }
        read(&tree, before);
        writer.join().expect("the writer does not panic");
        assert!(found(&tree, newcomer));
        forwards(&tree, before);
        backwards(&tree, before);
    });
    let searched = searched.load(Ordering::Relaxed);
    println!("{searched} interleavings");
    assert!(searched > 20, "only {searched} interleavings were searched");
}

fn finds(tree: &Tree, before: &'static [u8]) {
    for &letter in [before.first(), before.last()].into_iter().flatten() {
        assert!(found(tree, letter), "an old entry is found");
    }
}

fn forwards(tree: &Tree, before: &'static [u8]) {
    let mut met = Vec::new();
    let mut place = seek(tree, b'0');
    while let Some(here) = place {
        met.push(letter(here.entry()));
        place = tree.next(here);
    }
    check(&met, before);
}

fn backwards(tree: &Tree, before: &'static [u8]) {
    let mut met = Vec::new();
    let mut place = tree.last();
    while let Some(here) = place {
        met.insert(0, letter(here.entry()));
        place = tree.prev(here);
    }
    check(&met, before);
}

/// Checks that the reader met all old entries, in order and without duplicates.
fn check(met: &[u8], before: &[u8]) {
    assert!(met.is_sorted_by(|a, b| a < b), "in order: {met:?}");
    assert!(before.iter().all(|letter| met.contains(letter)), "all met: {met:?}");
}

#[test]
fn the_first_insert() {
    beside(b"", b'm', 3, |tree, before| {
        forwards(tree, before);
        backwards(tree, before);
    });
}

#[test]
fn an_insert_among_equal_heads() {
    beside(b"1a", b'0', 2, finds);
    beside(b"13", b'2', 2, finds);
    beside(b"13", b'2', 2, forwards);
}

#[test]
fn a_filter_that_grows() {
    let hash = |n: u64| (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let filter = Arc::new(GrowingFilter::new(1_000, 10));
        let tree = Arc::new(Tree::new());
        let mut growth = FilterGrowth::default();
        // The next one finds the first filter full.
        (0..64).for_each(|n| filter.insert(hash(n), &mut growth));
        let writer = {
            let (filter, tree) = (Arc::clone(&filter), Arc::clone(&tree));
            loom::thread::spawn(move || {
                filter.insert(hash(64), &mut growth);
                insert(&tree, b'm');
            })
        };
        assert!([0, 63].iter().all(|&n| filter.may_contain(hash(n))), "an old hash is found");
        if found(&tree, b'm') {
            assert!(filter.may_contain(hash(64)), "a reader that finds an entry finds its hash");
        }
        writer.join().expect("the writer does not panic");
        assert!([0, 63, 64].iter().all(|&n| filter.may_contain(hash(n))));
    });
}

#[test]
fn an_insert_that_moves_an_entry() {
    beside(b"m", b'a', 3, finds);
    beside(b"m", b'a', 3, forwards);
    beside(b"m", b'a', 3, backwards);
}

#[test]
fn an_insert_that_breaks_the_prefix() {
    // A leaf under the root with one slot left, whose keys' prefix the newcomer does not have.
    beside(b"amz", b'B', 2, finds);
    beside(b"amz", b'B', 2, forwards);
}

#[test]
fn a_split_of_the_root_leaf() {
    beside(b"am", b'g', 2, finds);
    beside(b"am", b'z', 2, finds);
    beside(b"am", b'g', 2, forwards);
}

#[test]
fn a_split_of_the_root_leaf_during_prev() {
    beside(b"am", b'g', 2, backwards);
}

// Below, `adgjmp` stands under two full inner nodes: (a | d) g (g | j | mp).

#[test]
fn a_split_of_an_inner_node() {
    beside(b"adgjmp", b'k', 2, finds);
}

#[test]
fn a_split_of_an_inner_node_and_a_leaf() {
    beside(b"adgjmp", b'z', 2, finds);
}

#[test]
fn a_split_of_an_inner_node_during_a_scan() {
    beside(b"adgjmp", b'z', 2, |tree, _| {
        let place = seek(tree, b'j').expect("an old entry is found");
        let next = tree.next(place).expect("an old entry follows");
        assert_eq!((letter(place.entry()), letter(next.entry())), (b'j', b'm'));
        let back = tree.prev(next).expect("the way back");
        assert_eq!(letter(back.entry()), b'j');
    });
}
