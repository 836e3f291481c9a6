//! Damage of every kind to the files of a small filter: no false negative, no panic, and the
//! filter is healthy again after its steps.

use std::path::PathBuf;

use umbel_existence::{ExistenceOptions, ExistenceSize};
use umbel_sim::Sim;

use super::fixture::{assert_none_denied, denied, insert, keys, machine, open, small, stocked};
use umbel_testing::existence_script::file_damage::files;
use umbel_testing::existence_script::memory_hash_source::{hash_of, settle};

/// Flips two bits of each byte; with `UMBEL_EVERY_BIT`, all of them.
#[test]
fn flipped_bits_cause_no_false_negative() {
    let bits = if std::env::var_os("UMBEL_EVERY_BIT").is_some() { 8 } else { 2 };
    // Large enough steps that the open itself adds the hashes of the journal.
    let options = ExistenceOptions { step_bytes: 1 << 17, ..small() };
    let sim = stocked(options);
    let hashes: Vec<u64> = (0..300).map(hash_of).collect();
    let mut answers = vec![false; 300];
    let mut noticed = 0;
    for path in files(&sim) {
        for at in 0..sim.read(&path).len() as u64 {
            for bit in (0..bits).map(|number| (at + 3 * number) % 8) {
                let damaged = sim.clone_disk();
                damaged.flip(&path, at, 1 << bit);
                let filter = open(&damaged, options).unwrap();
                let covered = filter.covered();
                insert(&filter, covered..300);
                filter.may_contain_batch(&hashes, &mut answers);
                let all = answers.iter().all(|answer| *answer);
                assert!(all, "{} byte {at} bit {bit}", path.display());
                noticed += u64::from(covered < 300 || filter.stats().damaged_lines > 0);
            }
        }
    }
    // All but the bytes of the filter file's header, which are not needed.
    let (filter, all) = (8192, files(&sim).iter().map(|path| sim.read(path).len()).sum::<usize>());
    assert_eq!(noticed, bits * (all - filter / 2) as u64);
}

/// One in each line and record.
#[test]
fn a_flipped_bit_is_healed() {
    let sim = stocked(small());
    for path in files(&sim) {
        for at in (3..sim.read(&path).len() as u64).step_by(64) {
            let damaged = sim.clone_disk();
            damaged.flip(&path, at, 16);
            assert_none_denied(&damaged, small(), 300, &format!("{} byte {at}", path.display()));
        }
    }
}

#[test]
fn zeros_truncation_and_loss_cause_no_false_negative() {
    let sim = stocked(small());
    for path in files(&sim) {
        let (name, len) = (path.display().to_string(), sim.read(&path).len() as u64);
        let missing = sim.clone_disk();
        missing.remove(&path);
        assert_none_denied(&missing, small(), 300, &format!("{name} missing"));
        for at in (0..len).step_by(512) {
            let zeroed = sim.clone_disk();
            zeroed.zero_sector(&path, at);
            assert_none_denied(&zeroed, small(), 300, &format!("{name} zeroed at {at}"));
        }
        let cuts = if len > 4096 {
            vec![0, 1, 4095, 4096, 4097, 5000, len - 1]
        } else {
            (0..len).collect()
        };
        for cut in cuts {
            let short = sim.clone_disk();
            short.truncate(&path, cut);
            assert_none_denied(&short, small(), 300, &format!("{name} cut to {cut}"));
        }
        let long = sim.clone_disk();
        long.extend(&path, &[7; 100]);
        assert_none_denied(&long, small(), 300, &format!("{name} with more bytes after it"));
    }
}

#[test]
fn swapped_pages_and_files_cause_no_false_negative() {
    let options = ExistenceOptions { size: ExistenceSize::Fixed { bytes: 16_384 }, ..small() };
    let sim = stocked(options);
    let filter = files(&sim).into_iter().find(|path| path.ends_with("000004.filter")).unwrap();
    for (first, second) in [(4096, 8192), (0, 4096), (4096, 16_384)] {
        let swapped = sim.clone_disk();
        swapped.swap_blocks(&filter, first, second, 4096);
        assert_none_denied(&swapped, options, 300, "swapped pages");
    }
    let all = files(&sim);
    for first in &all {
        for second in all.iter().filter(|second| *second > first) {
            let swapped = sim.clone_disk();
            swapped.swap_files(first, second);
            let what = format!("{} and {} swapped", first.display(), second.display());
            assert_none_denied(&swapped, options, 300, &what);
        }
    }
}

/// The disk after each of several generations.
fn lives() -> (Vec<Sim>, ExistenceOptions, u64) {
    let options = ExistenceOptions { size: ExistenceSize::Growing { first_keys: 150 }, ..small() };
    let sim = stocked(options);
    let mut disks = vec![sim.clone_disk()];
    let mut count = 300;
    for _ in 0..4 {
        let filter = open(&sim, options).unwrap();
        insert(&filter, filter.covered()..count + 60);
        count += 60;
        filter.flush(count).unwrap();
        for _ in 0..6 {
            filter.step(&keys(0..count)).unwrap();
            disks.push(sim.clone_disk());
        }
        filter.checkpoint(count).unwrap();
        disks.push(sim.clone_disk());
    }
    (disks, options, count)
}

