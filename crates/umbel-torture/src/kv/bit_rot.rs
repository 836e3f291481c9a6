//! The rot campaign: a small store, cleanly closed. Every byte is flipped; every file is cut at
//! every length, deleted, replaced by an older copy, swapped, zeroed in part, or extended. A read
//! must return right data, or an error that names the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use umbel::{Db, Error, Keyspace};
use umbel_sim::{Random, Sim};

use crate::kv::crash::{EnvPlant, nothing_planted};
use crate::simulation::crash_image_check::no_panic;
use crate::simulation::full_read::{self, ReadError};
use crate::simulation::oracle::{KeyspaceMap, Loss, Oracle};
use crate::simulation::script::{Op, Script, compressed, roomy, small, unlogged};
use crate::simulation::script_runner::ScriptRunner;
use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::derive_seed;

/// A closed store, its content, and its files at earlier moments.
#[derive(Debug)]
pub struct ClosedStore {
    script: Arc<Script>,
    sim: Sim,
    state: BTreeMap<&'static str, KeyspaceMap>,
    older: Vec<Sim>,
    /// The machine after a process died just before the last close, and the allowed states of its
    /// store.
    dirty: Sim,
    dirty_model: Oracle,
}

/// Number of damages in a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamageDensity {
    /// Every bit of every byte is flipped, and each file is cut at every length.
    Full,
    /// One bit of about every second byte is flipped: for hunts of planted faults.
    Hunt,
    /// One bit of about every fourth byte is flipped.
    Small,
}

impl DamageDensity {
    /// Returns the density of the campaign or of its small part.
    pub fn of_campaign(is_small: bool) -> DamageDensity {
        if is_small { DamageDensity::Small } else { DamageDensity::Full }
    }
}

/// Damage of a store.
#[derive(Debug, Clone)]
pub enum Damage {
    /// Bits of a byte flipped.
    Flip(PathBuf, u64, u8),
    /// A file cut to a length.
    Cut(PathBuf, u64),
    /// A file removed.
    Remove(PathBuf),
    /// A file as it was at an earlier moment.
    Older(PathBuf, usize),
    /// Two files exchanged.
    Swap(PathBuf, PathBuf),
    /// A sector of zeros.
    Zero(PathBuf, u64),
    /// Bytes after the end.
    Longer(PathBuf, usize),
    /// Two blocks of 512 bytes exchanged.
    Blocks(PathBuf, u64, u64),
}

fn script() -> Script {
    // A segment holds what was not flushed, and the close keeps it.
    let sizes = Script::new("specimen");
    let mut script = Script { log_segment_bytes: 8192, inline_value_bytes_max: 200, ..sizes }
        .keyspace("a", crate::simulation::script::KeyspaceOptions { table_bytes: 6000, ..small() })
        .keyspace(
            "b",
            crate::simulation::script::KeyspaceOptions { memtable_bytes: 8192, ..compressed() },
        )
        .keyspace("n", unlogged())
        .keyspace("r", roomy());
    script = script.fill("a", 0..40, "x", 150).fill("b", 0..40, "x", 120).op(Op::Reopen);
    script = script.fill("a", 20..60, "y", 150).op(Op::Compact("a", None, None)).op(Op::Reopen);
    script = script.fill("b", 10..30, "y", 120).delete_range("b", 12..18).delete("a", 3);
    script = script.fill("n", 0..10, "x", 80).marker_batch("n", b"mark", vec![]).op(Op::Reopen);
    script = script.fill("a", 0..8, "z", 150).op(Op::FlushOne("a")).delete_range("a", 50..55);
    script = script.fill("r", 0..12, "x", 90).op(Op::Reopen).fill("r", 4..14, "y", 90);
    // Two with files of their own in a table, one in the log.
    script = script.fill("r", 20..23, "x", 260).put("r", 21, "y", 300).op(Op::FlushOne("r"));
    script = script.delete("r", 20).op(Op::Reopen).put("r", 24, "z", 220);
    script.fill("b", 36..42, "w", 100).delete("r", 2)
}

