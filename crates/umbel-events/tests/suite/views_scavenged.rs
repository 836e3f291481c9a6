//! Views of a scavenged store: entries keep their numbers, also when the index is rebuilt from the
//! log alone.

use std::path::Path;

use umbel_events::{Direction, ExpectedVersion, NewEvent, Position, Revision, Store};
use umbel_sim::Sim;

use super::scavenge::all;
use super::support::{id, options};

const VIEWS: [&str; 5] = ["$ce-cart", "$ce-order", "$et-Added", "$et-Paid", "$streams"];

/// Numbers and positions of a view, and whether the event is shown.
fn entries(store: &Store, view: &str) -> Vec<(u64, u64, bool)> {
    let read = store.read_view(view, Revision::START, Direction::Forwards, Position::END);
    let read = read.map(|entry| entry.expect("readable"));
    read.map(|entry| (entry.link.revision, entry.link.position, entry.event.is_some())).collect()
}

fn check(store: &Store, before: &[Vec<(u64, u64, bool)>], what: &str) {
    let there: Vec<u64> = store
        .read_all(Position::START, Direction::Forwards)
        .map(|event| event.expect("readable").position)
        .collect();
    for (view, before) in VIEWS.iter().zip(before) {
        let now = entries(store, view);
        // Links to the remaining events, with their old numbers; hidden stubs may be among them.
        for entry in &now {
            assert!(before.contains(entry), "{what}: {view}: {entry:?} is new");
        }
        for entry in before.iter().filter(|(_, position, _)| there.contains(position)) {
            assert!(now.contains(entry), "{what}: {view}: {entry:?} is gone");
        }
        let backwards: Vec<_> = store
            .read_view(view, Revision::END, Direction::Backwards, Position::END)
            .map(|entry| entry.expect("readable").link.revision)
            .collect();
        assert!(now.iter().rev().map(|(number, ..)| number).eq(&backwards), "{what}: {view}");
    }
    let report = store.verify().expect("verified");
    assert!(report.damage.is_empty(), "{what}: {:?}", report.damage);
}

#[test]
fn view_entries_keep_their_numbers_after_scavenge() {
    let sim = Sim::new(21);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    let data = vec![b' '; 900];
    let mut number = 0;
    for round in 0..60 {
        for (stream, kind) in
            [("cart-1", "Added"), ("cart-2", "Paid"), ("order-1", "Added"), ("plain", "Paid")]
        {
            let name =
                if round % 3 == 0 { format!("{stream}-{round}") } else { stream.to_string() };
            let event = NewEvent::json(id(number), kind, &data);
            store.append(&name, ExpectedVersion::Any, &[event]).expect("appended");
            number += 1;
        }
    }
    for stream in ["cart-1", "order-1", "cart-2-9", "plain-12"] {
        store.delete(stream, ExpectedVersion::Any).expect("deleted");
    }
    store.tombstone("cart-1-30", ExpectedVersion::Any).expect("tombstoned");
    let before: Vec<_> = VIEWS.iter().map(|view| entries(&store, view)).collect();
    store.close().expect("closed");
    let store = Store::open("/events", options(&sim)).expect("opened again");
    assert!(store.scavenge(&all()).expect("scavenged").events_removed > 50);
    check(&store, &before, "scavenged");
    store.close().expect("closed");
    remove(&sim, Path::new("/events/index"));
    let store = Store::open("/events", options(&sim)).expect("opened without an index");
    check(&store, &before, "rebuilt");
    let event = NewEvent::json(id(9999), "Added", b"{}");
    store.append("cart-9", ExpectedVersion::NoStream, &[event]).expect("appended");
    let last = entries(&store, "$ce-cart").pop().expect("entries");
    let number_max = before[0].iter().map(|(number, ..)| *number).max().expect("entries");
    assert_eq!(last.0, number_max + 1, "no number is assigned twice or skipped");
}

fn remove(sim: &Sim, folder: &Path) {
    let files = sim.env().files;
    for entry in files.read_dir(folder).expect("listed") {
        let path = folder.join(&entry.name);
        match entry.is_directory {
            true => remove(sim, &path),
            false => files.remove_file(&path).expect("removed"),
        }
    }
}