#[test]
fn old_files_cause_no_false_negative() {
    let (disks, options, count) = lives();
    let last = disks.last().unwrap();
    let mut tried = 0;
    for older in &disks {
        let put = |sim: &Sim, paths: &[PathBuf]| {
            for path in paths {
                match sim.has(path) {
                    true => sim.replace(path, &older.read(path)),
                    false => {
                        sim.env().files.create(path).unwrap();
                        sim.replace(path, &older.read(path));
                    }
                }
            }
        };
        // Each subset of the older files, together with the current ones.
        let old = files(older);
        for subset in 1..1u32 << old.len() {
            let chosen: Vec<PathBuf> = (0..old.len())
                .filter(|index| subset >> index & 1 == 1)
                .map(|index| old[index].clone())
                .collect();
            let stale = last.clone_disk();
            put(&stale, &chosen);
            assert_none_denied(&stale, options, count, &format!("with the older {chosen:?}"));
            tried += 1;
        }
    }
    assert!(tried > 150, "{tried}");
}

#[test]
fn few_damaged_lines_heal_and_many_rebuild() {
    let options = ExistenceOptions { size: ExistenceSize::Fixed { bytes: 16_384 }, ..small() };
    // Story: a rebuild for damage was counted as that of a new filter, and no metric showed it.
    for (sectors, healed, rebuilds) in [(1, 8, 0), (2, 16, 1), (9, 72, 1)] {
        let sim = stocked(options);
        let filter = files(&sim).into_iter().find(|path| path.ends_with("000004.filter")).unwrap();
        (0..sectors).for_each(|sector| sim.zero_sector(&filter, 4096 + 512 * sector));
        let filter = open(&sim, options).unwrap();
        settle(&filter, &keys(0..300)).unwrap();
        let stats = filter.stats();
        let found = (stats.healed_lines, stats.rebuilds, stats.damaged_lines);
        assert_eq!(found, (healed, rebuilds, 0), "{sectors} sectors: {stats:?}");
        assert_eq!(denied(&filter, 0..300), 0);
        // The disk has the healed lines as well.
        drop(filter);
        let again = open(&sim, options).unwrap();
        assert_eq!(denied(&again, 0..300), 0);
        assert_eq!((again.stats().damaged_lines, again.covered()), (0, 300));
    }
}

/// Lines of files that cannot be used count as damaged, unlike those of a new filter.
#[test]
fn lost_files_count_as_damaged_lines() {
    let rebuilt = |sim: &Sim| {
        let filter = open(sim, small()).unwrap();
        settle(&filter, &keys(0..300)).unwrap();
        assert_eq!((filter.stats().rebuilds, denied(&filter, 0..300)), (1, 0));
        assert_eq!(filter.stats().healed_lines, filter.rebuilt_lines());
        filter.rebuilt_lines()
    };
    assert_eq!(rebuilt(&machine()), 0, "a new filter");
    let sim = stocked(small());
    for path in files(&sim).iter().filter(|path| path.ends_with("CHECKPOINT")) {
        let damaged = sim.clone_disk();
        damaged.flip(path, sim.read(path).len() as u64 - 1, 1);
        assert!(rebuilt(&damaged) > 0, "{}", path.display());
    }
}

/// Story: the keys of a damaged journal were read from the log again, and nothing reported the
/// damage.
#[test]
fn damaged_journals_are_counted_and_torn_ones_are_not() {
    let sim = stocked(small());
    let all = files(&sim);
    let is_journal = |path: &&PathBuf| path.extension().is_some_and(|end| end == "journal");
    let journal = all.iter().rfind(is_journal).unwrap();
    let (header, record) = (64, 24 + 8 * 50);
    assert_eq!(sim.read(journal).len() as u64, header + 2 * record);
    let opened = |damage: &dyn Fn(&Sim)| {
        let damaged = sim.clone_disk();
        damage(&damaged);
        let filter = open(&damaged, small()).unwrap();
        assert_eq!(filter.stats().damaged_journals, filter.damaged_journals());
        (filter.damaged_journals(), filter.covered())
    };
    assert_eq!(opened(&|_| ()), (0, 300));
    assert_eq!(opened(&|sim| sim.flip(journal, 3, 1)), (1, 200), "the header");
    assert_eq!(opened(&|sim| sim.remove(journal)), (1, 200));
    assert_eq!(opened(&|sim| sim.flip(journal, header + 30, 1)), (1, 200), "the first record");
    let last = header + record;
    assert_eq!(opened(&|sim| sim.flip(journal, last + 30, 1)), (0, 250), "as a torn record");
    assert_eq!(opened(&|sim| sim.truncate(journal, last + 30)), (0, 250));
}

/// A fuzzer found that counting on from the last generation there can be was a panic.
#[test]
fn last_generation_number_is_handled() {
    let sim = stocked(small());
    let path = files(&sim).into_iter().find(|path| path.ends_with("CHECKPOINT")).unwrap();
    let mut bytes = sim.read(&path);
    bytes.truncate(bytes.len() - 8);
    bytes[16..24].fill(0xff);
    let sum = umbel_base::checksum::checksum(u64::MAX, 0, &bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    sim.replace(&path, &bytes);
    let filter = open(&sim, small()).unwrap();
    assert_eq!((filter.covered(), filter.stats().lost), (300, None));
    filter.checkpoint(300).unwrap();
    drop(filter);
    assert_none_denied(&sim, small(), 300, "after the last generation");
}