/// Makes the closed store.
pub fn closed_store(seed: u64, plant: &EnvPlant) -> Result<ClosedStore, String> {
    let script = Arc::new(script());
    let model: Arc<Mutex<Oracle>> = Arc::default();
    let planted = Arc::clone(plant);
    let world = Arc::new(move |sim: &Sim| planted(sim, sim.env()));
    let sim = Sim::new(seed);
    let mut runner = ScriptRunner::new(Arc::clone(&script), sim.clone(), world, model);
    let describe = |failure: crate::simulation::script_runner::StepError| failure.text();
    let mut older = Vec::new();
    runner.open().map_err(describe)?;
    for (number, op) in script.ops.iter().enumerate() {
        let again = matches!(op, Op::Reopen);
        if again {
            runner.close().map_err(describe)?;
            older.push(sim.clone_disk());
            runner.open().map_err(describe)?;
        } else {
            runner.run_op(op).map_err(describe)?;
        }
        if again || number % 24 == 0 {
            older.push(sim.clone_disk());
        }
    }
    let state = runner.model().state();
    let dirty = sim.clone_disk();
    let mut dirty_model = runner.model().clone();
    dirty_model.forget_acknowledgements();
    runner.close().map_err(describe)?;
    Ok(ClosedStore { script, sim, state, older, dirty, dirty_model })
}

impl Damage {
    fn apply(&self, specimen: &ClosedStore) -> Sim {
        let sim = specimen.sim.clone_disk();
        match self {
            Damage::Flip(path, offset, mask) => sim.flip(path, *offset, *mask),
            Damage::Cut(path, len) => sim.truncate(path, *len),
            Damage::Remove(path) => sim.remove(path),
            Damage::Older(path, moment) => {
                sim.replace(path, &specimen.older[*moment].read(path));
            }
            Damage::Swap(first, second) => sim.swap_files(first, second),
            Damage::Zero(path, offset) => sim.zero_sector(path, *offset),
            Damage::Longer(path, len) => sim.extend(path, &Random::new(*len as u64).bytes(*len)),
            Damage::Blocks(path, first, second) => sim.swap_blocks(path, *first, *second, 512),
        }
        sim
    }
}

/// Result of reading a damaged store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamageVerdict {
    /// All read data was right.
    Right,
    /// An error named the file.
    Noticed,
}

impl ClosedStore {
    /// Returns the files of the store except the lock file.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = self.sim.files();
        files.retain(|path| !path.ends_with("LOCK"));
        files
    }

    /// Returns the bytes of a file.
    pub fn len(&self, path: &Path) -> u64 {
        self.sim.read(path).len() as u64
    }

    /// Damages a copy of the store and reads its whole content.
    pub fn read_damaged(&self, damage: &Damage, plant: &EnvPlant) -> Result<DamageVerdict, String> {
        let sim = damage.apply(self);
        no_panic(|| self.read_image(&sim, plant))
    }

    fn read_image(&self, sim: &Sim, plant: &EnvPlant) -> Result<DamageVerdict, String> {
        let options = full_read::first_options(&self.script, plant(sim, sim.env()));
        let db = match Db::open(self.script.folder, options) {
            Ok(db) => db,
            Err(error) => return noticed(&error),
        };
        let mut verdict = DamageVerdict::Right;
        let names: Vec<&str> = self.state.keys().copied().collect();
        let mut found = db.keyspaces();
        found.sort();
        if found != names {
            return Err(format!("the keyspaces are {found:?}"));
        }
        for (name, map) in &self.state {
            let keyspace = match db.existing_keyspace(name) {
                Ok(Some(keyspace)) => keyspace,
                other => {
                    return Err(format!(
                        "keyspace '{name}' is listed but does not open: {other:?}"
                    ));
                }
            };
            let seen = read_keyspace(name, &keyspace, map)?;
            if seen == DamageVerdict::Noticed {
                verdict = DamageVerdict::Noticed;
            }
        }
        match db.verify() {
            Err(error) => noticed(&error)?,
            Ok(report) if report.damage.is_empty() => {
                if verdict == DamageVerdict::Noticed {
                    return Err("a read found damage that verify did not find".to_string());
                }
                DamageVerdict::Right
            }
            Ok(_) => {
                verdict = DamageVerdict::Noticed;
                DamageVerdict::Noticed
            }
        };
        // As after the death of a process: writes during a close are not tested here.
        sim.crash_now();
        drop(db);
        Ok(verdict)
    }
}

impl ClosedStore {
    /// Flips bits in the store that was not closed. The open must recover an earlier or a right
    /// state, because damage after the last mark looks like a torn write.
    pub fn read_damaged_dirty(
        &self,
        (path, offset, mask): &(PathBuf, u64, u8),
    ) -> Result<DamageVerdict, String> {
        let sim = self.dirty.clone_disk();
        sim.flip(path, *offset, *mask);
        no_panic(|| {
            let db = match Db::open(
                self.script.folder,
                full_read::first_options(&self.script, sim.env()),
            ) {
                Ok(db) => db,
                Err(error) => return noticed(&error),
            };
            let found = full_read::read_all(&db, &self.dirty_model.keys);
            sim.crash_now();
            match found {
                Ok(found) => {
                    self.dirty_model.check(&found, Loss::Power).map(|_| DamageVerdict::Right)
                }
                Err(ReadError::Engine(error)) => noticed(&error),
                Err(ReadError::Wrong(text)) => Err(text),
            }
        })
    }

