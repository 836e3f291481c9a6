//! Power loss: decides which pending units survive, and builds the image that remains.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::disk::{Change, Directory, Disk, Inode, Names, Node, ROOT, UnitNumber};
use crate::file_content::FileContent;
use crate::random::{Random, join};

/// Bytes of a sector, the smallest piece of a write that survives or is lost as a whole.
pub const SECTOR_BYTES: u64 = 512;

/// Policy of the pending units that survive a power loss. A unit is one write, one change of a
/// file's length or one change of names. All units of a disk have one order, the order of their
/// calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Survival {
    /// Only synced changes survive.
    None,
    /// All units survive, as if every sync had been done.
    All,
    /// The first units, as many as given, survive whole. The next unit survives torn (a name:
    /// whole) or not at all.
    Prefix(u64),
    /// The last units of this number survive whole, as if the disk worked from the newest to the
    /// oldest. The unit before them survives torn or not at all.
    Reverse(u64),
    /// Each unit survives with this probability; a surviving write is whole, torn, or only a change
    /// of the file's length.
    Random(f64),
    /// Every name survives but no byte: files that were never synced are empty.
    NamesOnly,
    /// Every byte survives but no name.
    DataOnly,
    /// Only the newest unit of each file and of each directory survives.
    NewestOnly,
    /// Like `Random`, but surviving sectors may hold garbage in the bytes of the write.
    Garbage(f64),
}

impl Survival {
    /// Returns a policy that the seed chooses, for campaigns. `units` is the number of pending
    /// units.
    pub fn any(seed: u64, units: u64) -> Survival {
        let mut random = Random::new(join(seed, 0x5375_7276));
        let p = [0.05, 0.25, 0.5, 0.5, 0.75, 0.95][random.below(6) as usize];
        match random.below(14) {
            0 => Survival::None,
            1 => Survival::All,
            2..=4 => Survival::Prefix(random.below(units + 1)),
            5 => Survival::Reverse(random.below(units + 1)),
            6 => Survival::NamesOnly,
            7 => Survival::DataOnly,
            8 => Survival::NewestOnly,
            9..=10 => Survival::Garbage(p),
            _ => Survival::Random(p),
        }
    }
}

/// Fate of one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnitFate {
    Lost,
    Whole,
    /// Some sectors of the write survive, chosen by this seed.
    Torn(u64),
    /// Only the file's new length survives; the new bytes are zeros.
    LenOnly,
    /// Some sectors of the write survive, and some of these hold garbage.
    Garbage(u64),
}

/// The disk after a power loss.
pub(crate) fn crash_image(disk: &Disk, policy: &Survival, seed: u64) -> Disk {
    match *policy {
        Survival::None => image(disk, |_, _| UnitFate::Lost),
        Survival::All => image(disk, |_, _| UnitFate::Whole),
        Survival::NamesOnly => image(disk, |_, is_name| whole_if(is_name)),
        Survival::DataOnly => image(disk, |_, is_name| whole_if(!is_name)),
        Survival::Prefix(count) => {
            let (last, next) = borders(disk.pending(), count);
            image(disk, |number, _| match () {
                () if last.is_some_and(|last| number <= last) => UnitFate::Whole,
                () if next == Some(number) => torn_or_lost(seed, number),
                () => UnitFate::Lost,
            })
        }
        Survival::Reverse(count) => {
            let pending = disk.pending();
            let older = (pending.len() as u64).saturating_sub(count);
            let (last, next) = borders(pending, older);
            image(disk, |number, _| match () {
                () if next.is_some_and(|next| number >= next) => UnitFate::Whole,
                () if last == Some(number) => torn_or_lost(seed, number),
                () => UnitFate::Lost,
            })
        }
        Survival::Random(p) => image(disk, |number, _| by_chance(seed, number, p, 0.0)),
        Survival::Garbage(p) => image(disk, |number, _| by_chance(seed, number, p, 0.5)),
        Survival::NewestOnly => {
            let newest = newest(disk);
            image(disk, |number, _| whole_if(newest.contains(&number)))
        }
    }
}

/// Returns the disk after a power loss that exactly these units survive as a whole.
pub(crate) fn chosen_image(disk: &Disk, survives: impl Fn(UnitNumber) -> bool) -> Disk {
    image(disk, |number, _| whole_if(survives(number)))
}

fn whole_if(survives: bool) -> UnitFate {
    if survives { UnitFate::Whole } else { UnitFate::Lost }
}

/// Returns the `count`-th smallest number, and the next larger one.
fn borders(mut pending: Vec<UnitNumber>, count: u64) -> (Option<UnitNumber>, Option<UnitNumber>) {
    pending.sort_unstable();
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(pending.len());
    let last = count.checked_sub(1).map(|index| pending[index]);
    (last, pending.get(count).copied())
}

fn torn_or_lost(seed: u64, number: UnitNumber) -> UnitFate {
    let mut random = Random::new(join(seed, number));
    match random.below(3) {
        0 => UnitFate::Lost,
        1 => UnitFate::LenOnly,
        _ => UnitFate::Torn(random.next()),
    }
}

