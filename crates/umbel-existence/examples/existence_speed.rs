//! Measures the existence filter on this machine, beside the layout of the published design:
//! `cargo run --release -p umbel-existence --example existence_speed [FOLDER [MILLIONS]]`.
//!
//! Asking and inserting: filters of the same bytes with 100 million keys, or as many millions as
//! said, at eight bits a key. Writing and opening: a growing filter of 10 million keys. The folder
//! is for its files, and should lie on a real disk.

use std::hint::black_box;
use std::path::{Path, PathBuf};

use umbel_env::Env;
use umbel_existence::{ExistenceFilter, ExistenceOptions, Progress, Size, Source};

const QUERIES: u64 = 1 << 22;
const ROUNDS: usize = 5;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args_os().skip(1);
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join("existence-speed");
    let millions = arguments.next().map(|text| text.to_string_lossy().parse::<u64>());
    let keys = millions.transpose()?.unwrap_or(100) * 1_000_000;
    let env = Env::system();
    asking(&env, &folder, keys)?;
    writing(&env, &folder, 10_000_000)?;
    remove(&env, &folder)
}

fn remove(env: &Env, folder: &Path) -> Result<(), Failure> {
    let off = ExistenceOptions { size: Size::Off, ..ExistenceOptions::default() };
    ExistenceFilter::open(env, folder, off)?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "an example measures real time")]
fn seconds<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = std::time::Instant::now();
    let result = work();
    (start.elapsed().as_secs_f64(), result)
}

/// Nanoseconds for each of `QUERIES` in the fastest round.
fn fastest(mut round: impl FnMut() -> u64) -> f64 {
    let times = (0..ROUNDS).map(|_| seconds(|| black_box(round())).0);
    times.fold(f64::INFINITY, f64::min) * 1e9 / QUERIES as f64
}

fn hash_of(number: u64) -> u64 {
    let word = (number ^ (number >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 30)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The keys with the numbers below one.
struct Numbers(u64);

impl Source for Numbers {
    fn hashes(
        &self,
        after: Option<&[u8]>,
        most: usize,
        output: &mut Vec<u64>,
    ) -> umbel_base::Result<Option<Vec<u8>>> {
        let cursor = after.and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        let start = cursor.unwrap_or(0);
        let end = self.0.min(start + most as u64);
        output.extend((start..end).map(hash_of));
        Ok((end < self.0).then(|| end.to_le_bytes().to_vec()))
    }

    fn estimated(&self) -> u64 {
        self.0
    }
}

fn settle(filter: &ExistenceFilter, source: &Numbers) -> Result<(), Failure> {
    while filter.step(source)? == Progress::More {}
    Ok(())
}

/// The published layout: six probes over all bits, 60 bytes of them in each line of 64.
struct Published {
    bytes: Vec<u8>,
    bits: u64,
}

impl Published {
    fn new(bytes: u64) -> Published {
        Published { bytes: vec![0; (bytes + bytes / 60 * 4 + 128) as usize], bits: bytes * 8 }
    }

    #[inline]
    fn places(&self, hash: u64) -> impl Iterator<Item = (usize, u8)> + use<> {
        let step = hash.rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let bits = self.bits;
        (1..=6u64).map(move |probe| {
            let number = hash.wrapping_add(probe.wrapping_mul(step)) & i64::MAX as u64;
            let bit = number % bits;
            let byte = bit / 8;
            ((byte + byte / 60 * 4 + 64) as usize, 1 << (bit % 8))
        })
    }

    fn insert(&mut self, hash: u64) {
        for (at, mask) in self.places(hash) {
            self.bytes[at] |= mask;
        }
    }

    fn may_contain(&self, hash: u64) -> bool {
        self.places(hash).all(|(at, mask)| self.bytes[at] & mask != 0)
    }
}

/// Hashes of keys at random, of those in the filter or of others.
fn queries(keys: u64, absent: bool) -> Vec<u64> {
    let spread = (0..QUERIES).map(|number| hash_of(number) % keys);
    spread.map(|number| hash_of(if absent { number + (1 << 50) } else { number })).collect()
}

fn asking(env: &Env, folder: &Path, keys: u64) -> Result<(), Failure> {
    remove(env, folder)?;
    let size = Size::Fixed { bytes: keys * 64 / 60 + 4096 };
    let options = ExistenceOptions { size, ..ExistenceOptions::default() };
    let filter = ExistenceFilter::open(env, folder, options)?;
    settle(&filter, &Numbers(keys))?;
    let mut published = Published::new(keys);
    (0..keys).for_each(|number| published.insert(hash_of(number)));
    println!("{keys} keys at 8 bits, {} bytes", filter.stats().memory_bytes);
    for (what, absent) in [("miss", true), ("hit", false)] {
        let hashes = queries(keys, absent);
        let passed = |ask: &mut dyn FnMut(u64) -> bool| {
            hashes.iter().filter(|hash| ask(**hash)).count() as f64 * 100.0 / QUERIES as f64
        };
        let let_through = (
            passed(&mut |hash| filter.may_contain(hash)),
            passed(&mut |hash| published.may_contain(hash)),
        );
        let count = |passed: usize| black_box(passed as u64);
        let shared =
            fastest(|| count(hashes.iter().filter(|hash| filter.may_contain(**hash)).count()));
        let mut reader = filter.reader();
        let reading =
            fastest(|| count(hashes.iter().filter(|hash| reader.may_contain(**hash)).count()));
        let theirs =
            fastest(|| count(hashes.iter().filter(|hash| published.may_contain(**hash)).count()));
        let mut answers = vec![false; hashes.len()];
        let batch = fastest(|| {
            filter.may_contain_batch(&hashes, &mut answers);
            u64::from(answers[0])
        });
        println!(
            "{what:>5}: {shared:6.1} ns, by a reader {reading:6.1} ns, in batches {batch:6.1} ns, \
             published {theirs:6.1} ns; let through {:.3} % and {:.3} %",
            let_through.0, let_through.1,
        );
    }
    let new = (1 << 51)..(1 << 51) + QUERIES;
    let (ours, ()) = seconds(|| new.clone().for_each(|number| filter.insert(hash_of(number))));
    let (theirs, ()) = seconds(|| new.clone().for_each(|number| published.insert(hash_of(number))));
    let nanoseconds = |seconds: f64| seconds * 1e9 / QUERIES as f64;
    println!(
        "insert: {:6.1} ns, published, without lock or checksum, {:6.1} ns",
        nanoseconds(ours),
        nanoseconds(theirs)
    );
    Ok(())
}

/// What the kernel says this process had written to disks, in bytes.
fn written() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.ok_or("the kernel does not say what was written")?.parse()?)
}

