//! The rot campaign: a small store, cleanly closed, with every byte flipped, every file cut at
//! every length, deleted, replaced by an older copy of itself, swapped, zeroed in part, made
//! longer. What is read is right, or an error names the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use umbel::{Db, Error, Keyspace};
use umbel_sim::Sim;

use crate::check::no_panic;
use crate::crash::{Plant, nothing_planted};
use crate::look::{self, Trouble};
use crate::model::{Loss, Map, Model};
use crate::random::{Random, join};
use crate::report::Tally;
use crate::runner::Runner;
use crate::script::{Op, Script, compressed, roomy, small, unlogged};

/// A closed store, what it holds, and how it looked at earlier moments.
#[derive(Debug)]
pub struct Specimen {
    script: Arc<Script>,
    sim: Sim,
    state: BTreeMap<&'static str, Map>,
    older: Vec<Sim>,
    /// The machine as a process left it that died just before the last close, and what it may hold.
    dirty: Sim,
    dirty_model: Model,
}

/// One way to damage a store.
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
    /// Bytes behind the end.
    Longer(PathBuf, usize),
    /// Two blocks of 512 bytes exchanged.
    Blocks(PathBuf, u64, u64),
}

fn script() -> Script {
    // A segment holds what was not flushed; the close leaves it.
    let sizes = Script::new("specimen");
    let mut script = Script { log_segment_bytes: 8192, inline_value_bytes_max: 200, ..sizes }
        .keyspace("a", crate::script::KeyspaceOptions { table_bytes: 6000, ..small() })
        .keyspace("b", crate::script::KeyspaceOptions { memtable_bytes: 8192, ..compressed() })
        .keyspace("n", unlogged())
        .keyspace("r", roomy());
    script = script.fill("a", 0..40, "x", 150).fill("b", 0..40, "x", 120).op(Op::Reopen);
    script = script.fill("a", 20..60, "y", 150).op(Op::Compact("a", None, None)).op(Op::Reopen);
    script = script.fill("b", 10..30, "y", 120).delete_range("b", 12..18).delete("a", 3);
    script = script.fill("n", 0..10, "x", 80).marked("n", b"mark", vec![]).op(Op::Reopen);
    script = script.fill("a", 0..8, "z", 150).op(Op::FlushOne("a")).delete_range("a", 50..55);
    script = script.fill("r", 0..12, "x", 90).op(Op::Reopen).fill("r", 4..14, "y", 90);
    // Two with files of their own in a table, one in the log.
    script = script.fill("r", 20..23, "x", 260).put("r", 21, "y", 300).op(Op::FlushOne("r"));
    script = script.delete("r", 20).op(Op::Reopen).put("r", 24, "z", 220);
    script.fill("b", 36..42, "w", 100).delete("r", 2)
}

/// Makes the specimen.
pub fn specimen(seed: u64, plant: &Plant) -> Result<Specimen, String> {
    let script = Arc::new(script());
    let model: Arc<Mutex<Model>> = Arc::default();
    let planted = Arc::clone(plant);
    let world = Arc::new(move |sim: &Sim| planted(sim, sim.env()));
    let sim = Sim::new(seed);
    let mut runner = Runner::new(Arc::clone(&script), sim.clone(), world, model);
    let said = |failure: crate::runner::Failure| failure.text();
    let mut older = Vec::new();
    runner.open().map_err(said)?;
    for (number, op) in script.ops.iter().enumerate() {
        let again = matches!(op, Op::Reopen);
        if again {
            runner.close().map_err(said)?;
            older.push(sim.clone_disk());
            runner.open().map_err(said)?;
        } else {
            runner.step(op).map_err(said)?;
        }
        if again || number % 24 == 0 {
            older.push(sim.clone_disk());
        }
    }
    let state = runner.model().state();
    let dirty = sim.clone_disk();
    let mut dirty_model = runner.model().clone();
    dirty_model.forget_promises();
    runner.close().map_err(said)?;
    Ok(Specimen { script, sim, state, older, dirty, dirty_model })
}

