//! A filter in a child that its owner forked.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use umbel_base::Error;
use umbel_env::Env;
use umbel_env::test_processes::{fork_without_handlers, in_forked_child, in_own_process};
use umbel_existence::{ExistenceFilter, ExistenceOptions, HashSource, StepProgress};

/// A source of the given hashes.
struct Keys(Vec<u64>);

impl HashSource for Keys {
    fn hashes(
        &self,
        _after: Option<&[u8]>,
        _most: usize,
        output: &mut Vec<u64>,
    ) -> umbel_base::Result<Option<Vec<u8>>> {
        output.extend(&self.0);
        Ok(None)
    }
}

fn hash(number: u64) -> u64 {
    number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn bytes_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let read = |path: std::path::PathBuf| std::fs::read(path).unwrap();
    files.map(|e| (e.file_name().into_string().unwrap(), read(e.path()))).collect()
}

fn use_everything(filter: &ExistenceFilter, keys: &Keys) {
    let refused = |result: umbel_base::Result<()>| matches!(result, Err(Error::Forked(_)));
    assert!(refused(filter.flush(9000)));
    assert!(refused(filter.flush_journal_only(9000).map(drop)));
    assert!(refused(filter.checkpoint(9000)));
    assert!(refused(filter.truncate(0)));
    assert!(refused(filter.step(keys).map(drop)));
    for number in 0..1000 {
        assert!(filter.may_contain(hash(number)), "{number} was inserted before the fork");
    }
    let mut answers = [false; 8];
    filter.may_contain_batch(&std::array::from_fn::<u64, 8, _>(|n| hash(n as u64)), &mut answers);
    assert_eq!(answers, [true; 8]);
    assert!(filter.reader().may_contain(hash(1)));
    filter.rebuild();
    let _ = (filter.wants_step(), filter.covered(), filter.is_on());
    let _ = (filter.lag_items(), filter.memory_bytes(), filter.load(), filter.stats());
    // The child's copy does not deny its inserts.
    filter.insert(hash(77_777));
    filter.insert_batch(&[hash(77_778)]);
    assert!(filter.may_contain(hash(77_777)) && filter.may_contain(hash(77_778)));
}

/// Story: a child wrote its copy of the filter over the files of its parent, or waited forever for
/// a lock of a thread of the parent.
#[test]
fn child_changes_nothing_and_has_no_false_negative() {
    in_own_process("suite::fork::child_changes_nothing_and_has_no_false_negative", || {
        let folder = tempfile::tempdir().unwrap();
        let (env, options) = (Env::system(), ExistenceOptions::default());
        let filter = ExistenceFilter::open(&env, folder.path(), options).unwrap();
        let keys = Keys((0..1000).map(hash).collect());
        while filter.step(&keys).unwrap() != StepProgress::Idle {}
        filter.flush(1000).unwrap();
        drop(filter);
        // Its pages are not read yet: the child must not read them either.
        let filter = ExistenceFilter::open(&env, folder.path(), options).unwrap();
        let filter = Cell::new(Some(filter));
        for without_handlers in [false, true] {
            let before = bytes_of(folder.path());
            let work = || {
                let inherited = filter.take().unwrap();
                use_everything(&inherited, &keys);
                drop(inherited);
            };
            match without_handlers {
                false => in_forked_child(work),
                true => fork_without_handlers(work).wait(),
            }
            assert_eq!(bytes_of(folder.path()), before);
        }
        let filter = filter.take().unwrap();
        assert!(!filter.may_contain(hash(77_777)), "the child's insert is not the parent's");
        filter.insert(hash(1000));
        filter.flush(1001).unwrap();
        drop(filter);
        in_forked_child(|| {
            let own = ExistenceFilter::open(&env, folder.path(), options).unwrap();
            assert_eq!(own.covered(), 1001);
            assert!((0..=1000).all(|number| own.may_contain(hash(number))));
            own.flush(1002).unwrap();
        });
    });
}

/// Forks while other threads insert, flush and step: their locks are held in every child.
#[test]
fn child_does_not_wait_for_inserting_threads() {
    in_own_process("suite::fork::child_does_not_wait_for_inserting_threads", || {
        let folder = tempfile::tempdir().unwrap();
        let (env, options) = (Env::system(), ExistenceOptions::default());
        let filter = ExistenceFilter::open(&env, folder.path(), options).unwrap();
        let keys = Keys((0..1000).map(hash).collect());
        while filter.step(&keys).unwrap() != StepProgress::Idle {}
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut position = 1000;
                    while !stop.load(Ordering::Relaxed) {
                        filter.insert(hash(position));
                        position += 1;
                        if position.is_multiple_of(64) {
                            filter.flush(position).unwrap();
                            let _ = filter.step(&keys).unwrap();
                        }
                    }
                });
            }
            for _ in 0..20 {
                in_forked_child(|| use_everything(&filter, &keys));
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!((0..1000).all(|number| filter.may_contain(hash(number))));
    });
}