    /// Returns the flips of the store that was not closed. In the small part, a third of the bytes
    /// is flipped. Tables and files of values get a few only: they are as in the closed store.
    pub fn dirty_flips(&self, is_small: bool, seed: u64) -> Vec<(PathBuf, u64, u8)> {
        let mut random = Random::new(derive_seed(seed, 2));
        let mut flips = Vec::new();
        for path in self.dirty.files() {
            if path.ends_with("LOCK") {
                continue;
            }
            let bytes = self.dirty.read(&path);
            // After the last non-zero byte a log is only preallocated.
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let is_same = self.sim.has(&path) && self.sim.read(&path) == bytes;
            let chance = if is_same { 16 } else { 3 };
            for offset in 0..used as u64 {
                if !is_small || random.once_in(chance) {
                    flips.push((path.clone(), offset, 1 << random.below(8)));
                }
            }
        }
        flips
    }
}

fn noticed(error: &Error) -> Result<DamageVerdict, String> {
    match error {
        Error::Corruption { .. } => Ok(DamageVerdict::Noticed),
        Error::Invalid(text) if text.contains('/') && !text.contains("internal") => {
            Ok(DamageVerdict::Noticed)
        }
        error => Err(format!("the error is not about a damaged file: {error}")),
    }
}

fn read_keyspace(
    name: &str,
    keyspace: &Keyspace,
    map: &KeyspaceMap,
) -> Result<DamageVerdict, String> {
    let mut verdict = DamageVerdict::Right;
    let mut note = |error: &Error| -> Result<(), String> {
        verdict = noticed(error)?;
        Ok(())
    };
    for (key, value) in map {
        match keyspace.get(key) {
            Ok(Some(got)) if got == *value => {}
            Err(error) => note(&error)?,
            Ok(got) => {
                let got = got.map_or("nothing".to_string(), |g| g.escape_ascii().to_string());
                return Err(format!("get {name}/{}: {got:.40}", key.escape_ascii()));
            }
        }
    }
    for number in 0..70 {
        let key = crate::simulation::script::key(number);
        if !map.contains_key(&key) {
            match keyspace.get(&key) {
                Ok(None) => {}
                Err(error) => note(&error)?,
                Ok(Some(_)) => {
                    return Err(format!("{name}/{} exists after its delete", key.escape_ascii()));
                }
            }
        }
    }
    let mut forward = map.iter();
    let end =
        read_to_end(keyspace.iter(), &mut forward).map_err(|t| format!("{name} forward: {t}"))?;
    if let Some(error) = end {
        note(&error)?;
    }
    let mut backward = map.iter().rev();
    let end = read_to_end(keyspace.iter().rev(), &mut backward);
    if let Some(error) = end.map_err(|t| format!("{name} backward: {t}"))? {
        note(&error)?;
    }
    Ok(verdict)
}

/// Reads until the end or the first error, which is returned.
fn read_to_end<'a>(
    entries: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), Error>>,
    expected: &mut dyn Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
) -> Result<Option<Error>, String> {
    for entry in entries {
        match entry {
            Err(error) => return Ok(Some(error)),
            Ok((key, value)) => {
                if expected.next() != Some((&key, &value)) {
                    return Err(format!("{} is not the next key", key.escape_ascii()));
                }
            }
        }
    }
    match expected.next() {
        None => Ok(None),
        Some((key, _)) => Err(format!("it ends before {}", key.escape_ascii())),
    }
}

/// Returns every damage of the campaign, or a sample.
pub fn damages(specimen: &ClosedStore, density: DamageDensity, seed: u64) -> Vec<Damage> {
    let (is_full, bytes_per_flip) = match density {
        DamageDensity::Full => (true, 1),
        DamageDensity::Hunt => (false, 2),
        DamageDensity::Small => (false, 4),
    };
    let mut all = Vec::new();
    let mut random = Random::new(derive_seed(seed, 1));
    let files = specimen.files();
    for path in &files {
        let len = specimen.len(path);
        // It holds only zeros, more than twice the bytes of all other files together.
        let is_reserved = path.ends_with("RESERVED");
        for offset in 0..len {
            if is_full {
                all.extend((0..8).map(|bit| Damage::Flip(path.clone(), offset, 1 << bit)));
                all.push(Damage::Flip(path.clone(), offset, 0xff));
            } else if random.once_in(bytes_per_flip * if is_reserved { 16 } else { 1 }) {
                all.push(Damage::Flip(path.clone(), offset, 1 << random.below(8)));
            }
            if is_full || random.once_in(32) || offset < 16 || len - offset < 16 {
                all.push(Damage::Cut(path.clone(), offset));
            }
        }
        all.push(Damage::Remove(path.clone()));
        for sector in 0..len.div_ceil(512) {
            all.push(Damage::Zero(path.clone(), sector * 512));
            let other = random.below(len / 512 + 1) * 512;
            if sector * 512 + 512 <= len && other + 512 <= len && other != sector * 512 {
                all.push(Damage::Blocks(path.clone(), sector * 512, other));
            }
        }
        for len in [1, 8, 100, 512, 5000] {
            all.push(Damage::Longer(path.clone(), len));
        }
        let now = specimen.sim.read(path);
        for (moment, older) in specimen.older.iter().enumerate() {
            if older.has(path) && older.read(path) != now {
                all.push(Damage::Older(path.clone(), moment));
            }
        }
        for other in files.iter().filter(|other| *other > path) {
            all.push(Damage::Swap(path.clone(), other.clone()));
        }
    }
    all
}