impl Damage {
    fn apply(&self, specimen: &Specimen) -> Sim {
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

/// What came of reading a damaged store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Everything was right.
    Right,
    /// An error named the file.
    Noticed,
}

impl Specimen {
    /// Its files but the lock.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = self.sim.files();
        files.retain(|path| !path.ends_with("LOCK"));
        files
    }

    /// Bytes of a file.
    pub fn len(&self, path: &Path) -> u64 {
        self.sim.read(path).len() as u64
    }

    /// Damages a copy and reads all of it.
    pub fn judge(&self, damage: &Damage, plant: &Plant) -> Result<Verdict, String> {
        let sim = damage.apply(self);
        no_panic(|| self.judge_image(&sim, plant))
    }

    fn judge_image(&self, sim: &Sim, plant: &Plant) -> Result<Verdict, String> {
        let options = look::options(&self.script, plant(sim, sim.env()));
        let db = match Db::open(self.script.folder, options) {
            Ok(db) => db,
            Err(error) => return noticed(&error),
        };
        let mut verdict = Verdict::Right;
        let names: Vec<&str> = self.state.keys().copied().collect();
        let mut found = db.keyspaces();
        found.sort();
        if found != names {
            return Err(format!("the keyspaces are {found:?}"));
        }
        for (name, map) in &self.state {
            let keyspace = match db.existing_keyspace(name) {
                Ok(Some(keyspace)) => keyspace,
                other => return Err(format!("keyspace '{name}' is there and is not: {other:?}")),
            };
            let seen = read_keyspace(name, &keyspace, map)?;
            if seen == Verdict::Noticed {
                verdict = Verdict::Noticed;
            }
        }
        match db.verify() {
            Err(error) => noticed(&error)?,
            Ok(report) if report.damage.is_empty() => {
                if verdict == Verdict::Noticed {
                    return Err("a read found damage that verify does not".to_string());
                }
                Verdict::Right
            }
            Ok(_) => {
                verdict = Verdict::Noticed;
                Verdict::Noticed
            }
        };
        // As a process that dies: what is written at closing is not the question.
        sim.crash_now();
        drop(db);
        Ok(verdict)
    }
}

impl Specimen {
    /// Flips bits in the store that was not closed: what opens holds an earlier state or a right
    /// one, since damage behind the last mark looks like a tear.
    fn judge_dirty(&self, path: &Path, offset: u64, mask: u8) -> Result<Verdict, String> {
        let sim = self.dirty.clone_disk();
        sim.flip(path, offset, mask);
        no_panic(|| {
            let db = match Db::open(self.script.folder, look::options(&self.script, sim.env())) {
                Ok(db) => db,
                Err(error) => return noticed(&error),
            };
            let found = look::read_all(&db, &self.dirty_model.keys);
            sim.crash_now();
            match found {
                Ok(found) => self.dirty_model.check(&found, Loss::Power).map(|_| Verdict::Right),
                Err(Trouble::Said(error)) => noticed(&error),
                Err(Trouble::Wrong(text)) => Err(text),
            }
        })
    }

    fn rot_dirty(&self, seed: u64, tally: &Tally) {
        let mut random = Random::new(join(seed, 2));
        for path in self.dirty.files() {
            if path.ends_with("LOCK") {
                continue;
            }
            let bytes = self.dirty.read(&path);
            // Behind the last byte that is not zero a log is only reserved.
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            for offset in 0..used as u64 {
                let mask = 1 << random.below(8);
                tally.add("flips in a store not closed", 1);
                match self.judge_dirty(&path, offset, mask) {
                    Ok(Verdict::Noticed) => tally.add("flips in a store not closed noticed", 1),
                    Ok(Verdict::Right) => {}
                    Err(text) => {
                        let what = format!("not closed, {path:?} byte {offset} ^ {mask}: {text}");
                        tally.violation(what, format!("rot {seed} dirty"));
                    }
                }
            }
        }
        tally.scenario(tally.violations() == 0);
    }
}

fn noticed(error: &Error) -> Result<Verdict, String> {
    match error {
        Error::Corruption { .. } => Ok(Verdict::Noticed),
        Error::Invalid(text) if text.contains('/') && !text.contains("internal") => {
            Ok(Verdict::Noticed)
        }
        error => Err(format!("the error is not about a damaged file: {error}")),
    }
}

