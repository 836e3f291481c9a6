//! Backups of an event store into a directory on a real disk, with parallel requests.

use std::sync::Arc;
use std::time::Duration;

use umbel_env::{Env, Objects};
use umbel_events::{
    Direction, ExpectedVersion, NewEvent, ObjectBackupOptions, ObjectRequestOptions, Position,
    RecordedEvent, RestoreTo, RetentionOptions, Store, StoreOptions, restore_from_objects, retain,
    verify_objects,
};
use umbel_objects::DirectoryObjects;

fn append(store: &Store, count: u64, bytes: usize) {
    for number in 0..count {
        let data = vec![number as u8; bytes];
        let id = store.new_id().expect("an id");
        let event = NewEvent::binary(id, "Filled", &data);
        store.append("s", ExpectedVersion::Any, &[event]).expect("appended");
    }
}

fn all(store: &Store) -> Vec<RecordedEvent> {
    let events = store.read_all(Position::START, Direction::Forwards);
    events.map(|event| event.expect("readable")).collect()
}

#[test]
fn event_backup_into_a_directory_is_restored_in_parallel() {
    let folder = tempfile::tempdir().expect("a directory");
    let env = Env::system();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("objects")).expect("created");
    let objects: Arc<dyn Objects> =
        Arc::new(DirectoryObjects::open(&env, &path("objects")).expect("opened"));
    let store = Store::open(path("events"), store_options()).expect("a new store");
    append(&store, 60, 300_000);
    let backup = ObjectBackupOptions { manifest_bytes: 1, ..ObjectBackupOptions::default() };
    let backup = store.object_backup(Arc::clone(&objects), backup).expect("opened");
    let first = backup.run_once().expect("backed up");
    assert!(first.created_manifests > 1, "a manifest for each part: {first:?}");
    let events = all(&store);
    assert_eq!(Some(first.through.0), events.last().map(|event| event.position));
    append(&store, 1, 2_500_000);
    let next = backup.run_once().expect("backed up");
    let new = 2_500_000.0 * 1.01 + 4096.0;
    assert!((next.uploaded_bytes as f64) < new, "only what is new: {next:?}");
    let restore = |name: &str, restore_to| {
        let options = ObjectRequestOptions::default();
        restore_from_objects(&env, Arc::clone(&objects), &path(name), restore_to, options)
            .expect("restored");
        all(&Store::open(path(name), store_options()).expect("opened"))
    };
    assert_eq!(restore("latest", RestoreTo::Latest), all(&store));
    let middle = Position(events[30].position);
    assert_eq!(restore("middle", RestoreTo::Position(middle)), events[..=30]);
    let checked = verify_objects(&env, Arc::clone(&objects), ObjectRequestOptions::default());
    let checked = checked.expect("verified");
    assert!(checked.damage.is_empty(), "{:?}", checked.damage);
    assert_eq!(checked.restorable.len(), 1);
    let options =
        RetentionOptions { keep: Duration::ZERO, dry_run: false, requests: Default::default() };
    retain(&env, Arc::clone(&objects), options).expect("retained");
    assert_eq!(restore("retained", RestoreTo::Latest), all(&store));
}

fn store_options() -> StoreOptions {
    StoreOptions { chunk_bytes: 4 << 20, ..StoreOptions::default() }
}
