//! Model of a script's directories: their stores, and the allowed states of each store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use umbel_env::FileIdentity;
use umbel_sim::{Sim, Survival};

use crate::directories::allowed_states::{AllowedStates, StoreContent};
use crate::directories::store_under_test::{
    StoreHandle, StoreKind, StoreResult, append_to, id, put_into,
};

/// The files of a directory.
pub type DirectoryTree = BTreeMap<PathBuf, Vec<u8>>;

/// Effect of an operator's moves on the directory of an open store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryCondition {
    /// No file was written or removed.
    Kept,
    /// `CURRENT`, the manifest or the chunk manifest was replaced.
    Replaced,
    /// Another file of the store was replaced.
    Touched,
    /// The directory was removed.
    Removed,
}

/// A directory with a store.
#[derive(Debug, Clone)]
pub struct StoreDirectory {
    /// Allowed states of the store.
    pub allowed: AllowedStates,
    /// Files of the directory, while no process changes them.
    pub tree: Option<DirectoryTree>,
    /// Effect of an operator's moves on the directory.
    pub condition: DirectoryCondition,
}

/// The directories of a script.
#[derive(Debug)]
pub struct DirectoryModel {
    /// Kind of store.
    pub kind: StoreKind,
    /// Every directory with a store.
    pub stores: BTreeMap<FileIdentity, StoreDirectory>,
    /// Directories that copies were written to.
    pub targets: BTreeSet<FileIdentity>,
    /// The directory of the open store.
    pub open: Option<FileIdentity>,
    /// Whether a store is being opened.
    pub is_opening: bool,
    /// Path by which the store is opened, from the root.
    pub path: PathBuf,
    /// Folder into which a copy is being written.
    pub target: Option<PathBuf>,
    /// Whether a mount refuses changes.
    pub is_refusing: bool,
    /// Whether another directory is mounted over a subdirectory of the open store, which makes the
    /// store incomplete.
    pub is_mounted_inside: bool,
    /// Files that an operator put into the directory of the open store between two calls; `None`
    /// for a removed one.
    pub put_there: BTreeMap<PathBuf, Option<Vec<u8>>>,
    /// Every move that the operator has made.
    pub moves: Vec<String>,
    /// Violation that a crash image at the moment of a move showed.
    pub wrong: Option<String>,
    /// Counter for new names.
    pub names: u64,
}

impl DirectoryModel {
    /// Returns the condition of the open store's directory.
    pub fn condition(&self) -> DirectoryCondition {
        let known = self.open.and_then(|open| self.stores.get(&open));
        known.map_or(DirectoryCondition::Kept, |known| known.condition)
    }

    /// Returns the allowed states of the open store.
    pub fn allowed_states(&mut self) -> Option<&mut AllowedStates> {
        let open = self.open?;
        self.stores.get_mut(&open).map(|known| &mut known.allowed)
    }

    /// Returns an unused name.
    pub fn new_name(&mut self, word: &str) -> PathBuf {
        self.names += 1;
        PathBuf::from(format!("/{word}{}", self.names))
    }

    /// Unmounts everything if another directory is mounted over a subdirectory.
    pub fn end_inner_mount(&mut self, sim: &Sim) {
        if std::mem::take(&mut self.is_mounted_inside) {
            sim.unmount_all();
            self.is_refusing = false;
        }
    }

    /// Fails if files changed in the directory of a store that is not open, or if a file appeared
    /// outside of all stores.
    pub fn check_outside(&self, sim: &Sim) -> Result<(), String> {
        for (&directory, known) in &self.stores {
            let Some(expected) = known.tree.as_ref().filter(|_| self.open != Some(directory))
            else {
                continue;
            };
            let found = sim.tree_of(directory);
            let differs = expected.iter().find(|(name, bytes)| found.get(*name) != Some(bytes));
            let more = found.keys().find(|name| !expected.contains_key(*name));
            if let Some(name) = differs.map(|(name, _)| name).or(more) {
                let path = sim.path_of(directory).unwrap_or_default();
                return Err(format!(
                    "{} in {} was changed, which is not the directory of the open store",
                    name.display(),
                    path.display()
                ));
            }
        }
        let known = self.stores.keys().chain(&self.targets).chain(&self.open);
        let places: Vec<PathBuf> = known.filter_map(|directory| sim.path_of(*directory)).collect();
        for name in sim.tree("/").into_keys() {
            let path = Path::new("/").join(name);
            if !places.iter().any(|place| path.starts_with(place)) {
                return Err(format!("{} was made outside of every store", path.display()));
            }
        }
        Ok(())
    }

    /// Fails if a file that an operator put into the open store's directory was changed.
    pub fn check_put_there(&self, sim: &Sim) -> Result<(), String> {
        let Some(open) = self.open.filter(|_| !self.put_there.is_empty()) else { return Ok(()) };
        let found = sim.tree_of(open);
        for (name, bytes) in &self.put_there {
            if found.get(name) != bytes.as_ref() {
                let now =
                    found.get(name).map_or("gone".to_string(), |b| format!("{} bytes", b.len()));
                return Err(format!(
                    "{}, which an operator put or removed, was changed (now {now})",
                    name.display()
                ));
            }
        }
        Ok(())
    }

