//! One script: a store is used while an operator moves directories.

mod opening;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use umbel_env::FileIdentity;
use umbel_events::{CopyOptions, restore};
use umbel_sim::Sim;

use super::handle::{Done, GONE, Handle, Kind, Write, append_to, id, put_into};
use super::operator::{SharedWorld, act, locked};
use super::rig::{LeftOut, Rig};
use super::world::{self, Condition, World};
use crate::check::no_panic;
use crate::random::{Random, join};
use crate::report::Tally;

/// A script is done, or something was wrong.
type Step = Result<(), String>;

/// One script of a seed, in a world without one of the things that keep a store to its directory.
pub fn script(seed: u64, left_out: Option<&str>, tally: &Tally) -> Result<(), String> {
    no_panic(|| {
        let mut life = Life::new(seed, LeftOut::named(left_out))?;
        let lived = life.live();
        tally.add("calls of the store", life.operations);
        let world = locked(&life.world);
        tally.add("moves of the operator", world.moves.len() as u64);
        lived.map_err(|text| {
            let moves = world.moves.join("; ");
            format!("{text} [{:?}; {}; moves: {moves}]", life.kind, life.done.join(", "))
        })
    })
}

/// What was so when a call began.
struct Before {
    condition: Condition,
    moves: usize,
}

/// A script being run.
struct Life {
    kind: Kind,
    sim: Sim,
    rig: Rig,
    world: SharedWorld,
    random: Random,
    handle: Option<Handle>,
    /// The path the store is opened by.
    given: PathBuf,
    /// Whether an event store acknowledges only what is durable.
    is_synced: bool,
    next_event: u64,
    next_keyspace: u64,
    operations: u64,
    done: Vec<String>,
    /// Whether a call failed because of what the operator did.
    has_failed: bool,
}

impl Life {
    fn new(seed: u64, left_out: LeftOut) -> Result<Life, String> {
        let mut random = Random::new(seed);
        let kind = if random.once_in(2) { Kind::Keys } else { Kind::Events };
        let (sim, world) = world::begin(kind, seed)?;
        sim.set_current_dir("/home");
        let is_relative = random.once_in(2);
        Ok(Life {
            kind,
            rig: Rig::new(&sim, left_out),
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

    fn world(&self) -> MutexGuard<'_, World> {
        locked(&self.world)
    }

    fn live(&mut self) -> Step {
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
                0..=1 => act(&self.world, &self.sim, self.random.next(), false),
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
        self.sim.before_call(call, move |sim| act(&world, sim, seed, true));
    }

    /// Whether enough calls came after one that failed.
    fn is_over(&mut self) -> bool {
        self.has_failed && self.random.once_in(3)
    }

    fn begin(&mut self, what: &str) -> Before {
        self.operations += 1;
        self.done.push(what.to_string());
        let world = self.world();
        Before { condition: world.condition(), moves: world.moves.len() }
    }

    /// Judges what came of a call. `noticed` is what the call cannot succeed with.
    fn judge<T>(
        &mut self,
        before: &Before,
        done: Done<T>,
        noticed: &[Condition],
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
            Err(failed) if condition == Condition::Kept => Err(format!(
                "{what} failed although nothing was done to the files: {}",
                failed.text
            )),
            Err(_) => {
                self.has_failed = true;
                Ok(None)
            }
        }
    }

    fn handle(&self) -> Result<&Handle, String> {
        self.handle.as_ref().ok_or_else(|| "the store is not open".to_string())
    }

    fn step(&mut self) -> Step {
        match self.random.below(24) {
            0..=8 => self.write(),
            9 => self.sync(),
            10..=11 => self.flush(),
            12 => self.tidy_up(),
            13..=14 => self.read(),
            15 => self.verify(),
            16..=17 => self.copy(),
            18..=19 => self.reopen(),
            20 => self.read_only(),
            21 => self.second_open(),
            22 => self.look(),
            _ => self.write().and_then(|()| self.sync()),
        }
    }

    // -- writing --

    fn write(&mut self) -> Step {
        match self.kind {
            Kind::Keys => self.commit(),
            Kind::Events => self.append(),
        }
    }

    fn commit(&mut self) -> Step {
        let is_synced = self.random.once_in(3);
        let mut writes: Vec<Write> = Vec::new();
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
            self.judge(&before, done, &[Condition::Removed, Condition::Replaced])?;
        }
        // Keyspaces that are not there yet are created by a manifest write.
        let before = self.begin(if is_synced { "commit (synced)" } else { "commit" });
        if let Some(ledger) = self.world().ledger() {
            ledger.issue(|map| put_into(map, &writes));
        }
        let done = self.handle()?.commit(&writes, is_synced);
        let noticed: &[Condition] = if is_synced { &[Condition::Removed] } else { &[] };
        self.written(&before, done, noticed, is_synced)
    }

