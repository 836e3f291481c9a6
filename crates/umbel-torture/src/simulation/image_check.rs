//! Examining one image of a crashed store: it opens, holds an allowed state, verifies, and can be
//! worked with.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use umbel::{Db, Durability};
use umbel_sim::{Sim, Survival};

use crate::look;
use crate::model::{Found, Loss, Model};
use crate::random::join;
use crate::runner::World;
use crate::script::{Script, small};
use crate::watch::{Observer, watched};

/// What is done with an image after it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// Nothing more.
    Nothing,
    /// The process dies right after opening; opening again shows the same.
    Twice,
    /// More is written and flushed, the store closed and opened again.
    GoOn,
    /// More is written and synced, then the power fails again.
    CutAgain,
    /// The power fails at every call of the opening.
    Deep,
}

/// The ways to go on, in turn.
pub const FOLLOWS: [Follow; 4] = [Follow::Twice, Follow::GoOn, Follow::CutAgain, Follow::Deep];

/// What examining needs to know.
#[derive(Clone)]
pub struct Examiner {
    /// The script.
    pub script: Arc<Script>,
    /// How a machine is shown to the engine.
    pub world: World,
    /// Whether the disk holds what the page cache shows where nothing is pending: no sync failed.
    pub settled: bool,
    /// Counts the images of [`Follow::Deep`].
    pub deep_images: Arc<AtomicU64>,
}

impl std::fmt::Debug for Examiner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Examiner").field("script", &self.script.name).finish_non_exhaustive()
    }
}

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Keeps panics that [`no_panic`] catches off the terminal: they are reported as violations.
pub fn quiet_panics() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !CATCHING.get() {
            loud(panic);
        }
    }));
}

/// Runs `work` and makes a panic an error.
pub fn no_panic<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let outer = CATCHING.replace(true);
    let ended = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(outer);
    ended.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        Err(format!("it panicked: {}", text.unwrap_or_default()))
    })
}

impl Examiner {
    fn open(&self, image: &Sim) -> Result<Db, String> {
        image.allow_mapping(self.script.mapping);
        let options = look::options_later(&self.script, (self.world)(image));
        Db::open(self.script.folder, options).map_err(|error| format!("it does not open: {error}"))
    }

    /// Examines an image; an error says what is wrong with it.
    pub fn examine(
        &self,
        model: &Model,
        image: &Sim,
        loss: Loss,
        follow: Follow,
        seed: u64,
    ) -> Result<(), String> {
        no_panic(|| {
            let (found, recovered) = self.read(model, &image.clone_disk(), loss)?;
            self.check_copies(model, image)?;
            match follow {
                Follow::Nothing => Ok(()),
                Follow::Twice => self.twice(&recovered, &found, model),
                Follow::GoOn => self.go_on(&image.clone_disk(), found, model),
                Follow::CutAgain => self.cut_again(&image.clone_disk(), found, model, seed),
                Follow::Deep => self.deep(model, &image.clone_disk(), &found, seed),
            }
        })
    }

    /// Opens and reads an image, which ends with the death of the process; answers with what was
    /// found and the machine after that.
    fn read(&self, model: &Model, image: &Sim, loss: Loss) -> Result<(Found, Sim), String> {
        let db = self.open(image)?;
        let found = look::read_all(&db, &model.keys).map_err(|trouble| trouble.text())?;
        model.check(&found, loss)?;
        look::verify(&db)?;
        let recovered = image.kill_image();
        image.crash_now();
        drop(db);
        Ok((found, recovered))
    }

    fn check_copies(&self, model: &Model, image: &Sim) -> Result<(), String> {
        for copy in &model.copies {
            let other = image.clone_disk();
            let options = look::options_later(&self.script, other.env());
            let db = Db::open(copy.folder, options)
                .map_err(|error| format!("the checkpoint does not open: {error}"))?;
            let found = look::read_all(&db, &model.keys).map_err(|trouble| trouble.text())?;
            if found != copy.found {
                let text = differences(&copy.found, &found);
                return Err(format!("the checkpoint holds another state:{text}"));
            }
            look::verify(&db)?;
        }
        Ok(())
    }

    fn expect(&self, image: &Sim, want: &Found, model: &Model, when: &str) -> Result<Db, String> {
        let db = self.open(image).map_err(|text| format!("{when}: {text}"))?;
        let found = look::read_all(&db, &model.keys).map_err(|trouble| trouble.text())?;
        if found != *want {
            let text = differences(want, &found);
            return Err(format!("{when} the state is another:{text}"));
        }
        look::verify(&db).map_err(|text| format!("{when}: {text}"))?;
        Ok(db)
    }

