//! Cancelled backups, restores and verifications of backups.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_env::Env;
use umbel_events::{
    CopyCancellation, CopyOptions, CopyProgress, Error, Result, Store, StoreOptions, restore,
    verify_backup,
};
use umbel_sim::Sim;

use super::file_system_hooks::{FileCall, with_hook};
use super::support::{all, append_large, options, restored};

/// Maximum bytes that a copy reads after its cancellation: the rest of a block or a record.
const LATE_BYTES_MAX: u64 = 3 << 19;

fn plain() -> CopyOptions<'static> {
    CopyOptions::default()
}

/// A store whose chunks have several blocks, with a backup of its first three events in `/backup`.
fn specimen(sim: &Sim) -> Store {
    let shape = StoreOptions { chunk_bytes: 4 << 20, ..options(sim) };
    let store = Store::open("/events", shape).expect("a new store");
    (0..3).for_each(|number| append_large(&store, "a", number, 700_000));
    store.backup("/backup", plain()).expect("backed up");
    (3..14).for_each(|number| append_large(&store, "a", number, 700_000));
    store
}

/// Runs a copy that is cancelled, twice, after this number of blocks. Returns whether it ended
/// early; a copy with fewer blocks must succeed.
fn ends_early<T: std::fmt::Debug>(
    blocks: u64,
    copy: impl FnOnce(CopyOptions<'_>) -> Result<T>,
) -> bool {
    let cancellation = CopyCancellation::default();
    let (request, mut done) = (cancellation.clone(), 0);
    let mut count = |_: CopyProgress| {
        done += 1;
        if done == blocks {
            request.cancel();
            request.cancel();
        }
    };
    if blocks == 0 {
        cancellation.cancel();
    }
    match copy(CopyOptions { progress: Some(&mut count), cancellation, ..plain() }) {
        Err(Error::Cancelled) => true,
        ended => {
            ended.expect("it was not cancelled");
            false
        }
    }
}

/// Story: nothing ended a backup into a directory.
#[test]
fn cancelled_backup_keeps_the_previous_one_and_the_next_continues() {
    for target in ["/backup", "/fresh"] {
        let (mut cancelled, mut reusing) = (0, 0);
        for blocks in 0.. {
            let sim = Sim::new(31);
            let store = specimen(&sim);
            if !ends_early(blocks, |options| store.backup(target, options)) {
                break;
            }
            cancelled += 1;
            let events = all(&store);
            let checked = verify_backup(&sim.env(), target.as_ref(), plain());
            match (target, blocks) {
                ("/backup", _) => {
                    assert!(checked.expect("the earlier backup").damage.is_empty());
                    assert_eq!(restored(&sim, target), events[..3], "after {blocks} blocks");
                }
                (_, 0) => {
                    let is_touched = sim.files().iter().any(|path| path.starts_with(target));
                    assert!(!is_touched, "{:?}", sim.files());
                }
                _ => {
                    let message = checked.expect_err("no backup yet").to_string();
                    assert!(message.contains("is not complete"), "{message}");
                }
            }
            let report = store.backup(target, plain()).expect("the next one");
            reusing += u64::from(target == "/fresh" && report.copied_bytes < report.bytes);
            assert_eq!(restored(&sim, target), events, "after {blocks} blocks");
            let checked = verify_backup(&sim.env(), target.as_ref(), plain()).expect("checked");
            assert!(checked.damage.is_empty(), "{:?}", checked.damage);
        }
        assert!(cancelled > 6, "{target}: {cancelled}");
        assert_eq!(reusing > 2, target == "/fresh", "complete files are reused: {reusing}");
    }
}

#[test]
fn cancelled_restore_leaves_no_store_and_continues_when_it_is_repeated() {
    let sim = Sim::new(32);
    let store = specimen(&sim);
    store.backup("/backup", plain()).expect("backed up");
    let events = all(&store);
    store.close().expect("closed");
    let (mut cancelled, mut begun) = (0, 0);
    for blocks in 0.. {
        let copy = sim.clone_disk();
        let env = copy.env();
        let (from, to) = (Path::new("/backup"), Path::new("/target"));
        if !ends_early(blocks, |options| restore(&env, from, to, options)) {
            break;
        }
        cancelled += 1;
        if copy.files().iter().any(|path| path.starts_with("/target")) {
            begun += 1;
            let message = Store::open("/target", options(&copy)).expect_err("no store yet");
            let message = message.to_string();
            assert!(message.contains("the restore of a backup into"), "{message}");
        }
        restore(&env, from, to, plain()).expect("it continues");
        let store = Store::open("/target", options(&copy)).expect("opened");
        assert_eq!(all(&store), events, "after {blocks} blocks");
    }
    assert!(cancelled > 12 && begun > 6, "{cancelled}, {begun} of them in the target");
}

#[test]
fn cancelled_verification_reports_no_damage() {
    let sim = Sim::new(33);
    let store = specimen(&sim);
    store.backup("/backup", plain()).expect("backed up");
    let run = |options: CopyOptions<'_>| verify_backup(&sim.env(), "/backup".as_ref(), options);
    assert!((0..6).all(|blocks| ends_early(blocks, run)));
    assert!(run(plain()).expect("checked").damage.is_empty());
}

/// Runs a copy that is cancelled at each read of a file in the directory, one after the other, and
/// checks how much it reads after that. Returns the number of runs that ended early.
fn check_late_reads(
    directory: &'static str,
    env: impl Fn() -> Env,
    copy: impl Fn(Env, CopyOptions<'_>) -> Result<()>,
) -> u64 {
    for at in 1.. {
        let cancellation = CopyCancellation::default();
        let (request, late_bytes) = (cancellation.clone(), Arc::new(AtomicU64::new(0)));
        let (reads, counted) = (AtomicU64::new(0), Arc::clone(&late_bytes));
        let hooked = with_hook(env(), move |call, path| {
            let FileCall::Reading(bytes) = call else { return };
            if !path.starts_with(directory) {
                return;
            }
            if request.is_cancelled() {
                counted.fetch_add(bytes as u64, Ordering::SeqCst);
            } else if reads.fetch_add(1, Ordering::SeqCst) + 1 == at {
                request.cancel();
            }
        });
        match copy(hooked, CopyOptions { cancellation, ..plain() }) {
            Err(Error::Cancelled) => {}
            ended => {
                ended.expect("it was not cancelled");
                return at - 1;
            }
        }
        let late_bytes = late_bytes.load(Ordering::SeqCst);
        assert!(late_bytes <= LATE_BYTES_MAX, "{late_bytes} after read {at} of {directory}");
    }
    unreachable!("a copy ends")
}

/// Story: a cancelled copy first read the rest of the file that it checked.
#[test]
fn cancelled_copy_reads_no_rest_of_a_file() {
    let sim = Sim::new(34);
    let store = specimen(&sim);
    store.backup("/backup", plain()).expect("backed up");
    // One whole file is left, and a part of the second.
    assert!(ends_early(6, |options| store.backup("/fresh", options)));
    store.close().expect("closed");
    let (env, from, to) = (sim.env(), Path::new("/backup"), Path::new("/target"));
    assert!(ends_early(18, |options| restore(&env, from, to, options)));
    let disk = || sim.clone_disk().env();
    let verified = check_late_reads("/backup", disk, |env, options| {
        verify_backup(&env, "/backup".as_ref(), options).map(drop)
    });
    let restored = check_late_reads("/target", disk, |env, options| {
        restore(&env, from, to, options).map(drop)
    });
    let backed_up = check_late_reads("/fresh", disk, |env, copy| {
        let shape = StoreOptions { chunk_bytes: 4 << 20, env, ..options(&sim) };
        Store::open("/events", shape)?.backup("/fresh", copy).map(drop)
    });
    let counts = (verified, restored, backed_up);
    assert!(verified > 12 && restored > 3 && backed_up > 8, "{counts:?}");
}
