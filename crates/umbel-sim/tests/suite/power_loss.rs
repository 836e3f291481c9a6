//! Survival after a power loss, case by case.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use umbel_env::{Env, File};
use umbel_sim::{Sim, Survival};

const ALL_POLICIES: [Survival; 9] = [
    Survival::None,
    Survival::All,
    Survival::Prefix(2),
    Survival::Reverse(2),
    Survival::Random(0.5),
    Survival::NamesOnly,
    Survival::DataOnly,
    Survival::NewestOnly,
    Survival::Garbage(0.5),
];

fn start() -> (Sim, Env) {
    let sim = Sim::new(1);
    let env = sim.env();
    (sim, env)
}

fn create(env: &Env, path: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = env.files.create(Path::new(path)).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn sync_dir(env: &Env, path: &str) {
    env.files.sync_dir(Path::new(path)).unwrap();
}

#[test]
fn synced_bytes_and_names_survive_every_policy() {
    let (sim, env) = start();
    env.files.create_dir_all(Path::new("/db/sub")).unwrap();
    sync_dir(&env, "/");
    sync_dir(&env, "/db");
    let file = create(&env, "/db/sub/a", &[7; 5000]);
    file.sync().unwrap();
    sync_dir(&env, "/db/sub");
    assert_eq!(sim.pending_units(), 0);
    create(&env, "/db/sub/b", b"later");
    file.write_all_at(&[8; 5000], 5000).unwrap();
    for policy in ALL_POLICIES {
        for seed in 0..20 {
            let image = sim.crash_image(&policy, seed);
            assert_eq!(image.read("/db/sub/a")[..5000], [7; 5000], "{policy:?} {seed}");
            assert_eq!(image.pending_units(), 0);
        }
    }
}

#[test]
fn file_needs_both_its_sync_and_its_name() {
    let (sim, env) = start();
    create(&env, "/synced", b"bytes").sync().unwrap();
    assert!(!sim.crash_image(&Survival::None, 0).has("/synced"));
    assert!(!sim.crash_image(&Survival::DataOnly, 0).has("/synced"));
    sync_dir(&env, "/");
    assert_eq!(sim.crash_image(&Survival::None, 0).read("/synced"), b"bytes");
    create(&env, "/named", b"bytes");
    sync_dir(&env, "/");
    let image = sim.crash_image(&Survival::None, 0);
    assert_eq!(image.read("/named"), b"");
    assert_eq!(sim.crash_image(&Survival::All, 0).read("/named"), b"bytes");
}

#[test]
fn a_new_directory_can_vanish_with_everything_in_it() {
    let (sim, env) = start();
    env.files.create_dir_all(Path::new("db")).unwrap();
    create(&env, "db/a", b"x").sync().unwrap();
    sync_dir(&env, "db");
    assert!(sim.crash_image(&Survival::None, 0).files().is_empty());
    // The parent of a bare relative name is the empty path.
    sync_dir(&env, "");
    assert_eq!(sim.crash_image(&Survival::None, 0).files(), [Path::new("/db/a")]);
}

#[test]
fn rename_is_atomic() {
    let (sim, env) = start();
    create(&env, "/CURRENT", b"old").sync().unwrap();
    sync_dir(&env, "/");
    create(&env, "/CURRENT.tmp", b"new").sync().unwrap();
    env.files.rename(Path::new("/CURRENT.tmp"), Path::new("/CURRENT")).unwrap();
    let mut seen = BTreeSet::new();
    let images = sim.crash_images_exhaustive(100);
    assert!(images.is_exhaustive());
    assert_eq!(images.remaining(), 4);
    for image in images {
        seen.insert((image.read("/CURRENT"), image.has("/CURRENT.tmp")));
    }
    let expected = [(b"new".to_vec(), false), (b"old".to_vec(), false), (b"old".to_vec(), true)];
    assert_eq!(seen, BTreeSet::from(expected));
    sync_dir(&env, "/");
    assert_eq!(sim.crash_image(&Survival::None, 0).read("/CURRENT"), b"new");
}

#[test]
fn a_removal_can_reach_the_disk_before_an_earlier_rename() {
    let (sim, env) = start();
    for name in ["/1.log", "/CURRENT", "/CURRENT.tmp"] {
        create(&env, name, name.as_bytes()).sync().unwrap();
    }
    sync_dir(&env, "/");
    env.files.rename(Path::new("/CURRENT.tmp"), Path::new("/CURRENT")).unwrap();
    env.files.remove_file(Path::new("/1.log")).unwrap();
    let seen: BTreeSet<_> = sim
        .crash_images_exhaustive(100)
        .map(|image| (image.read("/CURRENT") == b"/CURRENT.tmp", image.has("/1.log")))
        .collect();
    let all = [(false, false), (false, true), (true, false), (true, true)];
    assert_eq!(seen, BTreeSet::from(all));
}

#[test]
fn rename_between_directories_is_durable_by_either_sync() {
    for settled_by in ["/a", "/b"] {
        let (sim, env) = start();
        env.files.create_dir_all(Path::new("/a")).unwrap();
        env.files.create_dir_all(Path::new("/b")).unwrap();
        create(&env, "/a/x", b"x").sync().unwrap();
        for directory in ["/", "/a", "/b"] {
            sync_dir(&env, directory);
        }
        env.files.rename(Path::new("/a/x"), Path::new("/b/y")).unwrap();
        assert_eq!(sim.crash_image(&Survival::None, 0).files(), [Path::new("/a/x")]);
        sync_dir(&env, settled_by);
        assert_eq!(sim.crash_image(&Survival::None, 0).files(), [Path::new("/b/y")]);
    }
}

#[test]
fn hard_links_share_bytes_and_names_are_independent() {
    let (sim, env) = start();
    create(&env, "/a", b"shared").sync().unwrap();
    sync_dir(&env, "/");
    env.files.hard_link(Path::new("/a"), &*env.files, Path::new("/b")).unwrap();
    env.files.remove_file(Path::new("/a")).unwrap();
    let seen: BTreeSet<_> = sim.crash_images_exhaustive(9).map(|image| image.files()).collect();
    // Both files can be lost: the removal reached the disk and the link did not.
    assert_eq!(seen.len(), 4);
    assert!(seen.contains(&Vec::new()));
    assert_eq!(sim.read("/b"), b"shared");
}

#[test]
fn single_rename_keeps_an_older_file_of_that_name() {
    let (sim, env) = start();
    create(&env, "/a", b"old").sync().unwrap();
    sync_dir(&env, "/");
    env.files.remove_file(Path::new("/a")).unwrap();
    create(&env, "/a", b"new").sync().unwrap();
    env.files.rename(Path::new("/a"), Path::new("/b")).unwrap();
    let images: Vec<_> = sim.crash_images_exhaustive(8).collect();
    assert_eq!(images.len(), 8);
    let renamed_only = |image: &Sim| {
        image.has("/b")
            && image.has("/a")
            && image.read("/a") == b"old"
            && image.read("/b") == b"new"
    };
    assert!(images.iter().any(renamed_only));
}

#[test]
fn removed_file_can_return_despite_other_syncs() {
    let (sim, env) = start();
    env.files.create_dir_all(Path::new("/other")).unwrap();
    create(&env, "/a", b"bytes").sync().unwrap();
    env.files.remove_file(Path::new("/a")).unwrap();
    sync_dir(&env, "/other");
    let mut images = sim.crash_images_exhaustive(8);
    assert!(images.any(|image| image.has("/a") && image.read("/a") == b"bytes"));
}

#[test]
fn the_length_of_a_long_write_can_survive_alone() {
    let (sim, env) = start();
    let file = create(&env, "/a", b"");
    sync_dir(&env, "/");
    file.write_all_at(&[1; 512 * 512], 0).unwrap();
    let is_bare = |seed| {
        let bytes = sim.crash_image(&Survival::Random(0.9), seed).read("/a");
        bytes.len() == 512 * 512 && bytes.iter().all(|byte| *byte == 0)
    };
    assert!((0..100).any(is_bare));
}

/// Returns for each sector of `bytes` the one byte value that it holds; panics if a sector holds
/// several values.
fn sectors(bytes: &[u8]) -> Vec<u8> {
    let value_of = |sector: &[u8]| {
        assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is mixed");
        sector[0]
    };
    bytes.chunks(512).map(value_of).collect()
}

#[test]
fn writes_tear_at_sectors_in_any_subset() {
    let (sim, env) = start();
    let file = create(&env, "/a", &[1; 4 * 512]);
    file.sync().unwrap();
    sync_dir(&env, "/");
    file.write_all_at(&[2; 4 * 512], 0).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..2000 {
        seen.insert(sectors(&sim.crash_image(&Survival::Random(0.9), seed).read("/a")));
    }
    assert_eq!(seen.len(), 16, "{seen:?}");
}

#[test]
fn a_length_can_survive_without_its_bytes() {
    let (sim, env) = start();
    let file = create(&env, "/a", b"");
    sync_dir(&env, "/");
    file.write_all_at(&[3; 1024], 0).unwrap();
    let image = |seed| sectors(&sim.crash_image(&Survival::Random(0.5), seed).read("/a"));
    let seen: BTreeSet<_> = (0..500).map(image).collect();
    let expected: [&[u8]; 5] = [&[], &[0, 0], &[3], &[0, 3], &[3, 0]];
    for sectors in expected {
        assert!(seen.contains(sectors), "{sectors:?} of {seen:?}");
    }
    assert!(seen.contains(&vec![3, 3]));
}

#[test]
fn garbage_stays_within_the_write() {
    let (sim, env) = start();
    let file = create(&env, "/a", &[1; 1024]);
    file.sync().unwrap();
    sync_dir(&env, "/");
    file.write_all_at(&[2; 200], 400).unwrap();
    let mut garbage = 0;
    for seed in 0..300 {
        let bytes = sim.crash_image(&Survival::Garbage(0.9), seed).read("/a");
        assert_eq!((&bytes[..400], &bytes[600..]), (&[1; 400][..], &[1; 424][..]));
        garbage += u32::from(bytes[400..600].iter().any(|byte| *byte != 1 && *byte != 2));
    }
    assert!(garbage > 50, "{garbage}");
}

#[test]
fn prefix_and_reverse_keep_either_end_of_the_order() {
    let (sim, env) = start();
    let file = create(&env, "/a", b"");
    sync_dir(&env, "/");
    for index in 0..6u8 {
        file.write_all_at(&[index + 1], u64::from(index)).unwrap();
    }
    for seed in 0..30 {
        let prefix = sim.crash_image(&Survival::Prefix(3), seed).read("/a");
        assert!(
            [&[1, 2, 3][..], &[1, 2, 3, 0], &[1, 2, 3, 4]].contains(&&prefix[..]),
            "{prefix:?}"
        );
        let suffix = sim.crash_image(&Survival::Reverse(2), seed).read("/a");
        assert_eq!(suffix[..3], [0, 0, 0]);
        assert_eq!(suffix[4..], [5, 6]);
    }
    assert_eq!(sim.crash_image(&Survival::NewestOnly, 0).read("/a"), [0, 0, 0, 0, 0, 6]);
    assert_eq!(sim.crash_image(&Survival::Prefix(99), 0).read("/a"), [1, 2, 3, 4, 5, 6]);
    assert_eq!(sim.crash_image(&Survival::Reverse(99), 0).read("/a"), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn each_mapped_store_is_a_unit() {
    let (sim, env) = start();
    let file = create(&env, "/a", b"");
    assert!(file.map(4096).is_err(), "nothing is reserved yet");
    file.preallocate(64 << 20).unwrap();
    let mut mapping = file.map(64 << 20).unwrap().unwrap();
    file.sync().unwrap();
    sync_dir(&env, "/");
    mapping.write_at(b"first", 0).unwrap();
    mapping.write_at(b"second", 1 << 20).unwrap();
    assert!(mapping.write_at(b"x", 64 << 20).is_err());
    assert_eq!(sim.pending_units(), 2);
    let part = |image: &Sim, offset, len| {
        let file = image.env().files.open(Path::new("/a"), umbel_env::Access::Read).unwrap();
        let mut bytes = vec![9; len];
        file.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    };
    let later_only = sim.crash_image(&Survival::NewestOnly, 0);
    assert_eq!(part(&later_only, 0, 5), [0; 5]);
    assert_eq!(part(&later_only, 1 << 20, 6), b"second");
    file.sync().unwrap();
    let image = sim.crash_image(&Survival::None, 0);
    assert_eq!((part(&image, 0, 5), part(&image, 1 << 20, 6)), (b"first".into(), b"second".into()));
    file.set_len(100).unwrap();
    let text = mapping.write_at(b"x", 100).unwrap_err().to_string();
    assert!(text.ends_with("the file was truncated; a real process dies of this store"), "{text}");
    let grown = create(&env, "/grown", b"");
    grown.set_len(4096).unwrap();
    assert!(grown.map(4096).is_err(), "a length reserves nothing");
    grown.preallocate(4096).unwrap();
    assert!(grown.map(4096).unwrap().is_some());
    sim.allow_mapping(false);
    assert!(file.map(4096).unwrap().is_none());
}

#[test]
fn process_death_loses_locks_and_nothing_else() {
    let (sim, env) = start();
    drop(env.files.lock(Path::new("/LOCK")).unwrap());
    let _held = env.files.lock(Path::new("/LOCK")).unwrap();
    create(&env, "/a", b"bytes");
    let error = env.files.lock(Path::new("LOCK")).unwrap_err();
    assert!(matches!(error, umbel_base::Error::Locked(_)));
    let killed = sim.kill_image();
    killed.env().files.lock(Path::new("/LOCK")).unwrap();
    assert_eq!(killed.read("/a"), b"bytes");
    // A power loss can still lose pending units.
    assert_eq!(killed.pending_units(), sim.pending_units());
    assert!(killed.crash_image(&Survival::None, 0).files().is_empty());
    let image = sim.crash_image(&Survival::All, 0);
    image.env().files.lock(Path::new("/LOCK")).unwrap();
}

#[test]
fn too_many_units_are_sampled() {
    let (sim, env) = start();
    let file = create(&env, "/a", b"");
    for index in 0..20 {
        file.write_all_at(b"x", index).unwrap();
    }
    let images = sim.crash_images_exhaustive(50);
    assert!(!images.is_exhaustive());
    assert_eq!(images.count(), 50);
}

#[test]
fn unsynced_directory_removal_can_be_undone() {
    let (sim, env) = start();
    env.files.create_dir_all(Path::new("/a/b")).unwrap();
    sync_dir(&env, "/a");
    sync_dir(&env, "/");
    create(&env, "/a/b/c", b"c");
    assert!(env.files.remove_dir(Path::new("/a/b")).is_err(), "there is a file in it");
    env.files.remove_file(Path::new("/a/b/c")).unwrap();
    env.files.remove_dir(Path::new("/a/b")).unwrap();
    assert!(!env.files.exists(Path::new("/a/b")).unwrap());
    let is_there = |survival: &Survival| {
        let image = sim.crash_image(survival, 1);
        image.env().files.exists(Path::new("/a/b")).unwrap()
    };
    assert!(is_there(&Survival::None) && !is_there(&Survival::All));
    sync_dir(&env, "/a");
    assert!(!is_there(&Survival::None));
}
