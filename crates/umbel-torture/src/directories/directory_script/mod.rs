//! One script: uses a store while an operator moves directories.

mod reopen;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use umbel_env::FileIdentity;
use umbel_events::CopyOptions;
use umbel_events::restore;
use umbel_sim::{Random, Sim};

use super::operator_moves::{SharedWorld, lock_world, make_move};
use crate::directories::directory_model::{self, DirectoryCondition, DirectoryModel};
use crate::directories::faulty_file_system::{FaultyDirectories, OmittedStep};
use crate::directories::store_under_test::{
    DELETED_STREAM, KeyWrite, StoreHandle, StoreKind, StoreResult, append_to, id, put_into,
};
use crate::simulation::crash_image_check::no_panic;
use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::derive_seed;

/// Result of a step; an error is a violation.
type ScriptResult = Result<(), String>;

/// Runs the script of a seed, with one measure omitted that binds a store to its directory.
pub fn run_script(seed: u64, left_out: Option<&str>, tally: &CampaignTally) -> Result<(), String> {
    no_panic(|| {
        let mut life = DirectoryRun::new(seed, OmittedStep::from_name(left_out))?;
        let lived = life.run();
        tally.add("calls of the store", life.operations);
        let world = lock_world(&life.world);
        tally.add("moves of the operator", world.moves.len() as u64);
        lived.map_err(|text| {
            let moves = world.moves.join("; ");
            format!("{text} [{:?}; {}; moves: {moves}]", life.kind, life.done.join(", "))
        })
    })
}

/// State at the beginning of a call.
struct CallStart {
    condition: DirectoryCondition,
    moves: usize,
}

/// A running script.
struct DirectoryRun {
    kind: StoreKind,
    sim: Sim,
    rig: FaultyDirectories,
    world: SharedWorld,
    random: Random,
    handle: Option<StoreHandle>,
    /// Path by which the store is opened.
    given: PathBuf,
    /// Whether an event store acknowledges only durable appends.
    is_synced: bool,
    next_event: u64,
    next_keyspace: u64,
    operations: u64,
    done: Vec<String>,
    /// Whether a call failed because of the operator.
    has_failed: bool,
}

impl DirectoryRun {
    fn new(seed: u64, left_out: OmittedStep) -> Result<DirectoryRun, String> {
        let mut random = Random::new(seed);
        let kind = if random.once_in(2) { StoreKind::Keys } else { StoreKind::Events };
        let (sim, world) = directory_model::base_directories(kind, seed)?;
        sim.set_current_dir("/home");
        let is_relative = random.once_in(2);
        Ok(DirectoryRun {
            kind,
            rig: FaultyDirectories::new(&sim, left_out),
            sim,
            world: Arc::new(Mutex::new(world)),
            handle: None,
            given: PathBuf::from(if is_relative { "data" } else { "/home/data" }),
            is_synced: random.once_in(2),
            next_event: 10_000_000,
            next_keyspace: 0,
            operations: 0,
            done: Vec::new(),
            has_failed: false,
            random,
        })
    }