fn by_chance(seed: u64, number: UnitNumber, p: f64, garbage: f64) -> UnitFate {
    let mut random = Random::new(join(seed, number));
    if !random.chance(p) {
        return UnitFate::Lost;
    }
    if random.chance(garbage) {
        return UnitFate::Garbage(random.next());
    }
    match random.below(8) {
        0..=3 => UnitFate::Whole,
        4..=6 => UnitFate::Torn(random.next()),
        _ => UnitFate::LenOnly,
    }
}

fn newest(disk: &Disk) -> BTreeSet<UnitNumber> {
    let last_of = |inode: &Inode| inode.pending.last().map(|unit| unit.number);
    let mut newest: BTreeSet<_> = disk.inodes.values().filter_map(last_of).collect();
    let mut seen = BTreeSet::new();
    for change in disk.name_changes.iter().rev() {
        let mut is_newest = false;
        for directory in change.directories() {
            is_newest |= seen.insert(directory);
        }
        if is_newest {
            newest.insert(change.number);
        }
    }
    newest
}

/// Builds the disk that these fates leave. The built disk has no pending units.
fn image(disk: &Disk, fate: impl Fn(UnitNumber, bool) -> UnitFate) -> Disk {
    let durable_names =
        |(number, directory): (&u64, &Directory)| (*number, Arc::clone(&directory.durable));
    let mut names: BTreeMap<u64, Arc<Names>> = disk.directories.iter().map(durable_names).collect();
    for change in &disk.name_changes {
        if fate(change.number, true) == UnitFate::Lost {
            continue;
        }
        for directory in change.directories() {
            if let Some(names) = names.get_mut(&directory) {
                change.apply(directory, Arc::make_mut(names));
            }
        }
    }
    let mut image = disk.without_files();
    image.directories.clear();
    let mut open = vec![ROOT];
    while let Some(number) = open.pop() {
        let Some(names) = names.remove(&number) else { continue };
        for node in names.values() {
            match *node {
                Node::Directory(number) => open.push(number),
                Node::File(number) => {
                    if let Some(inode) = disk.inodes.get(&number) {
                        let settled = || apply_fates(inode, |unit| fate(unit, false));
                        image.inodes.entry(number).or_insert_with(settled);
                    }
                }
            }
        }
        let directory =
            Directory { durable: Arc::clone(&names), current: names, is_removed: false };
        image.directories.insert(number, directory);
    }
    image
}

/// The file that these fates leave.
fn apply_fates(inode: &Inode, fate: impl Fn(UnitNumber) -> UnitFate) -> Inode {
    let mut content = inode.durable.clone();
    for unit in &inode.pending {
        survive(&mut content, &unit.change, fate(unit.number));
    }
    let modified_micros = inode.modified_micros;
    Inode { durable: content.clone(), current: content, modified_micros, ..Inode::default() }
}

fn survive(content: &mut FileContent, change: &Change, fate: UnitFate) {
    match (change, fate) {
        (_, UnitFate::Lost) => {}
        (Change::Write { offset, bytes }, UnitFate::LenOnly) => {
            content.grow(offset + bytes.len() as u64);
        }
        (Change::Write { offset, bytes }, UnitFate::Torn(seed)) => {
            tear(content, *offset, bytes, seed, 0.0);
        }
        (Change::Write { offset, bytes }, UnitFate::Garbage(seed)) => {
            tear(content, *offset, bytes, seed, 0.4);
        }
        (change, _) => change.apply(content),
    }
}

/// Returns the range from the first to the last byte of a piece that differ from `content` at this
/// place.
fn changed(content: &FileContent, piece: &[u8], start: u64) -> Range<usize> {
    let mut there = vec![0; piece.len()];
    let read = content.read(&mut there, start);
    let differs = |at: &usize| *at >= read || there[*at] != piece[*at];
    match (0..piece.len()).find(differs) {
        Some(first) => first..(first..piece.len()).rfind(differs).map_or(first, |last| last + 1),
        None => 0..0,
    }
}

/// Applies some sectors of a write to `content`, some of these as garbage. Bytes outside the write,
/// and bytes that the write does not change, keep their values, even in a shared sector.
fn tear(content: &mut FileContent, offset: u64, bytes: &[u8], seed: u64, garbage: f64) {
    let mut random = Random::new(seed);
    let kept = [0.1, 0.5, 0.5, 0.9][random.below(4) as usize];
    let end = offset + bytes.len() as u64;
    let mut start = offset;
    while start < end {
        let next = (start / SECTOR_BYTES + 1).saturating_mul(SECTOR_BYTES).min(end);
        if random.chance(kept) {
            let mut piece = bytes[(start - offset) as usize..(next - offset) as usize].to_vec();
            if random.chance(garbage) {
                let changed = changed(content, &piece, start);
                random.fill(&mut piece[changed]);
            }
            content.write(&piece, start);
        }
        start = next;
    }
    if random.chance(0.5) && !bytes.is_empty() {
        content.grow(end);
    }
}