fn kind(damage: &Damage) -> &'static str {
    match damage {
        Damage::Flip(..) => "flips",
        Damage::Cut(..) => "cuts",
        Damage::Remove(_) => "removed files",
        Damage::Older(..) => "older copies",
        Damage::Swap(..) => "swapped files",
        Damage::Zero(..) => "zeroed sectors",
        Damage::Longer(..) => "longer files",
        Damage::Blocks(..) => "swapped blocks",
    }
}

/// Runs the campaign.
pub fn campaign(seed: u64, is_small: bool) -> CampaignTally {
    let tally = CampaignTally::new("rot");
    let plant = nothing_planted();
    let specimen = match closed_store(seed, &plant) {
        Ok(specimen) => specimen,
        Err(text) => {
            tally.violation(format!("the closed store: {text}"), format!("rot {seed} 0 0"));
            return tally;
        }
    };
    describe(&specimen, &tally);
    let flips = specimen.dirty_flips(is_small, seed);
    in_two_threads(flips.len(), |at| {
        let replay = format!("rot {seed} dirty {} {at}", u8::from(is_small));
        flip_dirty(&specimen, &flips[at], replay, &tally);
    });
    tally.scenario(tally.violations() == 0);
    match specimen.read_image(&specimen.sim.clone_disk(), &plant) {
        Ok(DamageVerdict::Right) => {}
        other => tally.violation(format!("undamaged: {other:?}"), format!("rot {seed} 0 0")),
    }
    let damages = damages(&specimen, DamageDensity::of_campaign(is_small), seed);
    in_two_threads(damages.len(), |at| {
        let replay = format!("rot {seed} {} {at}", u8::from(is_small));
        run_one(&specimen, &damages[at], replay, &tally);
    });
    tally.scenario(tally.violations() == 0);
    tally
}

/// Runs a function for each number below `count`, in two threads.
fn in_two_threads(count: usize, run: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let from = next.fetch_add(256, Ordering::Relaxed);
                    if from >= count {
                        return;
                    }
                    (from..count.min(from + 256)).for_each(&run);
                }
            });
        }
    });
}

fn flip_dirty(
    specimen: &ClosedStore,
    flip: &(PathBuf, u64, u8),
    replay: String,
    tally: &CampaignTally,
) {
    tally.add("flips in a store not closed", 1);
    match specimen.read_damaged_dirty(flip) {
        Ok(DamageVerdict::Noticed) => tally.add("flips in a store not closed noticed", 1),
        Ok(DamageVerdict::Right) => {}
        Err(text) => tally.violation(format!("not closed, {flip:?}: {text}"), replay),
    }
}

fn run_one(specimen: &ClosedStore, damage: &Damage, replay: String, tally: &CampaignTally) {
    tally.add(kind(damage), 1);
    match specimen.read_damaged(damage, &nothing_planted()) {
        Ok(DamageVerdict::Right) => tally.add(&format!("{} without effect", kind(damage)), 1),
        Ok(DamageVerdict::Noticed) => tally.add(&format!("{} noticed", kind(damage)), 1),
        Err(text) => tally.violation(format!("{damage:?}: {text}"), replay),
    }
}

fn describe(specimen: &ClosedStore, tally: &CampaignTally) {
    let mut classes: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for path in specimen.files() {
        let extension = path.extension().unwrap_or(path.file_name().unwrap_or_default());
        let class = classes.entry(extension.to_string_lossy().into_owned()).or_default();
        class.0 += 1;
        class.1 += specimen.len(&path);
    }
    for (class, (files, bytes)) in classes {
        tally.note(format!("the store has {files} {class} files of {bytes} bytes"));
    }
    tally.add("earlier moments kept", specimen.older.len() as u64);
}
