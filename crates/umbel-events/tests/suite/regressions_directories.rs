//! Stories of what happened to event stores whose directory an operator moved or removed.

use umbel_events::{Durability, Expected, NewEvent, Store, StoreOptions};
use umbel_sim::Sim;

use super::support::{id, options};

/// The directory of an open event store was removed. Appends to it were synced to a file without a
/// name and acknowledged: all of them were gone with the handle.
#[test]
fn a_synced_append_into_a_removed_directory_is_refused() {
    let sim = Sim::new(1);
    let settings = StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let store = Store::open("/data/events", settings).expect("a new store");
    let append = |number| {
        store.append("a", Expected::Any, &[NewEvent::binary(id(number), "Happened", b"bytes")])
    };
    append(1).expect("appended");
    sim.move_path("/data/events", "/data/moved");
    append(2).expect("a directory that was renamed is still there");
    sim.remove_tree("/data/moved");
    let error = append(3).expect_err("nothing can be kept there");
    assert!(error.to_string().contains("the directory was removed"), "{error}");
    append(4).expect_err("the store is read-only from then on");
    store.sync().expect_err("nor is anything synced");
}