    fn world(&self) -> MutexGuard<'_, DirectoryModel> {
        lock_world(&self.world)
    }

    fn run(&mut self) -> ScriptResult {
        if self.random.once_in(8) {
            self.plan(12);
        }
        self.open()?;
        let steps = 8 + self.random.below(16);
        for _ in 0..steps {
            if self.handle.is_none() || self.is_over() {
                break;
            }
            match self.random.below(8) {
                0..=1 => make_move(&self.world, &self.sim, self.random.next(), false),
                2..=4 => self.plan(60),
                _ => {}
            }
            self.step()?;
        }
        self.end()
    }

    /// Plans a move before one of the next calls of the file system.
    fn plan(&mut self, calls: u64) {
        let (world, seed) = (Arc::clone(&self.world), self.random.next());
        let call = self.sim.calls() + 1 + self.random.below(calls);
        self.sim.schedule_before_call(call, move |sim| make_move(&world, sim, seed, true));
    }

    /// Whether enough calls followed a failed call.
    fn is_over(&mut self) -> bool {
        self.has_failed && self.random.once_in(3)
    }

    fn begin(&mut self, what: &str) -> CallStart {
        self.operations += 1;
        self.done.push(what.to_string());
        let world = self.world();
        CallStart { condition: world.condition(), moves: world.moves.len() }
    }

    /// Checks the result of a call. `noticed` lists the conditions under which the call must fail.
    fn check_result<T>(
        &mut self,
        before: &CallStart,
        done: StoreResult<T>,
        noticed: &[DirectoryCondition],
    ) -> Result<Option<T>, String> {
        let condition = {
            let mut world = self.world();
            if let Some(text) = world.wrong.take() {
                return Err(text);
            }
            world.condition()
        };
        let what = self.done.last().cloned().unwrap_or_default();
        match done {
            Ok(_) if noticed.contains(&before.condition) => {
                Err(format!("{what} succeeded although the directory was {:?}", before.condition))
            }
            Ok(done) => Ok(Some(done)),
            Err(failed) if condition == DirectoryCondition::Kept => Err(format!(
                "{what} failed although nothing was done to the files: {}",
                failed.text
            )),
            Err(_) => {
                self.has_failed = true;
                Ok(None)
            }
        }
    }

    fn handle(&self) -> Result<&StoreHandle, String> {
        self.handle.as_ref().ok_or_else(|| "the store is not open".to_string())
    }

    fn step(&mut self) -> ScriptResult {
        match self.random.below(24) {
            0..=8 => self.write(),
            9 => self.sync(),
            10..=11 => self.flush(),
            12 => self.compact_or_scavenge(),
            13..=14 => self.read(),
            15 => self.verify(),
            16..=17 => self.copy(),
            18..=19 => self.reopen(),
            20 => self.read_only(),
            21 => self.second_open(),
            22 => self.check_images(),
            _ => self.write().and_then(|()| self.sync()),
        }
    }

    // -- writing --

    fn write(&mut self) -> ScriptResult {
        match self.kind {
            StoreKind::Keys => self.commit(),
            StoreKind::Events => self.append(),
        }
    }

    fn commit(&mut self) -> ScriptResult {
        let is_synced = self.random.once_in(3);
        let mut writes: Vec<KeyWrite> = Vec::new();
        for number in 0..1 + self.random.below(5) {
            let name = ["a", "b"][self.random.below(2) as usize];
            let key = format!("k{:02}", self.random.below(40)).into_bytes();
            let bytes = [5, 20, 60, 300][self.random.below(4) as usize];
            let value = format!("{} {number} {}", self.operations, "x".repeat(bytes));
            writes.push((name, key, (!self.random.once_in(5)).then(|| value.into_bytes())));
        }
        if self.random.once_in(10) {
            self.next_keyspace += 1;
            let before = self.begin("keyspace");
            let name = format!("n{}", self.next_keyspace);
            let done = self.handle()?.keyspace(&name).map(drop);
            self.check_result(
                &before,
                done,
                &[DirectoryCondition::Removed, DirectoryCondition::Replaced],
            )?;
        }
        // A missing keyspace is created by a manifest write.
        let before = self.begin(if is_synced { "commit (synced)" } else { "commit" });
        if let Some(allowed) = self.world().allowed_states() {
            allowed.issue(|map| put_into(map, &writes));
        }
        let done = self.handle()?.commit(&writes, is_synced);
        let noticed: &[DirectoryCondition] =
            if is_synced { &[DirectoryCondition::Removed] } else { &[] };
        self.written(&before, done, noticed, is_synced)
    }

    fn append(&mut self) -> ScriptResult {
        let is_gone = self.random.once_in(12);
        let stream = match is_gone {
            true => DELETED_STREAM.to_string(),
            false => format!("s{}", self.random.below(5)),
        };
        let count = 1 + self.random.below(3);
        let numbers = self.next_event..self.next_event + count;
        self.next_event += count;
        let bytes = [10, 200, 3000][self.random.below(3) as usize];
        let before = self.begin("append");
        if let Some(allowed) = self.world().allowed_states().filter(|_| !is_gone) {
            allowed.issue(|map| numbers.clone().for_each(|n| append_to(map, &stream, id(n))));
        } else if let Some(allowed) = self.world().allowed_states() {
            allowed.issue(|_| {});
        }
        let done = self.handle()?.append(&stream, numbers, bytes);
        let noticed: &[DirectoryCondition] =
            if self.is_synced { &[DirectoryCondition::Removed] } else { &[] };
        let is_synced = self.is_synced;
        self.written(&before, done, noticed, is_synced)
    }

    fn written(
        &mut self,
        before: &CallStart,
        done: StoreResult<()>,
        noticed: &[DirectoryCondition],
        is_durable: bool,
    ) -> ScriptResult {
        if self.check_result(before, done, noticed)?.is_some()
            && let Some(allowed) = self.world().allowed_states()
        {
            allowed.acknowledge(is_durable);
        }
        Ok(())
    }

    fn sync(&mut self) -> ScriptResult {
        let before = self.begin("sync");
        let done = self.handle()?.sync();
        if self.check_result(&before, done, &[DirectoryCondition::Removed])?.is_some()
            && let Some(allowed) = self.world().allowed_states()
        {
            allowed.make_durable();
        }
        Ok(())
    }

    fn flush(&mut self) -> ScriptResult {
        self.write()?;
        let before = self.begin("flush");
        let done = self.handle()?.flush();
        // An event store's sync compares no chunk manifest if it has nothing to do.
        let noticed: &[DirectoryCondition] = match self.kind {
            StoreKind::Keys => &[DirectoryCondition::Removed, DirectoryCondition::Replaced],
            StoreKind::Events => &[DirectoryCondition::Removed],
        };
        self.check_result(&before, done, noticed)?;
        self.world().check_put_there(&self.sim)
    }

    fn compact_or_scavenge(&mut self) -> ScriptResult {
        let before = self.begin("compact or scavenge");
        let done = self.handle()?.compact_or_scavenge();
        self.check_result(&before, done, &[])?;
        self.world().check_put_there(&self.sim)
    }

    // -- reading --

    fn read(&mut self) -> ScriptResult {
        let before = self.begin("read");
        let done = self.handle()?.read();
        if let Some(found) = self.check_result(&before, done, &[])?
            && let Some(allowed) = self.world().allowed_states()
        {
            allowed.check(&found, false).map_err(|text| format!("a read shows {text}"))?;
        }
        Ok(())
    }

    fn verify(&mut self) -> ScriptResult {
        let before = self.begin("verify");
        let done = self.handle()?.verify();
        match self.check_result(&before, done, &[])? {
            Some(Some(damage)) if self.world().condition() == DirectoryCondition::Kept => {
                Err(format!("verify reports damage where there is none: {damage}"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the images that a kill and a power loss at this moment would leave.
    fn check_images(&mut self) -> ScriptResult {
        let seed = self.random.next();
        self.world().check_images(&self.sim, seed)
    }

    // -- copies --

    fn copy(&mut self) -> ScriptResult {
        let before = self.begin("copy");
        let name = format!("copy-{}", self.operations);
        let target = match self.random.once_in(2) {
            true => PathBuf::from(name),
            false => Path::new("/copies").join(name),
        };
        let path = self.sim.env().files.absolute(&target);
        self.world().target = path.ok();
        self.rig.take_held();
        let done = self.handle()?.copy_to(&target);
        let held: Vec<_> = self.rig.take_held().into_iter().filter_map(|(_, d)| d).collect();
        let was_moved = {
            let mut world = self.world();
            world.target = None;
            world.targets.extend(&held);
            world.moves.len() != before.moves
        };
        match (done, held.last()) {
            (Ok(()), Some(directory)) => {
                self.check_result(&before, Ok(()), &[])?;
                self.check_copy(*directory)
            }
            (Err(failed), _) if was_moved && !failed.is_corruption => {
                // The target may be gone; the store itself is unchanged.
                let condition = self.world().condition();
                self.has_failed |= condition != DirectoryCondition::Kept;
                Ok(())
            }
            (done, _) => self.check_result(&before, done, &[]).map(drop),
        }
    }

    /// Checks that a copy holds the content of the store.
    fn check_copy(&mut self, directory: FileIdentity) -> ScriptResult {
        let mut world = self.world();
        let image = self.sim.kill_image();
        image.unmount_all();
        let (Some(path), Some(allowed)) =
            (image.path_of(directory), world.allowed_states().cloned())
        else {
            return Ok(());
        };
        if world.condition() != DirectoryCondition::Kept {
            return Ok(());
        }
        let restored = Path::new("/restored");
        let path = match self.kind {
            StoreKind::Keys => path,
            StoreKind::Events => {
                restore(&image.env(), &path, restored, CopyOptions::default())
                    .map_err(|error| format!("a backup cannot be restored: {error}"))?;
                restored.to_path_buf()
            }
        };
        let found = directory_model::open_and_verify(self.kind, &image, &path)
            .map_err(|text| format!("copy: {text}"))?;
        allowed.check(&found, false).map_err(|text| format!("a copy holds {text}"))
    }

    // -- the end --

    fn end(&mut self) -> ScriptResult {
        self.sim.clear_scheduled();
        let (open, condition) = {
            let world = self.world();
            (world.open, world.condition())
        };
        if self.handle.is_some() {
            self.check_images()?;
            self.read()?;
            self.close()?;
        }
        self.sim.unmount_all();
        let world = self.world();
        world.check_outside(&self.sim)?;
        let Some(path) = open.and_then(|open| self.sim.path_of(open)) else { return Ok(()) };
        if condition != DirectoryCondition::Kept {
            return Ok(());
        }
        let known = open.and_then(|open| world.stores.get(&open));
        let seed = derive_seed(self.operations, 3);
        let image = self.sim.crash_image(&umbel_sim::Survival::None, seed);
        for (machine, is_power_loss) in [(self.sim.kill_image(), false), (image, true)] {
            let found = directory_model::open_and_verify(self.kind, &machine, &path)?;
            if let Some(known) = known {
                let checked = known.allowed.check(&found, is_power_loss);
                checked.map_err(|text| format!("at the end {} holds {text}", path.display()))?;
            }
        }
        Ok(())
    }
}
