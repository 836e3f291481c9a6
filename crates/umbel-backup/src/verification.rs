//! Verification of a backup in an object store without a restore.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use umbel_env::{Env, Objects};

use crate::backup_error::{BackupError, BackupResult};
use crate::manifest::{Manifest, ManifestContents};
use crate::manifest_chain::ManifestChain;
use crate::object_requests::{ObjectRequestOptions, ObjectRequests};
use crate::parallel_tasks::{Task, try_run_parallel};
use crate::piece::{Piece, SourceFile};
use crate::piece_download::download;

/// Manifests in a row that can be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestorableManifests {
    /// Number of the first manifest.
    pub first: u64,
    /// Number of the last manifest.
    pub last: u64,
    /// Time of the state of the first manifest by the writer's wall clock, in microseconds since
    /// 1970.
    pub first_wall_micros: u64,
    /// Time of the state of the last manifest by the writer's wall clock, in microseconds since
    /// 1970.
    pub last_wall_micros: u64,
    /// Position or sequence number up to which the first manifest has everything.
    pub first_through: u64,
    /// Position or sequence number up to which the last manifest has everything.
    pub last_through: u64,
}

/// Result of the verification of a backup in an object store.
#[derive(Debug, Clone)]
pub struct VerificationOutcome {
    /// Number of the first manifest that counts.
    pub first_manifest: u64,
    /// Number of the newest manifest.
    pub newest_manifest: u64,
    /// Position or sequence number up to which the newest manifest has everything.
    pub through: u64,
    /// Number of pieces that were read.
    pub objects: u64,
    /// Bytes of these pieces.
    pub bytes: u64,
    /// Every damage found, with the name of the object, the cause and the remedy.
    pub damage: Vec<BackupError>,
    /// The manifests that can be restored.
    pub restorable: Vec<RestorableManifests>,
}

/// The manifests in whose state a piece is: they are adjacent, since no piece comes back.
#[derive(Debug, Clone, Copy)]
struct PieceUse {
    first: u64,
    /// `None` up to the newest manifest.
    last: Option<u64>,
}

/// The manifests of a backup and the pieces that they name.
#[derive(Debug, Default)]
struct Survey {
    /// The manifests from whose state a store can be restored.
    manifests: Vec<RestorableManifests>,
    /// The pieces.
    pieces: BTreeMap<(SourceFile, Piece), PieceUse>,
    damage: Vec<BackupError>,
}

/// Reads every object that a manifest of the backup names, and checks all checksums.
///
/// # Errors
/// [`BackupError::Refused`] if there is no backup, and failed requests, which do not show
/// whether an object is damaged.
pub fn verify<C: ManifestContents>(
    env: &Env,
    objects: Arc<dyn Objects>,
    options: ObjectRequestOptions,
) -> BackupResult<VerificationOutcome> {
    let requests = Arc::new(ObjectRequests::new(env, objects, options));
    let (_, chain) = ManifestChain::<C>::find(&requests)?;
    let mut survey = Survey { damage: chain.damage.clone(), ..Survey::default() };
    survey.read_manifests(&chain)?;
    let backup = chain.backup;
    let task = |(file, piece): &(SourceFile, Piece)| {
        let (requests, file, piece) = (Arc::clone(&requests), *file, *piece);
        let check = move || {
            let mut damage = Vec::new();
            let checked = download::<C>(&requests, &backup, (file, &piece), |_, _| Ok(()));
            record_damage(&mut damage, checked)?;
            Ok(damage)
        };
        Box::new(check) as Task<BackupResult<Vec<BackupError>>>
    };
    let tasks = survey.pieces.keys().map(task).collect();
    let mut damaged = Vec::new();
    let results = try_run_parallel(env, requests.options.parallel_requests, tasks)?;
    for (damage, used) in results.into_iter().zip(survey.pieces.values()) {
        if !damage.is_empty() {
            damaged.push(*used);
        }
        survey.damage.extend(damage);
    }
    let is_whole = |manifest: &RestorableManifests| {
        let uses = |used: &PieceUse| {
            used.first <= manifest.first && used.last.is_none_or(|last| manifest.first <= last)
        };
        !damaged.iter().any(uses)
    };
    let bytes = survey.pieces.keys().map(|(_, piece)| piece.object_bytes()).sum();
    Ok(VerificationOutcome {
        first_manifest: chain.first,
        newest_manifest: chain.newest.number,
        through: chain.newest.contents.through(),
        objects: survey.pieces.len() as u64,
        bytes,
        restorable: join_ranges(survey.manifests.into_iter().filter(is_whole)),
        damage: survey.damage,
    })
}

