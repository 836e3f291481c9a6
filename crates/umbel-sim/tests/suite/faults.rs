//! Failing calls, full disks, power cuts at a call, and rot.

use std::path::Path;
use std::sync::Arc;

use umbel_base::Error;
use umbel_env::{Access, AlignedBuffer, DIRECT_ALIGNMENT, Env, File};
use umbel_sim::{CrashSide, Fault, FaultKind, Sim, Survival};

const ONCE: Fault = Fault { kind: FaultKind::Eio, sticky: false };
const EVER: Fault = Fault { kind: FaultKind::Eio, sticky: true };

fn start() -> (Sim, Env, Arc<dyn File>) {
    let sim = Sim::new(7);
    let env = sim.env();
    let file = env.files.create(Path::new("/a")).unwrap();
    env.files.sync_dir(Path::new("/")).unwrap();
    (sim, env, file)
}

#[test]
fn failed_sync_drops_bytes_and_the_next_succeeds() {
    for reverts in [false, true] {
        let (sim, _, file) = start();
        sim.revert_on_failed_sync(reverts);
        file.write_all_at(b"old", 0).unwrap();
        file.sync().unwrap();
        file.write_all_at(b"lost!", 0).unwrap();
        sim.fail_site("sync", 1, ONCE);
        let text = file.sync().unwrap_err().to_string();
        assert_eq!(text, "could not sync /a: Input/output error (os error 5)");
        file.sync().unwrap();
        assert_eq!(sim.faults_fired(), 1);
        assert_eq!(sim.read("/a"), if reverts { b"old\0\0" } else { b"lost!" });
        assert_eq!(sim.crash_image(&Survival::All, 0).read("/a"), b"old");
        // Bytes written after the failure are synced as ever, and bring no lost ones back.
        file.write_all_at(b"+", 5).unwrap();
        file.sync().unwrap();
        assert_eq!(sim.crash_image(&Survival::None, 0).read("/a"), b"old\0\0+");
    }
}

#[test]
fn faults_apply_once_or_always_where_they_match() {
    let (sim, env, file) = start();
    sim.fail_site("write *", 1, ONCE);
    sim.fail_site("write a", 2, ONCE);
    file.write_all_at(b"1", 0).unwrap();
    assert!(file.write_all_at(b"2", 0).is_err());
    file.write_all_at(b"3", 0).unwrap();
    sim.fail_site("read", 2, EVER);
    let mut byte = [0];
    file.read_at(&mut byte, 0).unwrap();
    assert!(file.read_at(&mut byte, 0).is_err());
    assert!(file.read_at(&mut byte, 0).is_err());
    file.write_all_at(b"4", 0).unwrap();
    sim.heal();
    file.read_at(&mut byte, 0).unwrap();
    // A read cannot run out of space; the next write can.
    sim.fail_at(sim.calls() + 1, Fault { kind: FaultKind::Enospc, sticky: true });
    file.read_at(&mut byte, 0).unwrap();
    assert!(matches!(file.write_all_at(b"5", 0), Err(Error::DiskFull { .. })));
    assert!(matches!(env.files.create(Path::new("/b")), Err(Error::DiskFull { .. })));
    env.files.remove_file(Path::new("/a")).unwrap();
    sim.heal();
    sim.fail_site("open", 1, Fault { kind: FaultKind::Emfile, sticky: false });
    let text = env.files.open(Path::new("/b"), Access::Read).unwrap_err().to_string();
    let expected = "could not open /b: Too many open files (os error 24); raise `ulimit -n`";
    assert_eq!(text, expected);
    assert!(env.files.open(Path::new("/b"), Access::Read).unwrap_err().is_missing_file());
}

#[test]
fn a_failed_write_takes_some_of_its_bytes_and_never_all() {
    let mut taken = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let sim = Sim::new(seed);
        let file = sim.env().files.create(Path::new("/a")).unwrap();
        sim.fail_site("write", 1, ONCE);
        file.write_all_at(&[1; 2000], 0).unwrap_err();
        taken.insert(sim.read("/a").len());
    }
    assert_eq!(taken, [0, 512, 1024, 1536, 1999].into());
}

#[test]
fn calls_after_power_loss_fail_without_effect() {
    for (when, survives) in [(CrashSide::Before, false), (CrashSide::After, true)] {
        let (sim, env, file) = start();
        file.write_all_at(b"x", 0).unwrap();
        sim.crash_at(sim.calls() + 1, when);
        let text = file.sync().unwrap_err().to_string();
        assert_eq!(text, "could not sync /a: the simulated machine has lost power");
        assert!(sim.is_dead());
        let calls = sim.calls();
        assert!(env.files.create(Path::new("/b")).is_err());
        assert!(file.write_all_at(b"y", 0).is_err());
        assert!(file.len().is_err());
        assert!(env.files.lock(Path::new("/LOCK")).is_err());
        assert_eq!(sim.calls(), calls);
        let image = sim.crash_image(&Survival::None, 0);
        assert_eq!(image.read("/a"), if survives { &b"x"[..] } else { b"" });
        assert!(!image.is_dead());
    }
    let (sim, env, _) = start();
    sim.crash_now();
    assert!(env.files.read_dir(Path::new("/")).is_err());
}

