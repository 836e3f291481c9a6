//! Numbers, sites, traces, and the environment besides the disk.

use std::path::Path;
use std::time::Duration;

use umbel_env::{Access, Env};
use umbel_sim::{Sim, Survival};

fn work(env: &Env, db: &str) {
    let db = Path::new(db);
    env.files.create_dir_all(db).unwrap();
    let _lock = env.files.lock(&db.join("LOCK")).unwrap();
    for number in 1..4 {
        let file = env.files.create(&db.join(format!("{number:06}.log"))).unwrap();
        let mut bytes = [0; 100];
        env.entropy.fill(&mut bytes).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file.sync().unwrap();
    }
    env.files.create(&db.join("CURRENT.tmp")).unwrap();
    env.files.rename(&db.join("CURRENT.tmp"), &db.join("CURRENT")).unwrap();
    env.files.sync_dir(db).unwrap();
    assert!(env.files.exists(db).unwrap());
    assert!(env.files.open(&db.join("nothing"), Access::Read).is_err());
}

#[test]
fn the_same_seed_and_calls_leave_the_same_trace() {
    let run = |seed| {
        let sim = Sim::new(seed);
        work(&sim.env(), "/db");
        let image = sim.crash_image(&Survival::Random(0.5), 3);
        work(&image.env(), "/other");
        (sim.trace_hash(), image.trace_hash(), sim.read("/db/000002.log"))
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let read = |rotten| {
        let sim = Sim::new(1);
        let file = sim.env().files.create(Path::new("/a")).unwrap();
        file.write_all_at(b"byte", 0).unwrap();
        if rotten {
            sim.flip("/a", 1, 1);
        }
        file.read_exact_at(&mut [0; 4], 0).unwrap();
        sim.trace_hash()
    };
    assert_eq!(read(false), read(false));
    assert_ne!(read(false), read(true));
    let one = Sim::new(1);
    work(&one.env(), "/db");
    let before = one.trace_hash();
    one.env().files.exists(Path::new("/db")).unwrap();
    assert_ne!(one.trace_hash(), before);
}

#[test]
fn calls_have_numbers_and_sites() {
    let sim = Sim::new(1);
    work(&sim.env(), "/db");
    let sites: Vec<_> = sim.sites().into_iter().collect();
    let seen: Vec<_> = sites.iter().map(|(label, count)| (label.as_str(), *count)).collect();
    let expected = [
        ("create *.log", 3),
        ("create CURRENT.tmp", 1),
        ("create_dir directory", 1),
        ("exists directory", 1),
        ("lock LOCK", 1),
        ("open nothing", 1),
        ("rename CURRENT.tmp to CURRENT", 1),
        ("sync *.log", 3),
        ("sync_dir directory", 1),
        ("write *.log", 3),
    ];
    assert_eq!(seen, expected);
    assert_eq!(sim.calls(), 16);
    assert_eq!(sim.site_of(1).as_deref(), Some("create_dir directory"));
    assert_eq!(sim.site_of(16).as_deref(), Some("open nothing"));
    assert_eq!((sim.site_of(0), sim.site_of(17)), (None, None));
    assert_eq!(sim.changing_calls(), (1..=14).collect::<Vec<_>>());
}

#[test]
fn time_passes_only_by_calls() {
    let sim = Sim::new(1);
    let env = sim.env();
    let first = env.clock.now();
    let second = env.clock.now();
    assert_eq!(second - first, Duration::from_micros(1));
    sim.advance(Duration::from_secs(5));
    assert!(env.clock.now() > second + Duration::from_secs(5));
    let wall = env.clock.wall_micros();
    assert!(sim.crash_image(&Survival::All, 0).env().clock.wall_micros() > wall + 1_000_000);
    assert_eq!(env.threads.parallelism(), 1);
    assert!(env.threads.spawn("helper", Box::new(|| ())).unwrap().join());
}

#[test]
fn removed_files_stay_readable_through_their_handles() {
    let sim = Sim::new(1);
    let env = sim.env();
    let path = Path::new("/a");
    let file = env.files.create(path).unwrap();
    file.write_all_at(b"held", 0).unwrap();
    env.files.remove_file(path).unwrap();
    for _ in 0..2 {
        env.files.sync_dir(Path::new("/")).unwrap();
    }
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"held");
    assert_eq!(sim.pending_units(), 1);
    drop(file);
    env.files.sync_dir(Path::new("/")).unwrap();
    assert_eq!(sim.pending_units(), 0);
}

