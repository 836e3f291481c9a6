//! The directory backend on the real file system.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use umbel_backup::{BackupError, ObjectRequestOptions, ObjectRequests};
use umbel_env::{
    Creation, CreationRequest, Env, ListPage, ObjectErrorKind, ObjectName, Objects, PrefixedObjects,
};
use umbel_objects::{DirectoryObjects, Probe, ProbeVerdict};
use umbel_sim::Random;

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

fn open(directory: &Path) -> DirectoryObjects {
    DirectoryObjects::open(&Env::system(), directory).unwrap()
}

fn store() -> (TempDir, DirectoryObjects) {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    (directory, store)
}

fn create(store: &dyn Objects, text: &str, bytes: &[u8]) -> Creation {
    store.create(&name(text), bytes).unwrap().value
}

fn read(store: &dyn Objects, text: &str, range: Range<u64>) -> Option<(Vec<u8>, u64)> {
    let found = store.read(&name(text), range).unwrap().value;
    found.map(|found| (found.bytes, found.object_bytes))
}

fn names(page: &ListPage) -> Vec<&str> {
    page.objects.iter().map(|object| object.name.as_str()).collect()
}

#[test]
fn object_is_created_once_and_read_in_ranges() {
    let (_directory, store) = store();
    assert!(store.location().starts_with("file:///"), "{}", store.location());
    assert_eq!(read(&store, "slots/1", 0..9), None);
    assert_eq!(create(&store, "slots/1", b"first"), Creation::Created);
    assert_eq!(create(&store, "slots/1", b"second"), Creation::Exists);
    assert_eq!(read(&store, "slots/1", 0..100), Some((b"first".to_vec(), 5)));
    assert_eq!(read(&store, "slots/1", 1..3), Some((b"ir".to_vec(), 5)));
    assert_eq!(read(&store, "slots/1", 4..9), Some((b"t".to_vec(), 5)));
    assert_eq!(read(&store, "slots/1", 5..9), Some((vec![], 5)));
    assert_eq!(read(&store, "slots/1", 70..u64::MAX), Some((vec![], 5)));
    assert_eq!(create(&store, "empty", b""), Creation::Created);
    assert_eq!(read(&store, "empty", 0..1), Some((vec![], 0)));
    store.delete(&name("slots/1")).unwrap();
    store.delete(&name("slots/1")).unwrap();
    store.delete(&name("never/was")).unwrap();
    assert_eq!(read(&store, "slots/1", 0..9), None);
    assert_eq!(create(&store, "slots/1", b"third"), Creation::Created);
}

#[test]
fn put_accepts_a_repetition_and_refuses_other_bytes() {
    let (_directory, store) = store();
    let bytes = Random::new(3).bytes(3 << 20);
    store.put(&name("chunks/1-a"), &bytes).unwrap();
    store.put(&name("chunks/1-a"), &bytes).unwrap();
    let mut other = bytes.clone();
    *other.last_mut().unwrap() ^= 1;
    for other in [other, bytes[1..].to_vec()] {
        let error = store.put(&name("chunks/1-a"), &other).unwrap_err();
        assert_eq!(error.kind, ObjectErrorKind::Refused);
        assert!(error.to_string().contains("another object has this name"), "{error}");
    }
    assert_eq!(read(&store, "chunks/1-a", 0..9 << 20).unwrap().0, bytes);
}

#[test]
fn creation_carries_the_time_of_the_file_system() {
    let (_directory, store) = store();
    let created = store.create(&name("a"), b"x").unwrap();
    let now = Env::system().clock.wall_micros();
    assert!(created.store_micros.unwrap().abs_diff(now) < 60_000_000);
    let page = store.list("", None, 9).unwrap().value;
    let listed = page.objects[0].created_micros;
    assert!(listed.is_some() && listed <= created.store_micros, "{listed:?}");
    assert!(store.create(&name("a"), b"x").unwrap().store_micros >= created.store_micros);
}