fn read_keyspace(name: &str, keyspace: &Keyspace, map: &Map) -> Result<Verdict, String> {
    let mut verdict = Verdict::Right;
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
        let key = crate::script::key(number);
        if !map.contains_key(&key) {
            match keyspace.get(&key) {
                Ok(None) => {}
                Err(error) => note(&error)?,
                Ok(Some(_)) => return Err(format!("{name}/{} came back", key.escape_ascii())),
            }
        }
    }
    let mut forward = map.iter();
    let end = walk(keyspace.iter(), &mut forward).map_err(|t| format!("{name} forward: {t}"))?;
    if let Some(error) = end {
        note(&error)?;
    }
    let mut backward = map.iter().rev();
    let end = walk(keyspace.iter().rev(), &mut backward);
    if let Some(error) = end.map_err(|t| format!("{name} backward: {t}"))? {
        note(&error)?;
    }
    Ok(verdict)
}

/// Walks until the end or the first error, which is answered.
fn walk<'a>(
    entries: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), Error>>,
    expected: &mut dyn Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
) -> Result<Option<Error>, String> {
    for entry in entries {
        match entry {
            Err(error) => return Ok(Some(error)),
            Ok((key, value)) => {
                if expected.next() != Some((&key, &value)) {
                    return Err(format!("{} is not what comes next", key.escape_ascii()));
                }
            }
        }
    }
    match expected.next() {
        None => Ok(None),
        Some((key, _)) => Err(format!("it ends before {}", key.escape_ascii())),
    }
}

/// Every damage of the campaign.
pub fn damages(specimen: &Specimen, is_small: bool, seed: u64) -> Vec<Damage> {
    let mut all = Vec::new();
    let mut random = Random::new(join(seed, 1));
    let files = specimen.files();
    for path in &files {
        let len = specimen.len(path);
        // It holds zeros only, more than twice as many as the other files together have bytes.
        let is_reserved = path.ends_with("RESERVED");
        for offset in 0..len {
            if !is_small {
                all.extend((0..8).map(|bit| Damage::Flip(path.clone(), offset, 1 << bit)));
                all.push(Damage::Flip(path.clone(), offset, 0xff));
            } else if !is_reserved || random.once_in(32) {
                all.push(Damage::Flip(path.clone(), offset, 1 << random.below(8)));
            }
            if !is_small || random.once_in(32) || offset < 16 || len - offset < 16 {
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

/// All of it.
pub fn campaign(seed: u64, is_small: bool) -> Tally {
    let tally = Tally::new("rot");
    let plant = nothing_planted();
    let specimen = match specimen(seed, &plant) {
        Ok(specimen) => specimen,
        Err(text) => {
            tally.violation(format!("the specimen: {text}"), format!("rot {seed} 0 0"));
            return tally;
        }
    };
    describe(&specimen, &tally);
    specimen.rot_dirty(seed, &tally);
    match specimen.judge_image(&specimen.sim.clone_disk(), &plant) {
        Ok(Verdict::Right) => {}
        other => tally.violation(format!("undamaged: {other:?}"), format!("rot {seed} 0 0")),
    }
    let damages = damages(&specimen, is_small, seed);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let from = next.fetch_add(256, Ordering::Relaxed) as usize;
                    if from >= damages.len() {
                        return;
                    }
                    let until = damages.len().min(from + 256);
                    for (at, damage) in damages[from..until].iter().enumerate() {
                        let replay = format!("rot {seed} {} {}", u8::from(is_small), from + at);
                        one(&specimen, damage, replay, &tally);
                    }
                }
            });
        }
    });
    tally.scenario(tally.violations() == 0);
    tally
}

fn one(specimen: &Specimen, damage: &Damage, replay: String, tally: &Tally) {
    tally.add(kind(damage), 1);
    match specimen.judge(damage, &nothing_planted()) {
        Ok(Verdict::Right) => tally.add(&format!("{} without effect", kind(damage)), 1),
        Ok(Verdict::Noticed) => tally.add(&format!("{} noticed", kind(damage)), 1),
        Err(text) => tally.violation(format!("{damage:?}: {text}"), replay),
    }
}

fn describe(specimen: &Specimen, tally: &Tally) {
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
