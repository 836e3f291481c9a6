//! Random scripts against a small model of the states that must and may survive.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use umbel_env::{Access, File};
use umbel_sim::{Sim, Survival};

const NAMES: u8 = 4;
const BLOCKS: u8 = 6;
const BLOCK_BYTES: u64 = 512;

/// Step of a script. Each write fills one sector with a unique stamp, so that an image shows which
/// writes it has.
#[derive(Debug, Clone)]
enum Step {
    Create(u8),
    Write(u8, u8),
    Sync(u8),
    SyncDir,
    Rename(u8, u8),
    Remove(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES;
    prop_oneof![
        2 => name.clone().prop_map(Step::Create),
        5 => (name.clone(), 0..BLOCKS).prop_map(|(name, block)| Step::Write(name, block)),
        2 => name.clone().prop_map(Step::Sync),
        2 => Just(Step::SyncDir),
        1 => (name.clone(), name.clone()).prop_map(|(source, target)| Step::Rename(source, target)),
        1 => name.prop_map(Step::Remove),
    ]
}

fn policy() -> impl Strategy<Value = Survival> {
    (any::<u64>(), 0..40u64).prop_map(|(seed, units)| Survival::any(seed, units))
}

fn path(name: u8) -> PathBuf {
    PathBuf::from(format!("/{name}"))
}

/// Model of one file, by the order of its creation.
#[derive(Debug, Clone, Default)]
struct ModelFile {
    /// For each block, every stamp written since the last sync, and the synced stamp (or 0).
    durable: BTreeMap<u8, u32>,
    pending: BTreeMap<u8, Vec<u32>>,
    len_durable: u64,
}

#[derive(Default)]
struct Model {
    files: Vec<ModelFile>,
    /// Current file of each name, and every file that a power loss could give it.
    now: BTreeMap<u8, usize>,
    may: BTreeMap<u8, Vec<Option<usize>>>,
}

impl Model {
    fn named(&mut self, name: u8, file: Option<usize>) {
        let before = self.now.get(&name).copied();
        self.may.entry(name).or_insert_with(|| vec![before]).push(file);
        match file {
            Some(file) => self.now.insert(name, file),
            None => self.now.remove(&name),
        };
    }
}

fn run(steps: &[Step], sim: &Sim) -> Model {
    let env = sim.env();
    let mut model = Model::default();
    let mut handles: Vec<Arc<dyn File>> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let stamp = index as u32 + 1;
        match *step {
            Step::Create(name) => {
                let created = env.files.create(&path(name));
                assert_eq!(created.is_ok(), !model.now.contains_key(&name));
                if let Ok(file) = created {
                    handles.push(file);
                    model.files.push(ModelFile::default());
                    model.named(name, Some(handles.len() - 1));
                }
            }
            Step::Write(name, block) => {
                if let Some(&file) = model.now.get(&name) {
                    let bytes = stamp.to_le_bytes().repeat(BLOCK_BYTES as usize / 4);
                    handles[file].write_all_at(&bytes, u64::from(block) * BLOCK_BYTES).unwrap();
                    model.files[file].pending.entry(block).or_default().push(stamp);
                }
            }
            Step::Sync(name) => {
                if let Some(&file) = model.now.get(&name) {
                    handles[file].sync().unwrap();
                    let known = &mut model.files[file];
                    for (block, stamps) in std::mem::take(&mut known.pending) {
                        let end = (u64::from(block) + 1) * BLOCK_BYTES;
                        known.len_durable = known.len_durable.max(end);
                        known.durable.insert(block, *stamps.last().unwrap());
                    }
                }
            }
            Step::SyncDir => {
                env.files.sync_dir(Path::new("/")).unwrap();
                model.may.clear();
            }
            Step::Rename(source, target) => {
                let renamed = env.files.rename(&path(source), &path(target));
                assert_eq!(renamed.is_ok(), model.now.contains_key(&source));
                if renamed.is_ok() && source != target {
                    let file = model.now.get(&source).copied();
                    model.named(source, None);
                    model.named(target, file);
                }
            }
            Step::Remove(name) => {
                let removed = env.files.remove_file(&path(name));
                assert_eq!(removed.is_ok(), model.now.contains_key(&name));
                if removed.is_ok() {
                    model.named(name, None);
                }
            }
        }
    }
    model
}