#[test]
fn list_pages_are_the_sorted_names() {
    let mut random = Random::new(7);
    for _ in 0..20 {
        let (_directory, store) = store();
        let mut expected = Vec::new();
        for _ in 0..random.below(30) {
            let depth = 1 + random.below(3);
            let segment = |random: &mut Random| {
                let first = random.pick(&["a", "b", "a-", "a."]);
                format!("{first}{}", random.pick(&["x", "-", ".", "0"]))
            };
            let mut segments: Vec<_> = (0..depth).map(|_| segment(&mut random)).collect();
            // No name is the parent of another one.
            segments.push(format!("o{}", random.below(5)));
            let text = segments.join("/");
            if create(&store, &text, b"x") == Creation::Created {
                expected.push(text);
            }
        }
        expected.sort();
        for prefix in ["", "a", "ax/", "a-x/a", "a.", "b0/o1", "zzz", "..", "/", "ax//"] {
            let matching: Vec<_> = expected.iter().filter(|n| n.starts_with(prefix)).collect();
            for page_objects in [1, 2, 7, 100] {
                let (mut found, mut after): (Vec<String>, Option<String>) = Default::default();
                loop {
                    let page = store.list(prefix, after.as_deref(), page_objects).unwrap().value;
                    assert!(page.objects.len() <= page_objects);
                    found.extend(names(&page).into_iter().map(String::from));
                    after = page.next_after;
                    if after.is_none() {
                        break;
                    }
                }
                assert!(found.iter().eq(matching.iter().copied()), "{prefix}: {found:?}");
            }
        }
    }
}

/// Other programs have files in a shared directory, and could plant links in it.
#[test]
fn foreign_files_and_links_are_no_objects() {
    let (directory, store) = store();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    let root = directory.path();
    assert_eq!(create(&store, "slots/1", b"x"), Creation::Created);
    symlink(outside.path(), root.join("out")).unwrap();
    symlink(outside.path().join("secret"), root.join("link")).unwrap();
    symlink(outside.path().join("new"), root.join("slots/dangling")).unwrap();
    for hidden in [".nfs0001", "notes~", "a b", "#x#"] {
        fs::write(root.join(hidden), "x").unwrap();
    }
    fs::create_dir(root.join("lost+found")).unwrap();
    fs::write(root.join("lost+found/a"), "x").unwrap();
    assert_eq!(names(&store.list("", None, 99).unwrap().value), ["slots/1"]);
    assert_eq!(names(&store.list(".", None, 99).unwrap().value), Vec::<&str>::new());
    assert!(store.list("out/", None, 99).is_err());
    for linked in ["out/secret", "link", "slots/dangling"] {
        let error = store.read(&name(linked), 0..9).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
    }
    assert!(store.create(&name("out/planted"), b"x").is_err());
    assert_eq!(create(&store, "slots/dangling", b"x"), Creation::Exists);
    assert!(store.delete(&name("link")).is_err());
    assert!(root.join("link").is_symlink() && !outside.path().join("planted").exists());
    assert!(!outside.path().join("new").exists());
}

#[test]
fn a_directory_or_a_file_in_the_way_is_an_error() {
    let (_directory, store) = store();
    assert_eq!(create(&store, "a/b", b"x"), Creation::Created);
    assert_eq!(store.read(&name("a"), 0..9).unwrap_err().kind, ObjectErrorKind::Refused);
    assert!(store.create(&name("a/b/c"), b"x").is_err());
    assert!(store.delete(&name("a")).is_err());
    assert!(store.put(&name("a"), &b"x".to_vec()).is_err());
}

#[test]
fn of_concurrent_creations_one_succeeds() {
    let (directory, store) = store();
    for round in 0..50 {
        let object = name(&format!("race/{round}"));
        let request = |number: u8| CreationRequest {
            name: object.clone(),
            bytes: vec![number; 5000],
            body_delay: Duration::from_millis(u64::from(number == 3)),
        };
        let requests: Vec<_> = (0..8).map(request).collect();
        let outcomes = store.create_concurrently(&requests);
        let outcomes: Vec<_> = outcomes.into_iter().map(|o| o.unwrap().value).collect();
        let winners: Vec<_> =
            (0..8).filter(|n| outcomes[*n as usize] == Creation::Created).collect();
        assert_eq!(winners.len(), 1, "{outcomes:?}");
        assert_eq!(outcomes.iter().filter(|o| **o == Creation::Exists).count(), 7);
        let bytes = store.read(&object, 0..9999).unwrap().value.unwrap().bytes;
        assert_eq!(bytes, [winners[0]; 5000]);
    }
    assert_eq!(store.create_concurrently(&[]), []);
    assert_eq!(fs::read_dir(directory.path().join(".temporary")).unwrap().count(), 0);
}

#[test]
fn missing_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("not/mounted");
    let error = DirectoryObjects::open(&Env::system(), &missing).unwrap_err().to_string();
    assert!(error.contains("is missing; mount its file system"), "{error}");
    assert!(!missing.exists());
    let file = directory.path().join("file");
    fs::write(&file, b"kept").unwrap();
    let error = DirectoryObjects::open(&Env::system(), &file).unwrap_err();
    assert!(matches!(error, umbel_base::Error::Invalid(_)), "{error}");
    assert!(error.to_string().contains("file is a file, but an object store"), "{error}");
    // Story: the path below the file was called a file, although it did not exist.
    let below = file.join("a/copy");
    let error = DirectoryObjects::open(&Env::system(), &below).unwrap_err().to_string();
    let named = format!("{} is a file, so the directory {}", file.display(), below.display());
    assert!(error.starts_with(&named), "{error}");
    assert_eq!(fs::read(&file).unwrap(), b"kept");
}

