//! Checks one image of a crashed store: it opens, holds an allowed state, verifies, and works.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use umbel_base::ignore_poison::IgnorePoison;

use umbel::{Db, Durability};
use umbel_sim::{Sim, Survival};

use crate::simulation::call_observer::{Observer, observed_env};
use crate::simulation::full_read;
use crate::simulation::oracle::{Loss, Oracle, StoreContents};
use crate::simulation::script::{Script, small};
use crate::simulation::script_runner::EnvMaker;
use crate::support::derived_seed::derive_seed;

/// Use of an image after the first read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowUp {
    /// The image is not used further.
    Nothing,
    /// The process dies right after the open; the next open must show the same content.
    Twice,
    /// Writes and flushes, closes the store and opens it again.
    GoOn,
    /// Writes with syncs, then the power fails again.
    CutAgain,
    /// The power fails at every call of the open.
    Deep,
}

/// The uses, in turn.
pub const FOLLOW_UPS: [FollowUp; 4] =
    [FollowUp::Twice, FollowUp::GoOn, FollowUp::CutAgain, FollowUp::Deep];

/// Checker of images.
#[derive(Clone)]
pub struct ImageChecker {
    /// The script.
    pub script: Arc<Script>,
    /// Creates the engine's environment of a machine.
    pub world: EnvMaker,
    /// Whether the disk equals the page cache once no writes are pending, because no sync failed.
    pub settled: bool,
    /// Counts the images of [`FollowUp::Deep`].
    pub deep_images: Arc<AtomicU64>,
}

impl std::fmt::Debug for ImageChecker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Examiner").field("script", &self.script.name).finish_non_exhaustive()
    }
}

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Hides the messages of panics that [`no_panic`] catches, which are reported as violations.
pub fn quiet_panics() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !CATCHING.get() {
            loud(panic);
        }
    }));
}

/// Runs `work` and converts a panic to an error.
pub fn no_panic<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let outer = CATCHING.replace(true);
    let ended = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(outer);
    ended.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

impl ImageChecker {
    fn open(&self, image: &Sim) -> Result<Db, String> {
        image.allow_mapping(self.script.mapping);
        let options = full_read::reopen_options(&self.script, (self.world)(image));
        Db::open(self.script.folder, options).map_err(|error| format!("it does not open: {error}"))
    }

    /// Checks an image; an error describes the violation.
    pub fn examine(
        &self,
        model: &Oracle,
        image: &Sim,
        loss: Loss,
        follow: FollowUp,
        seed: u64,
    ) -> Result<(), String> {
        no_panic(|| {
            let (found, recovered) = self.read(model, &image.clone_disk(), loss)?;
            self.check_copies(model, image)?;
            match follow {
                FollowUp::Nothing => Ok(()),
                FollowUp::Twice => self.check_second_open(&recovered, &found, model),
                FollowUp::GoOn => self.check_further_use(&image.clone_disk(), found, model),
                FollowUp::CutAgain => {
                    self.check_second_crash(&image.clone_disk(), found, model, seed)
                }
                FollowUp::Deep => {
                    self.check_recovery_crashes(model, &image.clone_disk(), &found, seed)
                }
            }
        })
    }

    /// Opens and reads an image, and kills the process. Returns the content and the machine after
    /// the kill.
    fn read(
        &self,
        model: &Oracle,
        image: &Sim,
        loss: Loss,
    ) -> Result<(StoreContents, Sim), String> {
        let db = self.open(image)?;
        let found = full_read::read_all(&db, &model.keys).map_err(|trouble| trouble.text())?;
        model.check(&found, loss)?;
        full_read::verify(&db)?;
        let recovered = image.kill_image();
        image.crash_now();
        drop(db);
        Ok((found, recovered))
    }

    fn check_copies(&self, model: &Oracle, image: &Sim) -> Result<(), String> {
        for copy in &model.copies {
            let other = image.clone_disk();
            let options = full_read::reopen_options(&self.script, other.env());
            let db = Db::open(copy.folder, options)
                .map_err(|error| format!("the checkpoint does not open: {error}"))?;
            let found = full_read::read_all(&db, &model.keys).map_err(|trouble| trouble.text())?;
            if found != copy.found {
                let text = differences(&copy.found, &found);
                return Err(format!("the checkpoint holds another state:{text}"));
            }
            full_read::verify(&db)?;
        }
        Ok(())
    }

    fn expect(
        &self,
        image: &Sim,
        want: &StoreContents,
        model: &Oracle,
        when: &str,
    ) -> Result<Db, String> {
        let db = self.open(image).map_err(|text| format!("{when}: {text}"))?;
        let found = full_read::read_all(&db, &model.keys).map_err(|trouble| trouble.text())?;
        if found != *want {
            let text = differences(want, &found);
            return Err(format!("{when} the state is another:{text}"));
        }
        full_read::verify(&db).map_err(|text| format!("{when}: {text}"))?;
        Ok(db)
    }

    fn check_second_open(
        &self,
        image: &Sim,
        found: &StoreContents,
        model: &Oracle,
    ) -> Result<(), String> {
        let db = self.expect(image, found, model, "opened again after a kill,")?;
        db.close().map_err(|error| format!("closing after recovery: {error}"))?;
        let db = self.expect(image, found, model, "opened again after a clean close,")?;
        drop(db);
        Ok(())
    }

