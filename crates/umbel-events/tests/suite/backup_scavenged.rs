//! Backups of a store that is scavenged between them.

use umbel_events::{CopyOptions, Expected, Store, restore, verify_backup};
use umbel_sim::Sim;

use super::scavenging::{all, append_each, everything, streams};
use super::support::options;

#[test]
fn what_was_scavenged_is_backed_up_as_it_is_and_restored_so() {
    let sim = Sim::new(31);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    for (number, stream) in ["gone-1", "kept-1", "gone-2", "kept-2"].into_iter().enumerate() {
        let first = number as u64 * 100;
        append_each(&store, stream, first..first + 100, 900);
    }
    let env = sim.env();
    let copy = CopyOptions::default;
    store.backup("/backup", copy()).expect("a first backup");
    for stream in ["gone-1", "gone-2"] {
        store.delete(stream, Expected::Any).expect("deleted");
    }
    append_each(&store, "kept-1", 1000..1100, 900);
    let scavenged = store.scavenge(&all()).expect("scavenged");
    assert!(scavenged.events_removed > 150 && scavenged.chunks_packed > 1, "{scavenged:?}");
    let second = store.backup("/backup", copy()).expect("a second backup");
    assert!(second.copied_bytes < second.bytes, "what was not scavenged was there");
    let third = store.backup("/backup", copy()).expect("a third backup");
    assert_eq!(third.copied_bytes, 0, "nothing is new");
    let checked = verify_backup(&env, "/backup".as_ref(), copy()).expect("read");
    assert!(checked.damage.is_empty(), "{:?}", checked.damage);
    restore(&env, "/backup".as_ref(), "/restored".as_ref(), copy()).expect("restored");
    let restored = Store::open("/restored", options(&sim)).expect("opened");
    assert_eq!(everything(&restored), everything(&store));
    assert_eq!(streams(&restored), streams(&store));
    let report = restored.verify().expect("verified");
    assert!(report.damage.is_empty(), "{:?}", report.damage);
}
