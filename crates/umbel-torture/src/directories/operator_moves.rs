//! Moves of an operator between two calls of the file system.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_env::FileIdentity;
use umbel_sim::{Mount, Random, Sim};

use crate::directories::directory_model::{DirectoryCondition, DirectoryModel, StoreDirectory};
use crate::directories::store_under_test::StoreKind;

/// Model that the script and the operator share.
pub type SharedWorld = Arc<Mutex<DirectoryModel>>;

/// Locks the shared model.
pub fn lock_world(world: &SharedWorld) -> MutexGuard<'_, DirectoryModel> {
    world.lock().ignore_poison()
}

/// Makes one move, chosen by a seed. `in_call` says whether a call of the store is running.
pub fn make_move(world: &SharedWorld, sim: &Sim, seed: u64, in_call: bool) {
    let mut world = lock_world(world);
    let mut operator = Operator { world: &mut world, sim, random: Random::new(seed), in_call };
    if let Some(text) = operator.random_move() {
        let call = sim.calls();
        operator.world.moves.push(format!("before call {}: {text}", call + 1));
    }
}

struct Operator<'a> {
    world: &'a mut DirectoryModel,
    sim: &'a Sim,
    random: Random,
    in_call: bool,
}

impl Operator<'_> {
    fn random_move(&mut self) -> Option<String> {
        match self.random.below(40) {
            0..=4 => self.change_directory(),
            5..=8 => self.rename_open(),
            9..=14 => self.swap(),
            15..=19 => self.mount(),
            20..=21 => self.unmount(),
            22..=24 => self.swap_back(),
            25..=26 => self.rename_parent(),
            27..=28 => self.take_target(),
            29 => self.put_at_path(),
            _ if self.world.is_opening => self.change_directory(),
            30..=32 => self.mount_subdirectory(),
            33 => self.remove_lock(),
            34 => self.copy_open(),
            35 => self.check_images(),
            36 => self.remove_open(),
            37 if self.world.kind == StoreKind::Keys => self.replace_table(),
            _ => self.replace(),
        }
    }

    /// Returns the directory of the open store and its path.
    fn open_directory(&self) -> Option<(FileIdentity, PathBuf)> {
        let open = self.world.open.or_else(|| self.sim.identity(&self.world.path))?;
        if self.world.condition() == DirectoryCondition::Removed {
            return None;
        }
        Some((open, self.sim.path_of(open)?))
    }

    fn is_there(&self, path: &Path) -> bool {
        self.sim.identity(path).is_some()
    }

    fn change_directory(&mut self) -> Option<String> {
        let place = ["/", "/away", "/home"][self.random.below(3) as usize];
        if !self.is_there(Path::new(place)) {
            return None;
        }
        self.sim.set_current_dir(place);
        Some(format!("cd {place}"))
    }

    fn rename_open(&mut self) -> Option<String> {
        let (_, at) = self.open_directory()?;
        let target = self.world.new_name("moved");
        self.sim.move_path(&at, &target);
        Some(format!("mv {} {}", at.display(), target.display()))
    }

    /// Moves the directory at the store's path away and puts something else at that path.
    fn swap(&mut self) -> Option<String> {
        let path = self.world.path.clone();
        if self.is_there(&path) {
            let aside = self.world.new_name("aside");
            self.sim.move_path(&path, aside);
        }
        self.put_at_path().map(|text| format!("mv {} aside; {text}", path.display()))
    }

    /// Puts a store or an empty directory at a free path.
    fn put_at(&mut self, path: &Path) -> Option<String> {
        if self.is_there(path) || !self.is_there(path.parent()?) {
            return None;
        }
        let source = ["/older", "/decoy", "/away/data", "/nothing"][self.random.below(4) as usize];
        let shown = path.display();
        let known = self.sim.identity(source).and_then(|found| {
            let known = self.world.stores.get(&found)?;
            let is_closed = self.world.open != Some(found) && known.tree.is_some();
            is_closed.then(|| known.clone())
        });
        let Some(known) = known.filter(|known| known.condition == DirectoryCondition::Kept) else {
            self.sim.make_dir(path);
            return Some(format!("mkdir {shown}"));
        };
        if self.random.once_in(2) && source != "/older" {
            self.sim.move_path(source, path);
            return Some(format!("mv {source} {shown}"));
        }
        self.sim.copy_tree(source, path);
        self.note_directory(path, known);
        Some(format!("cp -a {source} {shown}"))
    }

    fn note_directory(&mut self, path: &Path, known: StoreDirectory) {
        if let Some(made) = self.sim.identity(path) {
            let tree = Some(self.sim.tree_of(made));
            self.world.stores.insert(made, StoreDirectory { tree, ..known });
        }
    }

    fn put_at_path(&mut self) -> Option<String> {
        let path = self.world.path.clone();
        self.put_at(&path)
    }

    fn mount(&mut self) -> Option<String> {
        let path = self.world.path.clone();
        let source = ["/older", "/decoy", "/away/data"][self.random.below(3) as usize];
        let (over, shown) = (self.sim.identity(&path)?, self.sim.identity(source)?);
        if over == shown || self.world.is_refusing {
            return None;
        }
        let mount = match self.random.below(4) {
            0 => Mount::ReadOnly,
            1 => Mount::WithoutPermission,
            _ => Mount::ReadWrite,
        };
        self.world.is_refusing |= mount != Mount::ReadWrite;
        self.sim.mount(source, &path, mount);
        Some(format!("mount --bind {source} {} ({mount:?})", path.display()))
    }

    fn unmount(&mut self) -> Option<String> {
        self.sim.unmount_all();
        (self.world.is_refusing, self.world.is_mounted_inside) = (false, false);
        Some("umount everything".to_string())
    }

    /// Moves the open store's directory back to its path.
    fn swap_back(&mut self) -> Option<String> {
        self.unmount();
        let (_, at) = self.open_directory()?;
        let path = self.world.path.clone();
        if at == path || path.starts_with(&at) {
            return None;
        }
        if self.is_there(&path) {
            let aside = self.world.new_name("aside");
            self.sim.move_path(&path, aside);
        }
        // It may have been inside the moved directory.
        let (_, at) = self.open_directory()?;
        self.sim.make_dir(path.parent()?);
        self.sim.move_path(&at, &path);
        Some(format!("mv {} back to {}", at.display(), path.display()))
    }

    fn rename_parent(&mut self) -> Option<String> {
        let parent = self.world.path.parent()?.to_path_buf();
        if parent == Path::new("/") || !self.is_there(&parent) {
            return None;
        }
        let target = self.world.new_name("house");
        self.sim.move_path(&parent, &target);
        Some(format!("mv {} {}", parent.display(), target.display()))
    }

    /// Moves the target of a running copy away and puts another directory in its place.
    fn take_target(&mut self) -> Option<String> {
        let target = self.world.target.clone()?;
        if !self.is_there(&target) {
            return None;
        }
        let aside = self.world.new_name("target");
        self.sim.move_path(&target, &aside);
        let put = self.put_at(&target).unwrap_or_default();
        Some(format!("mv {} {}; {put}", target.display(), aside.display()))
    }

    /// Mounts a subdirectory of another store over the same subdirectory of the open store.
    fn mount_subdirectory(&mut self) -> Option<String> {
        if self.world.kind != StoreKind::Events {
            return self.swap();
        }
        self.unmount();
        let (_, at) = self.open_directory()?;
        let name = ["log", "index"][self.random.below(2) as usize];
        let (source, target) = (Path::new("/decoy").join(name), at.join(name));
        if !self.is_there(&source) || !self.is_there(&target) || at == Path::new("/decoy") {
            return None;
        }
        self.sim.mount(&source, &target, Mount::ReadWrite);
        self.world.is_mounted_inside = true;
        Some(format!("mount --bind {} {}", source.display(), target.display()))
    }

    fn remove_lock(&mut self) -> Option<String> {
        self.unmount();
        let (_, at) = self.open_directory()?;
        let lock = at.join("LOCK");
        if !self.is_there(&lock) {
            return None;
        }
        self.sim.remove_tree(&lock);
        Some(format!("rm {}", lock.display()))
    }

    /// Copies the open store's directory, in the state that a kill would leave.
    fn copy_open(&mut self) -> Option<String> {
        self.unmount();
        let (open, at) = self.open_directory()?;
        let target = self.world.new_name("snapshot");
        let known = self.world.stores.get(&open).cloned()?;
        if known.condition != DirectoryCondition::Kept {
            return None;
        }
        self.sim.copy_tree(&at, &target);
        self.note_directory(&target, known);
        Some(format!("cp -a {} {}", at.display(), target.display()))
    }

    /// Checks the images that a kill and a power loss at this moment would leave.
    fn check_images(&mut self) -> Option<String> {
        let seed = self.random.next();
        if let Err(text) = self.world.check_images(self.sim, seed) {
            self.world.wrong.get_or_insert(text);
        }
        None
    }

    fn remove_open(&mut self) -> Option<String> {
        if !self.random.once_in(2) {
            return None;
        }
        self.unmount();
        let (open, at) = self.open_directory()?;
        self.sim.remove_tree(&at);
        self.world.stores.get_mut(&open)?.condition = DirectoryCondition::Removed;
        self.world.put_there.clear();
        Some(format!("rm -r {}", at.display()))
    }

    /// Replaces files of the open store by the files of an earlier state.
    fn replace(&mut self) -> Option<String> {
        self.unmount();
        let (open, at) = self.open_directory()?;
        let older = Path::new("/older");
        let is_open = self.world.open == Some(open) && self.sim.identity(older) != Some(open);
        if !is_open || !self.is_there(older) || !self.world.put_there.is_empty() {
            return None;
        }
        let head = if self.world.kind == StoreKind::Keys { "CURRENT" } else { "CHUNKS" };
        if !self.is_there(&at.join(head)) {
            return None;
        }
        let copy = self.world.new_name("copy");
        self.sim.copy_tree(older, &copy);
        let what = match self.random.below(4) {
            0 => {
                let (from, to) = (copy.join(head), at.join(head));
                let before = self.sim.tree_of(open).remove(Path::new(head));
                self.sim.copy_over(&from, &to);
                // The same bytes in the same file are no replacement.
                if self.sim.tree_of(open).remove(Path::new(head)) != before {
                    self.note_put(&open, head);
                }
                format!("cp {} over it", head)
            }
            1 => {
                self.sim.remove_tree(at.join(head));
                self.note_put(&open, head);
                format!("rm {}", head)
            }
            2 => {
                self.put_over(&copy, &at, &open, head);
                format!("mv another {} over it", head)
            }
            _ => {
                let names: Vec<PathBuf> = self.sim.tree(&copy).into_keys().collect();
                let is_sub = |name: &&PathBuf| name.components().count() == 1;
                let names: Vec<_> = names.iter().filter(is_sub).collect();
                for name in names.iter().filter(|name| **name != Path::new("LOCK")) {
                    self.put_over(&copy, &at, &open, &name.to_string_lossy());
                }
                "rsync of an earlier state over it".to_string()
            }
        };
        self.sim.remove_tree(&copy);
        self.world.stores.get_mut(&open)?.condition = DirectoryCondition::Replaced;
        Some(format!("in {}: {what}", at.display()))
    }

    /// Records that the operator put a file into the directory of the open store. During a call,
    /// the store may have read the replaced file before the move and may write afterwards.
    fn note_put(&mut self, open: &FileIdentity, name: &str) {
        if self.in_call {
            self.world.put_there.remove(Path::new(name));
        } else {
            let bytes = self.sim.tree_of(*open).remove(Path::new(name));
            self.world.put_there.insert(PathBuf::from(name), bytes);
        }
    }

    /// Renames a file of a copy over the same file of the open store.
    fn put_over(&mut self, copy: &Path, at: &Path, open: &FileIdentity, name: &str) {
        let (from, to) = (copy.join(name), at.join(name));
        if self.is_there(&to) {
            self.sim.remove_tree(&to);
        }
        self.sim.move_path(&from, &to);
        self.note_put(open, name);
    }

    /// Replaces a table of the open store by one of another store.
    fn replace_table(&mut self) -> Option<String> {
        self.unmount();
        let (open, at) = self.open_directory()?;
        if self.world.open != Some(open) || self.sim.identity("/decoy") == Some(open) {
            return None;
        }
        let is_table = |name: &&PathBuf| name.extension().is_some_and(|found| found == "table");
        let others =
            if self.is_there(Path::new("/decoy")) { self.sim.tree("/decoy") } else { return None };
        let own = self.sim.tree_of(open);
        let names: Vec<_> =
            own.keys().filter(is_table).filter(|n| others.contains_key(*n)).collect();
        let name = names.get(self.random.below(names.len().max(1) as u64) as usize)?;
        let copy = self.world.new_name("copy");
        self.sim.copy_tree("/decoy", &copy);
        self.sim.remove_tree(at.join(name));
        self.sim.move_path(copy.join(name), at.join(name));
        self.sim.remove_tree(&copy);
        if self.world.put_there.contains_key(*name) {
            // The operator's earlier file at this path is gone with this move.
            self.note_put(&open, &name.to_string_lossy());
        }
        let known = self.world.stores.get_mut(&open)?;
        if known.condition == DirectoryCondition::Kept {
            known.condition = DirectoryCondition::Touched;
        }
        Some(format!("mv another {} into {}", name.display(), at.display()))
    }
}