/// Two writers that hold different directories would both create the same name.
#[test]
fn moved_or_removed_directory_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let root = parent.path().join("objects");
    fs::create_dir(&root).unwrap();
    let store = open(&root);
    assert_eq!(create(&store, "a", b"x"), Creation::Created);
    fs::rename(&root, parent.path().join("moved")).unwrap();
    fs::create_dir(&root).unwrap();
    let errors = [
        store.create(&name("b"), b"x").unwrap_err(),
        store.put(&name("b"), &b"x".to_vec()).unwrap_err(),
        store.read(&name("a"), 0..1).unwrap_err(),
        store.list("", None, 9).unwrap_err(),
        store.delete(&name("a")).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind, ObjectErrorKind::Refused);
        assert!(error.to_string().contains("leads to another directory now"), "{error}");
    }
    assert!(parent.path().join("moved/a").exists());
    fs::remove_dir_all(parent.path().join("moved")).unwrap();
    let error = store.create(&name("b"), b"x").unwrap_err().to_string();
    assert!(error.contains("the directory was removed"), "{error}");
}

#[test]
fn objects_below_a_prefix_are_a_store_of_their_own() {
    let (_directory, store) = store();
    let outer: Arc<dyn Objects> = Arc::new(store);
    let inner = PrefixedObjects::new(Arc::clone(&outer), &name("kv"));
    let report = Probe::new(&Env::system(), &inner).unwrap().run();
    assert_eq!(report.verdict(), ProbeVerdict::Suitable, "{report:?}");
    assert_eq!(inner.location(), format!("{}/kv", outer.location()));
    for text in ["a", "kv/a", "kv/b/c", "kv2/d"] {
        assert_eq!(create(&*outer, text, text.as_bytes()), Creation::Created);
    }
    assert_eq!(create(&inner, "a", b"other"), Creation::Exists);
    assert_eq!(read(&inner, "b/c", 0..9), Some((b"kv/b/c".to_vec(), 6)));
    let page = inner.list("", None, 1).unwrap().value;
    assert_eq!((names(&page), page.next_after.as_deref()), (vec!["a"], Some("a")));
    assert_eq!(names(&inner.list("", Some("a"), 9).unwrap().value), ["b/c"]);
    assert_eq!(names(&inner.list("b/", None, 9).unwrap().value), ["b/c"]);
    inner.delete(&name("a")).unwrap();
    assert_eq!((read(&*outer, "kv/a", 0..1), read(&*outer, "a", 0..1).is_some()), (None, true));
    let long = name(&["x".repeat(200), "y".repeat(200), "z".repeat(109)].join("/"));
    let error = inner.create(&long, b"").expect_err("the whole name is too long");
    assert_eq!(error.kind, ObjectErrorKind::Refused);
}

fn requests(store: DirectoryObjects) -> ObjectRequests {
    ObjectRequests::new(&Env::system(), Arc::new(store), ObjectRequestOptions::default())
}

/// The manifests of 30 days, 259,200 of them, were read from the directory 260 times for one list.
#[test]
fn list_of_many_objects_reads_the_directory_once() {
    let (directory, store) = store();
    create(&store, "manifests/00000", b"");
    for number in 1..2500 {
        fs::write(directory.path().join(format!("manifests/{number:05}")), b"x").unwrap();
    }
    let requests = requests(store);
    let listed = requests.list("manifests/").unwrap();
    assert_eq!(listed.len(), 2500);
    assert!(listed.is_sorted_by_key(|object| object.name.clone()));
    assert_eq!(requests.counts()["list"], 1);
}

/// A creation reads an object that exists, to compare its bytes.
#[test]
fn creation_does_not_read_a_huge_foreign_object_into_memory() {
    let (directory, store) = store();
    create(&store, "floors/1", b"");
    let file = fs::File::create(directory.path().join("floors/2")).unwrap();
    file.set_len(1 << 40).unwrap();
    let error = requests(store).create(&name("floors/2"), b"floor").unwrap_err();
    assert!(matches!(&error, BackupError::Objects(it) if it.kind == ObjectErrorKind::Damaged));
    assert!(error.to_string().contains("more than 1073741824 bytes"), "{error}");
}