    /// Fails if the open store would not survive a kill or a power loss at this moment.
    pub fn check_images(&self, sim: &Sim, seed: u64) -> Result<(), String> {
        let Some(open) = self.open else { return Ok(()) };
        let Some(known) = self.stores.get(&open) else { return Ok(()) };
        if known.condition != DirectoryCondition::Kept {
            return Ok(());
        }
        let survival = Survival::any(seed, sim.pending_units());
        for (image, is_power_loss) in
            [(sim.kill_image(), false), (sim.crash_image(&survival, seed), true)]
        {
            let when = if is_power_loss { "after a power loss" } else { "after a kill" };
            image.unmount_all();
            let path = image.path_of(open).ok_or(format!("{when} the directory has no path"))?;
            let found = open_and_verify(self.kind, &image, &path)
                .map_err(|failed| format!("{when} {}: {}", path.display(), failed))?;
            known
                .allowed
                .check(&found, is_power_loss)
                .map_err(|text| format!("{when} {} holds {text}", path.display()))?;
        }
        Ok(())
    }
}

/// Opens a store without planted bugs, reads its whole content and verifies it.
pub fn open_and_verify(kind: StoreKind, image: &Sim, path: &Path) -> Result<StoreContent, String> {
    let read = || -> StoreResult<(StoreContent, Option<String>)> {
        let handle = StoreHandle::open(kind, path, image.env(), false)?;
        Ok((handle.read()?, handle.verify()?))
    };
    match read() {
        Ok((found, None)) => Ok(found),
        Ok((_, Some(damage))) => Err(format!("verify found damage: {damage}")),
        Err(failed) => Err(format!("the store cannot be read: {}", failed.text)),
    }
}

/// Initial directories of every script.
struct BaseDirectories {
    sim: Sim,
    stores: Vec<(&'static str, StoreContent)>,
}

/// Creates an older copy of the store at `/home/data`, other stores, and no mounts.
pub fn base_directories(kind: StoreKind, seed: u64) -> Result<(Sim, DirectoryModel), String> {
    static KEYS: OnceLock<Result<BaseDirectories, String>> = OnceLock::new();
    static EVENTS: OnceLock<Result<BaseDirectories, String>> = OnceLock::new();
    let base = if kind == StoreKind::Keys { &KEYS } else { &EVENTS };
    let base = base.get_or_init(|| build(kind).map_err(|failed| failed.text));
    let base = base.as_ref().map_err(Clone::clone)?;
    let sim = base.sim.crash_image(&Survival::All, seed);
    let mut stores = BTreeMap::new();
    for (path, map) in &base.stores {
        if let Some(directory) = sim.identity(path) {
            let (allowed, tree) =
                (AllowedStates::durable(map.clone()), Some(sim.tree_of(directory)));
            stores.insert(
                directory,
                StoreDirectory { allowed, tree, condition: DirectoryCondition::Kept },
            );
        }
    }
    let world = DirectoryModel {
        kind,
        stores,
        targets: BTreeSet::new(),
        open: None,
        is_opening: false,
        path: PathBuf::from("/home/data"),
        target: None,
        is_refusing: false,
        is_mounted_inside: false,
        put_there: BTreeMap::new(),
        moves: Vec::new(),
        wrong: None,
        names: 0,
    };
    Ok((sim, world))
}

fn build(kind: StoreKind) -> StoreResult<BaseDirectories> {
    let sim = Sim::new(7);
    let mut stores = Vec::new();
    for (number, path) in ["/home/data", "/decoy", "/away/data"].into_iter().enumerate() {
        let (word, first) = (["home", "decoy", "away"][number], number as u64 * 1_000_000);
        let mut map = StoreContent::new();
        fill(kind, &sim, path, (word, first), &mut map)?;
        if path == "/home/data" {
            sim.copy_tree(path, "/older");
            stores.push(("/older", map.clone()));
            fill(kind, &sim, path, ("later", first + 1000), &mut map)?;
        }
        stores.push((path, map));
    }
    Ok(BaseDirectories { sim, stores })
}

/// Writes to a store and closes it.
fn fill(
    kind: StoreKind,
    sim: &Sim,
    path: &str,
    (word, first): (&str, u64),
    map: &mut StoreContent,
) -> StoreResult<()> {
    let handle = StoreHandle::open(kind, Path::new(path), sim.env(), true)?;
    for round in 0..4u64 {
        match kind {
            StoreKind::Keys => {
                let value = |n: u64| format!("{word} {round} {n} and some more bytes").into_bytes();
                let writes: Vec<_> = (0..10)
                    .map(|n| {
                        let name = if n % 3 == 0 { "b" } else { "a" };
                        (name, format!("k{:02}", n * 3 + round).into_bytes(), Some(value(n)))
                    })
                    .collect();
                handle.commit(&writes, true)?;
                put_into(map, &writes);
            }
            StoreKind::Events => {
                let stream = format!("s{round}");
                let numbers = first + round * 3..first + round * 3 + 3;
                handle.append(&stream, numbers.clone(), 100)?;
                numbers.for_each(|n| append_to(map, &stream, id(n)));
            }
        }
        handle.flush()?;
    }
    handle.close()
}
