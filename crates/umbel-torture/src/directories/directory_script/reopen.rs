//! Opens, closes and reopens stores, by a path that may lead elsewhere each time.

use umbel_env::FileIdentity;

use super::{DirectoryRun, ScriptResult};
use crate::directories::allowed_states::{AllowedStates, StoreContent};
use crate::directories::directory_model::{DirectoryCondition, StoreDirectory};
use crate::directories::store_under_test::{StoreError, StoreHandle};

impl DirectoryRun {
    pub(super) fn open(&mut self) -> ScriptResult {
        let before = self.begin("open");
        let path = self.sim.env().files.absolute(&self.given);
        let path = path.map_err(|error| error.to_string())?;
        {
            let mut world = self.world();
            world.end_inner_mount(&self.sim);
            world.check_outside(&self.sim)?;
            (world.path, world.is_opening, world.open) = (path, true, None);
        }
        self.rig.take_held();
        let opened = StoreHandle::open(self.kind, &self.given, self.rig.env(), self.is_synced);
        let held = self.rig.take_held();
        let held = held.first().and_then(|(_, directory)| *directory);
        let was_moved = {
            let mut world = self.world();
            world.is_opening = false;
            world.moves.len() != before.moves
        };
        match opened {
            Ok(handle) => self.after_open(handle, held),
            Err(failed) => self.after_failed_open(&failed, held, was_moved),
        }
    }

    fn after_open(&mut self, handle: StoreHandle, held: Option<FileIdentity>) -> ScriptResult {
        let directory = held.ok_or("a store was opened without holding its directory")?;
        let condition = {
            let mut world = self.world();
            world.open = Some(directory);
            let known = world.stores.entry(directory).or_insert_with(|| StoreDirectory {
                allowed: AllowedStates::durable(StoreContent::new()),
                tree: None,
                condition: DirectoryCondition::Kept,
            });
            known.tree = None;
            known.condition
        };
        if condition == DirectoryCondition::Kept {
            self.handle = Some(handle);
            return self.read();
        }
        // The content of such a directory is unknown.
        self.has_failed = true;
        drop(handle);
        self.after_close(false);
        Ok(())
    }

    fn after_failed_open(
        &mut self,
        failed: &StoreError,
        held: Option<FileIdentity>,
        was_moved: bool,
    ) -> ScriptResult {
        let mut world = self.world();
        let there = held.or_else(|| self.sim.identity(&world.path));
        let known = there.and_then(|there| world.stores.get_mut(&there));
        let is_kept =
            known.as_ref().is_none_or(|known| known.condition == DirectoryCondition::Kept);
        if let Some(known) = known {
            known.tree = None;
        }
        // An unfinished copy is no store yet.
        world.targets.extend(there);
        if is_kept && failed.is_corruption {
            return Err(format!("damage was reported for an intact store: {}", failed.text));
        }
        match was_moved || world.is_refusing || !is_kept {
            true => Ok(()),
            false => Err(format!("the store does not open: {}", failed.text)),
        }
    }

    /// Ends the use of the open store.
    fn after_close(&mut self, is_durable: bool) {
        let mut world = self.world();
        let Some(open) = world.open.take() else { return };
        let tree = self.sim.tree_of(open);
        if let Some(known) = world.stores.get_mut(&open) {
            if is_durable {
                known.allowed.make_durable();
            }
            known.tree = Some(tree);
        }
    }

    pub(super) fn close(&mut self) -> ScriptResult {
        let before = self.begin("close");
        let Some(handle) = self.handle.take() else { return Ok(()) };
        let done = handle.close();
        let is_closed = self.check_result(&before, done, &[])?.is_some();
        if is_closed && before.condition == DirectoryCondition::Kept {
            self.check_images()?;
        }
        self.world().check_put_there(&self.sim)?;
        self.after_close(is_closed);
        Ok(())
    }

    pub(super) fn reopen(&mut self) -> ScriptResult {
        match self.random.once_in(3) {
            true => {
                self.begin("drop");
                self.handle = None;
                self.world().check_put_there(&self.sim)?;
                self.after_close(false);
            }
            false => self.close()?,
        }
        self.world().put_there.clear();
        match self.has_failed {
            true => Ok(()),
            false => self.open(),
        }
    }

    pub(super) fn read_only(&mut self) -> ScriptResult {
        self.close()?;
        self.world().put_there.clear();
        let is_damaged = |known: &StoreDirectory| known.condition != DirectoryCondition::Kept;
        if self.has_failed || self.world().stores.values().any(is_damaged) {
            return Ok(());
        }
        let before = self.begin("open for reading");
        let path = self.sim.env().files.absolute(&self.given);
        let path = path.map_err(|error| error.to_string())?;
        {
            let mut world = self.world();
            world.end_inner_mount(&self.sim);
            (world.path, world.is_opening) = (path, true);
        }
        self.rig.take_held();
        let opened = StoreHandle::open_read_only(self.kind, &self.given, self.rig.env());
        let held = self.rig.take_held().first().and_then(|(_, directory)| *directory);
        let found = opened.and_then(|handle| handle.read());
        let mut world = self.world();
        world.is_opening = false;
        let was_moved = world.moves.len() != before.moves;
        let is_known = held.is_some_and(|held| world.stores.contains_key(&held));
        let known = held.and_then(|held| world.stores.get_mut(&held));
        match (found, known) {
            (Ok(found), Some(known)) => {
                // LOCK may be new.
                known.tree = None;
                known.allowed.check(&found, false).map_err(|text| format!("read-only: {text}"))?;
            }
            (Ok(_), None) => {
                return Err("a directory without a store was opened for reading".to_string());
            }
            (Err(failed), _) if failed.is_corruption => {
                return Err(format!("read-only: damage was reported: {}", failed.text));
            }
            (Err(failed), _) if is_known && !was_moved => {
                return Err(format!("read-only: {}", failed.text));
            }
            (Err(_), _) => world.targets.extend(held),
        }
        if let Some(tree) = held.map(|held| self.sim.tree_of(held))
            && let Some(known) = held.and_then(|held| world.stores.get_mut(&held))
        {
            known.tree = Some(tree);
        }
        drop(world);
        self.open()
    }

    /// Checks that the directory stays locked, after any move and any change of its lock file.
    pub(super) fn second_open(&mut self) -> ScriptResult {
        self.begin("second open");
        let world = self.world();
        if world.condition() != DirectoryCondition::Kept {
            return Ok(());
        }
        let path = world.open.and_then(|open| self.sim.path_of(open));
        drop(world);
        let Some(path) = path else { return Ok(()) };
        self.sim.clear_scheduled();
        self.sim.unmount_all();
        self.world().is_refusing = false;
        match StoreHandle::open(self.kind, &path, self.rig.env(), self.is_synced) {
            Err(failed) if failed.is_locked => Ok(()),
            Err(failed) => Err(format!("a second open failed with another error: {}", failed.text)),
            Ok(_) => Err("a second open of an open store was not refused".to_string()),
        }
    }
}
