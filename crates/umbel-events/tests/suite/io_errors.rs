//! Errors of the operating system at opens and reads are not reported as damage.

use umbel_events::{CopyOptions, Error, RepairOptions, Store, repair, verify_backup};
use umbel_sim::{Fault, FaultKind, Sim};

use super::repair::{FOLDER, repair_store, specimen};
use super::support::{all, options};

const KINDS: [FaultKind; 3] = [FaultKind::Emfile, FaultKind::Eacces, FaultKind::Eio];

/// Makes these calls fail once.
fn refuse(sim: &Sim, site: &str, nth: u64, kind: FaultKind) {
    sim.fail_site(site, nth, Fault { kind, sticky: false });
}

fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Store(umbel::Error::Io { .. }))
}

/// Regression: with `ulimit -n 24` and a dozen chunks, `verify` reported damage and advised a
/// backup.
#[test]
fn unopenable_store_files_are_not_reported_as_damage() {
    let (sim, before) = specimen(90);
    for kind in KINDS {
        let site = if matches!(kind, FaultKind::Eio) { "read *.chunk" } else { "open *.chunk" };
        for nth in 1..4 {
            let sim = sim.clone_disk();
            let store = Store::open(FOLDER, options(&sim)).expect("opened");
            refuse(&sim, site, nth, kind);
            let refused = store.verify().expect_err("the system refused");
            assert!(is_refusal(&refused) && refused.to_string().contains(".chunk"), "{refused}");
            let verified = store.verify().expect("verified");
            assert!(verified.damage.is_empty(), "{:?}", verified.damage);
            assert_eq!(all(&store), before);
        }
    }
}

/// Regression: with `chmod 000` of one file of a backup, `verify` reported damage.
#[test]
fn unopenable_backup_files_are_not_reported_as_damage() {
    let (sim, _) = specimen(91);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    store.backup("/backup", CopyOptions::default()).expect("backed up");
    let verify = || verify_backup(&sim.env(), "/backup".as_ref(), CopyOptions::default());
    for kind in [FaultKind::Emfile, FaultKind::Eacces] {
        refuse(&sim, "open *.chunk", 2, kind);
        let refused = verify().expect_err("the system refused");
        assert!(is_refusal(&refused) && refused.to_string().contains(".chunk"), "{refused}");
        assert!(verify().expect("verified").damage.is_empty());
    }
    sim.remove("/backup/log/00000002.chunk");
    assert_eq!(verify().expect("verified").damage.len(), 1, "a missing file is damage");
}

/// Regression: with `chmod 000` of one table of the index, `repair` moved the whole index aside,
/// and reported damage.
#[test]
fn unopenable_index_is_not_moved_aside() {
    let (sim, _) = specimen(92);
    let files = |sim: &Sim| -> Vec<_> {
        sim.files().into_iter().map(|path| (path.clone(), sim.read(path))).collect()
    };
    let before = files(&sim);
    for (site, kind) in [
        ("open *.table", FaultKind::Eacces),
        ("open *.manifest", FaultKind::Emfile),
        ("read *.table", FaultKind::Eio),
    ] {
        // A manifest that a writer may be changing is read more than once.
        sim.fail_site(site, 1, Fault { kind, sticky: true });
        let refused = repair(&sim.env(), FOLDER.as_ref(), RepairOptions::default());
        sim.heal();
        let refused = refused.map(|report| report.to_string()).expect_err("the system refused");
        assert!(is_refusal(&refused) && refused.to_string().contains("index"), "{refused}");
        assert_eq!(files(&sim), before, "{site}");
    }
    assert!(repair_store(&sim).is_undamaged());
}