#[test]
fn a_lying_disk_makes_nothing_durable() {
    let (sim, env, file) = start();
    sim.lying_disk(true);
    file.write_all_at(b"x", 0).unwrap();
    file.sync().unwrap();
    env.files.create(Path::new("/b")).unwrap();
    env.files.sync_dir(Path::new("/")).unwrap();
    let image = sim.crash_image(&Survival::None, 0);
    assert_eq!((image.read("/a"), image.has("/b")), (vec![], false));
    sim.lying_disk(false);
    file.sync().unwrap();
    assert_eq!(sim.crash_image(&Survival::None, 0).read("/a"), b"x");
}

#[test]
fn full_disk_writes_what_fits_and_recovers() {
    let (sim, env, file) = start();
    sim.set_capacity(3 * 4096);
    let other = env.files.create(Path::new("/b")).unwrap();
    other.preallocate(2 * 4096).unwrap();
    other.write_all_at(&[1; 8192], 0).unwrap();
    let error = file.write_all_at(&[2; 5000], 0).unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert_eq!(sim.read("/a"), [2; 4096]);
    file.write_all_at(&[3; 100], 0).unwrap();
    assert!(matches!(file.preallocate(4097), Err(Error::DiskFull { .. })));
    file.preallocate(4096).unwrap();
    env.files.remove_file(Path::new("/b")).unwrap();
    file.write_all_at(&[2; 5000], 0).unwrap();
    sim.clear_capacity();
    file.write_all_at(&[2; 50_000], 0).unwrap();
}

#[test]
fn ignored_calls_do_nothing_and_are_counted() {
    let (sim, env, file) = start();
    sim.ignore_calls("sync_dir");
    sim.ignore_calls("sync b");
    env.files.create(Path::new("/b")).unwrap().sync().unwrap();
    file.write_all_at(b"x", 0).unwrap();
    file.sync().unwrap();
    env.files.sync_dir(Path::new("/")).unwrap();
    assert_eq!(sim.calls_ignored(), 2);
    let image = sim.crash_image(&Survival::None, 0);
    assert_eq!((image.read("/a"), image.has("/b")), (b"x".to_vec(), false));
}

#[test]
fn rot_is_durable_and_leaves_copies_alone() {
    let (sim, env, file) = start();
    let bytes: Vec<u8> = (0..2048u32).map(|index| (index / 512) as u8 + 1).collect();
    file.write_all_at(&bytes, 0).unwrap();
    let before = sim.clone_disk();
    sim.flip("/a", 3, 0x80);
    for policy in [Survival::None, Survival::All] {
        assert_eq!(sim.crash_image(&policy, 0).read("/a")[3], 0x81);
    }
    sim.zero_sector("/a", 600);
    sim.swap_blocks("/a", 1024, 1536, 512);
    sim.truncate("/a", 2000);
    sim.extend("/a", b"more");
    let rotten = sim.read("/a");
    assert_eq!((rotten[512..1024].to_vec(), rotten[1024], rotten[1536]), (vec![0; 512], 4, 3));
    assert_eq!((rotten.len(), &rotten[2000..]), (2004, &b"more"[..]));
    sim.restore_block(&before, "/a", 512, 512);
    assert_eq!(sim.read("/a")[512..1024], [2; 512]);
    env.files.create(Path::new("/b")).unwrap();
    sim.replace("/b", b"other");
    sim.swap_files("/a", "/b");
    assert_eq!((sim.read("/a"), sim.read("/b").len()), (b"other".to_vec(), 2004));
    sim.remove("/b");
    assert!(!sim.crash_image(&Survival::All, 0).has("/b"));
    assert_eq!(before.read("/a"), bytes);
    sim.restore(&before);
    assert_eq!(sim.read("/a"), bytes);
}

#[test]
fn direct_writes_need_a_sync_and_can_be_refused() {
    let (sim, _, file) = start();
    let mut piece = AlignedBuffer::new(1);
    piece.fill(&[7; DIRECT_ALIGNMENT]);
    assert!(file.write_direct(piece.bytes(), 0).unwrap());
    assert_eq!(sim.read("/a"), piece.bytes());
    assert_eq!(sim.crash_image(&Survival::None, 0).read("/a"), b"");
    sim.fail_site("write_direct", 1, Fault { kind: FaultKind::Enospc, sticky: false });
    let text = file.write_direct(piece.bytes(), 4096).unwrap_err().to_string();
    assert!(text.contains("could not write directly to /a"), "{text}");
    file.sync().unwrap();
    let image = sim.crash_image(&Survival::None, 0).read("/a");
    assert_eq!(&image[..DIRECT_ALIGNMENT], piece.bytes());
    sim.allow_direct(false);
    assert!(!file.write_direct(piece.bytes(), 8192).unwrap());
    assert!(sim.read("/a").len() <= 8192);
}

#[test]
fn lost_answer_is_an_error_of_a_call_that_took_effect() {
    let (sim, env, _file) = start();
    let link = |target: &str| env.files.hard_link(Path::new("/a"), &*env.files, Path::new(target));
    sim.lose_answer("hard_link", 2, 17);
    link("/b").unwrap();
    let error = link("/c").unwrap_err().to_string();
    assert!(error.contains("exists"), "{error}");
    assert!(sim.has("/c") && !sim.crash_image(&Survival::None, 0).has("/c"));
    assert_eq!(sim.faults_fired(), 1);
    link("/d").unwrap();
    sim.lose_answer("hard_link", 1, 5);
    sim.heal();
    link("/e").unwrap();
}
