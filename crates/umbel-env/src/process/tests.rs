//! Tests of marks of processes, with forked children.

use std::sync::Mutex;

use super::*;
use crate::test_processes::{fork_without_handlers, in_forked_child, in_own_process};

/// Story: a parent's mark was current in a forked child, which then wrote through its parent's
/// handle.
#[test]
fn child_has_another_mark_than_its_parent() {
    in_own_process("process::tests::child_has_another_mark_than_its_parent", || {
        let (mark, open) = (ProcessMark::current(), OpenMark::new());
        assert!(mark.is_current() && open.is_open());
        let check = || {
            assert!(!mark.is_current() && !open.is_open() && open.is_forked());
            assert_eq!(open.state(), OpenState::Forked);
            let own = ProcessMark::current();
            assert!(own.is_current() && !mark.is_current());
            in_forked_child(|| assert!(!own.is_current() && !mark.is_current()));
            assert!(own.is_current());
        };
        in_forked_child(check);
        fork_without_handlers(check).wait();
        assert!(mark.is_current() && open.is_open());
    });
}

#[test]
fn mark_by_process_id_alone_agrees() {
    in_own_process("process::tests::mark_by_process_id_alone_agrees", || {
        let mark = ProcessMark::by_id();
        let open = OpenMark { mark, generation: AtomicU64::new(mark.generation) };
        assert!(mark.is_current() && open.is_open());
        in_forked_child(|| {
            assert!(!mark.is_current() && !open.is_open());
            assert!(ProcessMark::by_id().is_current());
        });
        assert!(open.close() && !open.close());
        assert_eq!(open.state(), OpenState::Closed);
        assert!(!open.is_open());
    });
}

#[test]
fn exec_keeps_the_mark() {
    let mark = ProcessMark::current();
    let done = std::process::Command::new("/bin/true").status();
    assert!(done.is_ok() && mark.is_current());
}

#[test]
fn closed_handle_is_not_forked() {
    let open = OpenMark::new();
    assert!(open.close() && !open.close());
    assert_eq!((open.is_open(), open.is_forked()), (false, false));
    assert_eq!(open.state(), OpenState::Closed);
}

/// Story: a forked child waited for a thread that only its parent has.
#[test]
fn child_leaks_values_of_its_parent() {
    struct Never;
    impl Drop for Never {
        fn drop(&mut self) {
            panic!("it was dropped");
        }
    }
    in_own_process("process::tests::child_leaks_values_of_its_parent", || {
        // The parent forgets its own: it would drop them at the end.
        let (first, second) = (ProcessOwned::new(Never), ProcessOwned::new(Never));
        let (first, second) =
            (std::cell::Cell::new(Some(first)), std::cell::Cell::new(Some(second)));
        in_forked_child(|| {
            assert!(second.take().and_then(ProcessOwned::into_inner).is_none());
            drop(first.take());
        });
        [first, second].into_iter().for_each(std::mem::forget);
    });
    let dropped = std::rc::Rc::new(());
    drop(ProcessOwned::new(std::rc::Rc::clone(&dropped)));
    assert!(ProcessOwned::new(std::rc::Rc::clone(&dropped)).into_inner().is_some());
    assert_eq!(std::rc::Rc::strong_count(&dropped), 1);
}

/// Story: a parent had locked a registry when it forked, and the child waited for the lock forever.
#[test]
fn every_process_has_its_own_static() {
    static NUMBERS: ProcessLocal<Mutex<Vec<u32>>> = ProcessLocal::new();
    in_own_process("process::tests::every_process_has_its_own_static", || {
        let mut numbers = NUMBERS.get().lock().unwrap();
        numbers.push(1);
        in_forked_child(|| assert!(NUMBERS.get().lock().unwrap().is_empty()));
        assert_eq!(*numbers, [1]);
    });
}