/// Whether a power loss can leave these bytes of a file.
fn fits(known: &ModelFile, bytes: &[u8], may_be_garbage: bool) -> Result<(), String> {
    if (bytes.len() as u64) < known.len_durable {
        return Err(format!("{} bytes of {} synced", bytes.len(), known.len_durable));
    }
    for (block, sector) in bytes.chunks(BLOCK_BYTES as usize).enumerate() {
        let block = block as u8;
        let pending = known.pending.get(&block).map_or(&[][..], Vec::as_slice);
        let durable = known.durable.get(&block).copied().unwrap_or(0);
        let fits = std::iter::once(&durable)
            .chain(pending)
            .any(|stamp| sector.chunks(4).all(|word| word == stamp.to_le_bytes()));
        let is_excused = may_be_garbage && !pending.is_empty();
        if !fits && !is_excused {
            return Err(format!(
                "block {block} is {:?}, not {durable} or {pending:?}",
                &sector[..4]
            ));
        }
    }
    Ok(())
}

fn check(model: &Model, image: &Sim, may_be_garbage: bool) -> Result<(), String> {
    for name in 0..NAMES {
        let now = [model.now.get(&name).copied()];
        let may = model.may.get(&name).map_or(&now[..], Vec::as_slice);
        if !image.has(path(name)) {
            if !may.contains(&None) {
                return Err(format!("the name {name} is gone"));
            }
            continue;
        }
        let bytes = image.read(path(name));
        let reasons: Vec<_> = may
            .iter()
            .flatten()
            .map(|file| fits(&model.files[*file], &bytes, may_be_garbage))
            .collect();
        if !reasons.iter().any(Result::is_ok) {
            return Err(format!("{name} holds what no file of that name did: {reasons:?}"));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Under every policy, an image has all synced names and bytes, and nothing that was never
    /// written.
    #[test]
    fn images_are_allowed_by_the_model(
        steps in prop::collection::vec(step(), 1..40),
        policies in prop::collection::vec((policy(), any::<u64>()), 4),
    ) {
        let sim = Sim::new(5);
        let model = run(&steps, &sim);
        for (policy, seed) in policies {
            let image = sim.crash_image(&policy, seed);
            let checked = check(&model, &image, matches!(policy, Survival::Garbage(_)));
            prop_assert!(checked.is_ok(), "{policy:?} {seed}: {checked:?}");
        }
        for image in sim.crash_images_exhaustive(64) {
            let checked = check(&model, &image, true);
            prop_assert!(checked.is_ok(), "{checked:?}");
        }
    }

    /// An image that loses nothing equals the page cache; an image that loses everything equals the
    /// synced state.
    #[test]
    fn the_extremes_are_exact(steps in prop::collection::vec(step(), 1..40)) {
        let sim = Sim::new(5);
        let model = run(&steps, &sim);
        let all = sim.crash_image(&Survival::All, 0);
        prop_assert_eq!(all.files(), sim.files());
        for file in sim.files() {
            prop_assert!(all.read(&file) == sim.read(&file));
            prop_assert!(sim.kill_image().read(&file) == sim.read(&file));
        }
        let none = sim.crash_image(&Survival::None, 0);
        for name in 0..NAMES {
            let durable = model.may.get(&name).map_or(model.now.get(&name).copied(), |may| may[0]);
            prop_assert_eq!(none.has(path(name)), durable.is_some());
            if let Some(file) = durable {
                prop_assert_eq!(none.read(path(name)).len() as u64, model.files[file].len_durable);
            }
        }
    }

    /// Writes to an image do not change the machine from which it was taken.
    #[test]
    fn images_are_copies(steps in prop::collection::vec(step(), 1..30)) {
        let sim = Sim::new(5);
        run(&steps, &sim);
        let image = sim.crash_image(&Survival::All, 0);
        for file in image.files() {
            let handle = image.env().files.open(&file, Access::ReadWrite).unwrap();
            let before = sim.read(&file);
            handle.write_all_at(&[0xEE; 3000], 100).unwrap();
            prop_assert!(sim.read(&file) == before);
        }
    }
}