/// Adds damage to the list; returns `None` for damage, and other errors as errors.
fn record_damage<T>(
    damage: &mut Vec<BackupError>,
    result: BackupResult<T>,
) -> BackupResult<Option<T>> {
    match result {
        Err(error) if error.is_damage() => {
            damage.push(error);
            Ok(None)
        }
        result => result.map(Some),
    }
}

impl Survey {
    /// Reads all manifests that count.
    fn read_manifests<C: ManifestContents>(
        &mut self,
        chain: &ManifestChain<'_, C>,
    ) -> BackupResult<()> {
        let mut state: Option<C::State> = None;
        let mut previous = None;
        self.damage.extend(chain.gap());
        for number in chain.first..=chain.newest.number {
            let Some(manifest) = record_damage(&mut self.damage, chain.manifest(number))? else {
                (state, previous) = (None, None);
                continue;
            };
            let follows = previous.is_none_or(|uid| uid == manifest.previous);
            let was_known = state.is_some() || manifest.contents.is_full();
            previous = Some(manifest.uid);
            let before = state.take();
            state = manifest.contents.apply(before.clone()).filter(|_| follows);
            match &state {
                Some(state) => self.add(&manifest, before.as_ref(), state),
                None if was_known => {
                    let cause = "the manifest contradicts the one before it, or itself";
                    self.damage.push(chain.damaged(number, cause));
                }
                // The damage of an earlier manifest, or its absence, is reported already.
                None => {}
            }
        }
        Ok(())
    }

    /// Adds a manifest with its state, after the state before it.
    fn add<C: ManifestContents>(
        &mut self,
        manifest: &Manifest<C>,
        before: Option<&C::State>,
        state: &C::State,
    ) {
        let (number, contents) = (manifest.number, &manifest.contents);
        let time = contents.time_micros(manifest.wall_micros);
        if C::is_restorable(state) {
            self.manifests.push(RestorableManifests {
                first: number,
                last: number,
                first_wall_micros: time,
                last_wall_micros: time,
                first_through: contents.through(),
                last_through: contents.through(),
            });
        }
        for piece in contents.added() {
            self.pieces.entry(piece).or_insert(PieceUse { first: number, last: None });
        }
        let Some(before) = before else {
            // A full manifest, also one after damage: what the state lacks was dropped before.
            let named: HashSet<_> = C::pieces(state).into_iter().collect();
            let others = self.pieces.iter_mut().filter(|(piece, _)| !named.contains(*piece));
            others.for_each(|(_, used)| used.last = used.last.or(Some(number - 1)));
            return;
        };
        for piece in contents.dropped(before, state) {
            if let Some(used) = self.pieces.get_mut(&piece) {
                used.last = Some(number - 1);
            }
        }
    }
}

/// Joins the ranges of adjacent manifests.
fn join_ranges(ranges: impl Iterator<Item = RestorableManifests>) -> Vec<RestorableManifests> {
    let mut joined: Vec<RestorableManifests> = Vec::new();
    for range in ranges {
        match joined.last_mut().filter(|last| last.last + 1 == range.first) {
            Some(last) => {
                last.last = range.last;
                last.last_wall_micros = range.last_wall_micros;
                last.last_through = range.last_through;
            }
            None => joined.push(range),
        }
    }
    joined
}