    /// Writes more; `found` becomes the expected content.
    fn write_more(&self, db: &Db, found: &mut StoreContents, flush: bool) -> Result<(), String> {
        let describe = |error: umbel::Error| format!("writing after recovery: {error}");
        if found.is_empty() {
            db.keyspace("second", small()).map_err(describe)?;
            found.insert(
                "second".to_string(),
                crate::simulation::oracle::KeyspaceContents {
                    map: crate::simulation::oracle::KeyspaceMap::new(),
                    marker: None,
                },
            );
        }
        let mut batch = db.batch();
        for (name, keyspace) in found.iter_mut() {
            let handle = db.existing_keyspace(name).map_err(describe)?;
            let handle = handle.ok_or_else(|| format!("keyspace '{name}' has gone"))?;
            if !handle.options().log {
                if flush {
                    handle.put(b"second-unlogged", b"x").map_err(describe)?;
                    keyspace.map.insert(b"second-unlogged".to_vec(), b"x".to_vec());
                }
                continue;
            }
            if let Some((first, _)) = keyspace.map.pop_first() {
                batch.delete(&handle, &first);
            }
            for number in 0..4u8 {
                let key = [b"second-".as_slice(), &[number]].concat();
                let value = vec![number; 40];
                batch.put(&handle, &key, &value);
                keyspace.map.insert(key, value);
            }
        }
        if !batch.is_empty() {
            batch.commit(Durability::Synced).map_err(describe)?;
        }
        if flush { db.flush().map_err(describe) } else { Ok(()) }
    }

    fn check_further_use(
        &self,
        image: &Sim,
        mut found: StoreContents,
        model: &Oracle,
    ) -> Result<(), String> {
        let db = self.open(image)?;
        self.write_more(&db, &mut found, true)?;
        db.close().map_err(|error| format!("closing after writing more: {error}"))?;
        drop(self.expect(image, &found, model, "after writing more and a clean close")?);
        Ok(())
    }

    fn check_second_crash(
        &self,
        image: &Sim,
        found: StoreContents,
        model: &Oracle,
        seed: u64,
    ) -> Result<(), String> {
        let db = self.open(image)?;
        let mut want = found.clone();
        self.write_more(&db, &mut want, false)?;
        let policies = [Survival::None, Survival::any(seed, image.pending_units())];
        for policy in policies {
            let again = image.crash_image(&policy, seed);
            // Keyspaces without a WAL keep their flushed state, and nothing was flushed since.
            let when = format!("after a synced write and a second power loss ({policy:?})");
            let second = self.expect(&again, &want, model, &when)?;
            again.crash_now();
            drop(second);
        }
        image.crash_now();
        drop(db);
        Ok(())
    }

    fn check_recovery_crashes(
        &self,
        model: &Oracle,
        image: &Sim,
        found: &StoreContents,
        seed: u64,
    ) -> Result<(), String> {
        let settled = self.settled && image.pending_units() == 0;
        let diver = Arc::new(RecoveryCrasher {
            examiner: self.clone(),
            model: model.clone(),
            found: settled.then(|| found.clone()),
            seed,
            moments: AtomicU64::new(0),
            error: Mutex::default(),
        });
        let observer: Arc<dyn Observer> = Arc::clone(&diver) as _;
        image.allow_mapping(self.script.mapping);
        let options = full_read::reopen_options(&self.script, observed_env(image, &observer));
        let opened = Db::open(self.script.folder, options);
        let db = opened.map_err(|error| format!("it does not open: {error}"))?;
        image.crash_now();
        drop(db);
        let trouble = diver.error.lock().ignore_poison().take();
        trouble.map_or(Ok(()), Err)
    }
}

fn differences(want: &StoreContents, found: &StoreContents) -> String {
    let empty = crate::simulation::oracle::KeyspaceMap::new();
    let mut text = String::new();
    for (name, keyspace) in want {
        let have = found.get(name);
        if have.is_some_and(|have| have.marker != keyspace.marker) {
            text.push_str(&format!(" the marker of '{name}' differs;"));
        }
        let have = have.map_or(&empty, |have| &have.map);
        if *have != keyspace.map {
            text.push_str(&crate::simulation::state_diff::difference(name, &keyspace.map, have));
        }
    }
    format!("{text} {} keyspaces expected, {} found", want.len(), found.len())
}

/// Fails the power at every call of a recovery.
#[derive(Debug)]
struct RecoveryCrasher {
    examiner: ImageChecker,
    model: Oracle,
    /// Content after recovery; without pending writes, each recovery must reach the same content.
    found: Option<StoreContents>,
    seed: u64,
    moments: AtomicU64,
    error: Mutex<Option<String>>,
}

impl RecoveryCrasher {
    fn moment(&self, sim: &Sim) {
        let moment = self.moments.fetch_add(1, Ordering::Relaxed);
        let seed = derive_seed(self.seed, moment);
        let units = sim.pending_units();
        let mut policies = vec![Survival::any(seed, units)];
        if units > 0 {
            policies.push([Survival::None, Survival::All][(moment % 2) as usize]);
        }
        for policy in policies {
            self.examiner.deep_images.fetch_add(1, Ordering::Relaxed);
            let image = sim.crash_image(&policy, seed);
            let checked = no_panic(|| self.check(&image));
            if let Err(text) = checked {
                let text = format!("crash at call {moment} of recovery, {policy:?}: {text}");
                let mut trouble = self.error.lock().ignore_poison();
                trouble.get_or_insert(text);
            }
        }
    }

    fn check(&self, image: &Sim) -> Result<(), String> {
        let (found, _) = self.examiner.read(&self.model, image, Loss::Power)?;
        match &self.found {
            Some(want) if found != *want => {
                Err("recovery came to another state than before".to_string())
            }
            _ => Ok(()),
        }
    }
}

impl Observer for RecoveryCrasher {
    fn before(&self, sim: &Sim, changes: bool) {
        if changes {
            self.moment(sim);
        }
    }

    fn after(&self, sim: &Sim, changes: bool) {
        if changes {
            self.moment(sim);
        }
    }
}