    fn twice(&self, image: &Sim, found: &Found, model: &Model) -> Result<(), String> {
        let db = self.expect(image, found, model, "opened again after a kill,")?;
        db.close().map_err(|error| format!("closing after recovery: {error}"))?;
        let db = self.expect(image, found, model, "opened again after a clean close,")?;
        drop(db);
        Ok(())
    }

    /// Writes more; `found` becomes what is then to be there.
    fn write_more(&self, db: &Db, found: &mut Found, flush: bool) -> Result<(), String> {
        let said = |error: umbel::Error| format!("writing after recovery: {error}");
        if found.is_empty() {
            db.keyspace("second", small()).map_err(said)?;
            found.insert(
                "second".to_string(),
                crate::model::FoundKeyspace { map: crate::model::Map::new(), marker: None },
            );
        }
        let mut batch = db.batch();
        for (name, keyspace) in found.iter_mut() {
            let handle = db.existing_keyspace(name).map_err(said)?;
            let handle = handle.ok_or_else(|| format!("keyspace '{name}' has gone"))?;
            if !handle.options().log {
                if flush {
                    handle.put(b"second-unlogged", b"x").map_err(said)?;
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
            batch.commit(Durability::Synced).map_err(said)?;
        }
        if flush { db.flush().map_err(said) } else { Ok(()) }
    }

    fn go_on(&self, image: &Sim, mut found: Found, model: &Model) -> Result<(), String> {
        let db = self.open(image)?;
        self.write_more(&db, &mut found, true)?;
        db.close().map_err(|error| format!("closing after writing more: {error}"))?;
        drop(self.expect(image, &found, model, "after writing more and a clean close")?);
        Ok(())
    }

    fn cut_again(&self, image: &Sim, found: Found, model: &Model, seed: u64) -> Result<(), String> {
        let db = self.open(image)?;
        let mut want = found.clone();
        self.write_more(&db, &mut want, false)?;
        let policies = [Survival::None, Survival::any(seed, image.pending_units())];
        for policy in policies {
            let again = image.crash_image(&policy, seed);
            // Keyspaces without a log keep what was flushed, and nothing of them was since.
            let when = format!("after a synced write and a second power loss ({policy:?})");
            let second = self.expect(&again, &want, model, &when)?;
            again.crash_now();
            drop(second);
        }
        image.crash_now();
        drop(db);
        Ok(())
    }

    fn deep(&self, model: &Model, image: &Sim, found: &Found, seed: u64) -> Result<(), String> {
        let settled = self.settled && image.pending_units() == 0;
        let diver = Arc::new(Diver {
            examiner: self.clone(),
            model: model.clone(),
            found: settled.then(|| found.clone()),
            seed,
            moments: AtomicU64::new(0),
            trouble: Mutex::default(),
        });
        let observer: Arc<dyn Observer> = Arc::clone(&diver) as _;
        image.allow_mapping(self.script.mapping);
        let options = look::options_later(&self.script, watched(image, &observer));
        let opened = Db::open(self.script.folder, options);
        let db = opened.map_err(|error| format!("it does not open: {error}"))?;
        image.crash_now();
        drop(db);
        let trouble = diver.trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
        trouble.map_or(Ok(()), Err)
    }
}

fn differences(want: &Found, found: &Found) -> String {
    let empty = crate::model::Map::new();
    let mut text = String::new();
    for (name, keyspace) in want {
        let have = found.get(name);
        if have.is_some_and(|have| have.marker != keyspace.marker) {
            text.push_str(&format!(" the marker of '{name}' differs;"));
        }
        let have = have.map_or(&empty, |have| &have.map);
        if *have != keyspace.map {
            text.push_str(&crate::differ::difference(name, &keyspace.map, have));
        }
    }
    format!("{text} {} keyspaces expected, {} found", want.len(), found.len())
}

/// Fails the power at every call of a recovery.
#[derive(Debug)]
struct Diver {
    examiner: Examiner,
    model: Model,
    /// Where nothing was pending, recovery must come to the same state each time.
    found: Option<Found>,
    seed: u64,
    moments: AtomicU64,
    trouble: Mutex<Option<String>>,
}

impl Diver {
    fn moment(&self, sim: &Sim) {
        let moment = self.moments.fetch_add(1, Ordering::Relaxed);
        let seed = join(self.seed, moment);
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
                let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
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

impl Observer for Diver {
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