fn writing(env: &Env, folder: &Path, keys: u64) -> Result<(), Failure> {
    remove(env, folder)?;
    let options = ExistenceOptions::default();
    let filter = ExistenceFilter::open(env, folder, options)?;
    settle(&filter, &Numbers(keys))?;
    filter.checkpoint(keys)?;
    let bytes = filter.stats().memory_bytes;
    println!("{keys} keys, growing, {bytes} bytes");
    let (before, mut known, mut flushes) = (written()?, keys, Vec::new());
    let generations = filter.stats().generations;
    // 200 times 10,000: enough for several generations.
    for _ in 0..200 {
        (known..known + 10_000).for_each(|number| filter.insert(hash_of(number)));
        known += 10_000;
        let (time, flushed) = seconds(|| filter.flush(known));
        flushed?;
        flushes.push(time);
        settle(&filter, &Numbers(known))?;
    }
    let each = (written()? - before) / 200;
    flushes.sort_by(f64::total_cmp);
    println!(
        "written for 10,000 new keys: {each} bytes by the kernel's count, over 200 flushes and {} \
         generations; a flush takes {:.2} ms in the middle, {:.2} ms at most",
        filter.stats().generations - generations,
        flushes[100] * 1e3,
        flushes[199] * 1e3
    );
    // With as much in the journal as there ever is.
    filter.checkpoint(known)?;
    let more = bytes / 32 / 8;
    (known..known + more).for_each(|number| filter.insert(hash_of(number)));
    filter.flush(known + more)?;
    drop(filter);
    println!("a journal of {more} hashes");
    opening(env, folder, options, known + more)
}

fn opening(env: &Env, folder: &Path, options: ExistenceOptions, known: u64) -> Result<(), Failure> {
    let (mut opens, mut firsts, mut wholes) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..11 {
        let (open, filter) = seconds(|| ExistenceFilter::open(env, folder, options));
        let filter = filter?;
        assert_eq!(filter.covered(), known);
        let (first, answers) = seconds(|| {
            let asked = (0..100).map(|number| hash_of(number * 99_991 + round));
            asked.filter(|hash| filter.may_contain(*hash)).count()
        });
        assert_eq!(answers, 100);
        let (whole, settled) = seconds(|| settle(&filter, &Numbers(known)));
        settled?;
        opens.push(open);
        firsts.push(first);
        wholes.push(whole);
    }
    for times in [&mut opens, &mut firsts, &mut wholes] {
        times.sort_by(f64::total_cmp);
    }
    println!(
        "opening, files in the page cache: {:.2} ms; the first 100 \
         answers {:.2} ms; reading and verifying all of it {:.2} ms",
        opens[5] * 1e3,
        firsts[5] * 1e3,
        wholes[5] * 1e3
    );
    // What the published design does at its open: reads everything and verifies every line.
    let file = env.files.read_dir(folder)?.into_iter().find(|e| e.name.ends_with(".filter"));
    let path = folder.join(file.ok_or("there is no filter file")?.name);
    let (time, sum) = seconds(|| -> Result<u64, Failure> {
        let bytes = std::fs::read(&path)?;
        let lines = bytes.as_chunks::<64>().0;
        Ok(lines.iter().fold(0, |sum, line| {
            sum ^ umbel_base::checksum::checksum(1, 0, black_box(&line[..60]))
        }))
    });
    black_box(sum?);
    println!("reading the same file whole, with a checksum of each line: {:.2} ms", time * 1e3);
    Ok(())
}