#[test]
fn name_rules_equal_the_real_file_system() {
    let folder = fresh_folder();
    for (env, root) in [(Env::system(), folder.clone()), (Sim::new(1).env(), folder.clone())] {
        env.files.create_dir_all(&root.join("d/e")).unwrap();
        env.files.create_dir_all(&root.join("d/e")).unwrap();
        let kinds = |result: umbel_base::Result<()>| match result {
            Err(umbel_base::Error::Io { source, .. }) => source.raw_os_error(),
            other => panic!("{other:?}"),
        };
        let at = |name: &str| root.join(name);
        env.files.create(&at("f")).unwrap();
        let read_only = env.files.open(&at("f"), Access::Read).unwrap();
        let seen = [
            kinds(env.files.create(&at("f")).map(drop)),
            kinds(env.files.create(&at("f/x")).map(drop)),
            kinds(env.files.create(&at("missing/x")).map(drop)),
            kinds(env.files.rename(&at("missing"), &at("f"))),
            kinds(env.files.rename(&at("f"), &at("d"))),
            kinds(env.files.hard_link(&at("f"), &*env.files, &at("f"))),
            kinds(env.files.hard_link(&at("d"), &*env.files, &at("g"))),
            kinds(env.files.remove_file(&at("d"))),
            kinds(env.files.read_dir(&at("f")).map(drop)),
            kinds(env.files.create_dir_all(&at("f"))),
            kinds(read_only.write_all_at(b"x", 0)),
            kinds(read_only.set_len(9)),
            kinds(read_only.preallocate(9)),
        ];
        let expected = [17, 20, 2, 2, 21, 17, 1, 21, 20, 17, 9, 22, 9].map(Some);
        assert_eq!(seen, expected, "{env:?}");
        env.files.rename(&at("f"), &at("f")).unwrap();
        let listed = env.files.read_dir(&root).unwrap();
        let names: Vec<_> = listed.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["d", "f"]);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A fresh folder's path.
fn fresh_folder() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("umbel-sim-contract-{}", std::process::id()))
}

/// Images of logs of 64 MiB must take little memory, which a mistake in the sharing of pages would
/// change.
#[test]
fn images_of_large_files_are_cheap() {
    let sim = Sim::new(1);
    let env = sim.env();
    let mut files = Vec::new();
    for number in 0..4 {
        let file = env.files.create(Path::new(&format!("/{number}.log"))).unwrap();
        file.preallocate(64 << 20).unwrap();
        for block in 0..256u64 {
            file.write_all_at(&[7; 4096], block * 4096).unwrap();
        }
        file.sync().unwrap();
        file.write_all_at(&[8; 700], 3 << 20).unwrap();
        files.push(file);
    }
    env.files.sync_dir(Path::new("/")).unwrap();
    let wall = Env::system();
    let before = wall.clock.now();
    for seed in 0..1000 {
        let image = sim.crash_image(&Survival::Random(0.5), seed);
        assert_eq!(image.files().len(), 4);
    }
    let taken = wall.clock.now() - before;
    println!("1000 images of four 64 MiB logs: {taken:?}");
    assert!(taken < Duration::from_secs(5), "{taken:?}");
}

#[test]
fn files_have_the_time_of_their_last_change() {
    let sim = Sim::new(1);
    let env = sim.env();
    let file = env.files.create(Path::new("/a")).unwrap();
    let created = file.modified_micros().unwrap();
    assert!(created <= env.clock.wall_micros());
    sim.advance(Duration::from_secs(5));
    env.files.hard_link(Path::new("/a"), &*env.files, Path::new("/b")).unwrap();
    assert_eq!(file.modified_micros().unwrap(), created);
    file.write_all_at(b"x", 0).unwrap();
    let written = file.modified_micros().unwrap();
    assert!(written >= created + 5_000_000);
    file.sync().unwrap();
    env.files.sync_dir(Path::new("/")).unwrap();
    let image = sim.crash_image(&Survival::None, 0).env().files;
    let entries = image.read_dir(Path::new("/")).unwrap();
    let facts: Vec<_> = entries.iter().map(|e| (e.is_file, e.modified_micros)).collect();
    assert_eq!(facts, [(true, written), (true, written)]);
}