    fn append(&mut self) -> Step {
        let is_gone = self.random.once_in(12);
        let stream = match is_gone {
            true => GONE.to_string(),
            false => format!("s{}", self.random.below(5)),
        };
        let count = 1 + self.random.below(3);
        let numbers = self.next_event..self.next_event + count;
        self.next_event += count;
        let bytes = [10, 200, 3000][self.random.below(3) as usize];
        let before = self.begin("append");
        if let Some(ledger) = self.world().ledger().filter(|_| !is_gone) {
            ledger.issue(|map| numbers.clone().for_each(|n| append_to(map, &stream, id(n))));
        } else if let Some(ledger) = self.world().ledger() {
            ledger.issue(|_| {});
        }
        let done = self.handle()?.append(&stream, numbers, bytes);
        let noticed: &[Condition] = if self.is_synced { &[Condition::Removed] } else { &[] };
        let is_synced = self.is_synced;
        self.written(&before, done, noticed, is_synced)
    }

    fn written(
        &mut self,
        before: &Before,
        done: Done<()>,
        noticed: &[Condition],
        is_durable: bool,
    ) -> Step {
        if self.judge(before, done, noticed)?.is_some()
            && let Some(ledger) = self.world().ledger()
        {
            ledger.acknowledge(is_durable);
        }
        Ok(())
    }

    fn sync(&mut self) -> Step {
        let before = self.begin("sync");
        let done = self.handle()?.sync();
        if self.judge(&before, done, &[Condition::Removed])?.is_some()
            && let Some(ledger) = self.world().ledger()
        {
            ledger.make_durable();
        }
        Ok(())
    }

    fn flush(&mut self) -> Step {
        self.write()?;
        let before = self.begin("flush");
        let done = self.handle()?.flush();
        // That of an event store has no table of chunks to compare where nothing is to be done.
        let noticed: &[Condition] = match self.kind {
            Kind::Keys => &[Condition::Removed, Condition::Replaced],
            Kind::Events => &[Condition::Removed],
        };
        self.judge(&before, done, noticed)?;
        self.world().check_put_there(&self.sim)
    }

    fn tidy_up(&mut self) -> Step {
        let before = self.begin("compact or scavenge");
        let done = self.handle()?.tidy_up();
        self.judge(&before, done, &[])?;
        self.world().check_put_there(&self.sim)
    }

    // -- reading --

    fn read(&mut self) -> Step {
        let before = self.begin("read");
        let done = self.handle()?.read();
        if let Some(found) = self.judge(&before, done, &[])?
            && let Some(ledger) = self.world().ledger()
        {
            ledger.check(&found, false).map_err(|text| format!("a read shows {text}"))?;
        }
        Ok(())
    }

    fn verify(&mut self) -> Step {
        let before = self.begin("verify");
        let done = self.handle()?.verify();
        match self.judge(&before, done, &[])? {
            Some(Some(damage)) if self.world().condition() == Condition::Kept => {
                Err(format!("verify reports damage where there is none: {damage}"))
            }
            _ => Ok(()),
        }
    }

    /// What a kill and a power loss would leave now.
    fn look(&mut self) -> Step {
        let seed = self.random.next();
        self.world().check_images(&self.sim, seed)
    }

    // -- copies --

    fn copy(&mut self) -> Step {
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
                self.judge(&before, Ok(()), &[])?;
                self.copied(*directory)
            }
            (Err(failed), _) if was_moved && !failed.is_corruption => {
                // The target may have been taken away; the store itself is as it was.
                let condition = self.world().condition();
                self.has_failed |= condition != Condition::Kept;
                Ok(())
            }
            (done, _) => self.judge(&before, done, &[]).map(drop),
        }
    }

    /// A copy holds what the store does.
    fn copied(&mut self, directory: FileIdentity) -> Step {
        let mut world = self.world();
        let image = self.sim.kill_image();
        image.unmount_all();
        let (Some(path), Some(ledger)) = (image.path_of(directory), world.ledger().cloned()) else {
            return Ok(());
        };
        if world.condition() != Condition::Kept {
            return Ok(());
        }
        let restored = Path::new("/restored");
        let path = match self.kind {
            Kind::Keys => path,
            Kind::Events => {
                restore(&image.env(), &path, restored, CopyOptions::default())
                    .map_err(|error| format!("a backup cannot be restored: {error}"))?;
                restored.to_path_buf()
            }
        };
        let found =
            world::look(self.kind, &image, &path).map_err(|text| format!("copy: {text}"))?;
        ledger.check(&found, false).map_err(|text| format!("a copy holds {text}"))
    }

    // -- the end --

    fn end(&mut self) -> Step {
        self.sim.forget_moves();
        let (open, condition) = {
            let world = self.world();
            (world.open, world.condition())
        };
        if self.handle.is_some() {
            self.look()?;
            self.read()?;
            self.close()?;
        }
        self.sim.unmount_all();
        let world = self.world();
        world.check_outside(&self.sim)?;
        let Some(path) = open.and_then(|open| self.sim.path_of(open)) else { return Ok(()) };
        if condition != Condition::Kept {
            return Ok(());
        }
        let known = open.and_then(|open| world.stores.get(&open));
        let seed = join(self.operations, 3);
        let image = self.sim.crash_image(&umbel_sim::Survival::None, seed);
        for (machine, is_power_loss) in [(self.sim.kill_image(), false), (image, true)] {
            let found = world::look(self.kind, &machine, &path)?;
            if let Some(known) = known {
                let checked = known.ledger.check(&found, is_power_loss);
                checked.map_err(|text| format!("at the end {} holds {text}", path.display()))?;
            }
        }
        Ok(())
    }
}
