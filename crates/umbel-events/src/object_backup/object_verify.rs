//! Verification of a backup in an object store without a restore.

use std::collections::BTreeMap;
use std::sync::Arc;

use umbel_env::{Env, ObjectErrorKind, Objects};

use crate::object_backup::manifest_chain::ManifestChain;
use crate::object_backup::object_backup_error::{ObjectBackupError, ObjectBackupResult};
use crate::object_backup::object_manifest::{BackupState, ObjectManifest, chunk_file};
use crate::object_backup::object_requests::{ObjectRequestOptions, ObjectRequests};
use crate::object_backup::parallel_tasks::{self, Task};
use crate::object_backup::piece_download::download;
use crate::object_backup::piece_object::{ChunkFile, Piece};
use crate::types::event::Position;

/// Manifests in a row that can be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestorableRange {
    /// Number of the first manifest.
    pub first: u64,
    /// Number of the last manifest.
    pub last: u64,
    /// Wall clock of the server at the first manifest, in microseconds since 1970.
    pub first_wall_micros: u64,
    /// Wall clock of the server at the last manifest, in microseconds since 1970.
    pub last_wall_micros: u64,
    /// Position of the last event of the first manifest.
    pub first_through: Position,
    /// Position of the last event of the last manifest.
    pub last_through: Position,
}

/// Result of the verification of a backup in an object store.
#[derive(Debug, Clone)]
pub struct ObjectVerifyReport {
    /// Number of the first manifest that counts.
    pub first_manifest: u64,
    /// Number of the newest manifest.
    pub newest_manifest: u64,
    /// Position of the last event of the newest manifest; 0 without events.
    pub through: Position,
    /// Number of pieces that were read.
    pub objects: u64,
    /// Bytes of these pieces.
    pub bytes: u64,
    /// Every damage found, with the name of the object, the cause and the remedy.
    pub damage: Vec<ObjectBackupError>,
    /// The manifests that can be restored.
    pub restorable: Vec<RestorableRange>,
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
    /// The manifests whose state is known.
    manifests: Vec<RestorableRange>,
    /// The pieces.
    pieces: BTreeMap<(ChunkFile, Piece), PieceUse>,
    damage: Vec<ObjectBackupError>,
}

/// Reads every object that a manifest of the backup names, and checks all checksums.
///
/// # Errors
/// [`ObjectBackupError::Refused`] if there is no backup, and failed requests, which do not show
/// whether an object is damaged.
pub fn verify_objects(
    env: &Env,
    objects: Arc<dyn Objects>,
    options: ObjectRequestOptions,
) -> ObjectBackupResult<ObjectVerifyReport> {
    let requests = Arc::new(ObjectRequests::new(env, objects, options));
    let (_, chain) = ManifestChain::find(&requests)?;
    let mut survey = Survey { damage: chain.damage.clone(), ..Survey::default() };
    survey.read_manifests(&chain)?;
    let backup = chain.backup;
    let task = |(file, piece): &(ChunkFile, Piece)| {
        let (requests, file, piece) = (Arc::clone(&requests), *file, *piece);
        let check = move || download(&requests, &backup, (file, &piece), |_, _| Ok(()));
        Box::new(check) as Task<ObjectBackupResult<()>>
    };
    let tasks = survey.pieces.keys().map(task).collect();
    let mut damaged = Vec::new();
    let results = parallel_tasks::run(env, requests.options.parallel_requests, tasks);
    for (result, used) in results.into_iter().zip(survey.pieces.values()) {
        let panicked = || Err(ObjectBackupError::refused("internal: a download panicked"));
        let result = result.unwrap_or_else(panicked);
        if record_damage(&mut survey.damage, result)?.is_none() {
            damaged.push(*used);
        }
    }
    let is_whole = |manifest: &RestorableRange| {
        let uses = |used: &PieceUse| {
            used.first <= manifest.first && used.last.is_none_or(|last| manifest.first <= last)
        };
        !damaged.iter().any(uses)
    };
    let bytes = survey.pieces.keys().map(|(_, piece)| piece.object_bytes()).sum();
    Ok(ObjectVerifyReport {
        first_manifest: chain.first,
        newest_manifest: chain.newest.number,
        through: Position(chain.newest.through),
        objects: survey.pieces.len() as u64,
        bytes,
        restorable: join_ranges(survey.manifests.into_iter().filter(is_whole)),
        damage: survey.damage,
    })
}

/// Adds damage to the list; returns `None` for damage, and other errors as errors.
fn record_damage<T>(
    damage: &mut Vec<ObjectBackupError>,
    result: ObjectBackupResult<T>,
) -> ObjectBackupResult<Option<T>> {
    match result {
        Err(ObjectBackupError::Objects(error)) if error.kind == ObjectErrorKind::Damaged => {
            damage.push(error.into());
            Ok(None)
        }
        result => result.map(Some),
    }
}

impl Survey {
    /// Reads all manifests that count.
    fn read_manifests(&mut self, chain: &ManifestChain<'_>) -> ObjectBackupResult<()> {
        let mut state: Option<BackupState> = None;
        let mut previous = None;
        if chain.first > chain.floor {
            let cause = "the manifest is missing, so that earlier ones do not count; restore it \
                         from a version or a copy";
            self.damage.push(chain.damaged(chain.first - 1, cause));
        }
        for number in chain.first..=chain.newest.number {
            let Some(manifest) = record_damage(&mut self.damage, chain.manifest(number))? else {
                (state, previous) = (None, None);
                continue;
            };
            let follows = previous.is_none_or(|uid| uid == manifest.previous);
            let was_known = state.is_some() || manifest.is_full;
            previous = Some(manifest.uid);
            let before = state.take();
            state = manifest.apply(before.clone()).filter(|_| follows);
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
    fn add(
        &mut self,
        manifest: &ObjectManifest,
        before: Option<&BackupState>,
        state: &BackupState,
    ) {
        let number = manifest.number;
        self.manifests.push(RestorableRange {
            first: number,
            last: number,
            first_wall_micros: manifest.wall_micros,
            last_wall_micros: manifest.wall_micros,
            first_through: Position(manifest.through),
            last_through: Position(manifest.through),
        });
        for change in &manifest.changes {
            let file = chunk_file(&change.entry);
            for piece in &change.added {
                let new = PieceUse { first: number, last: None };
                self.pieces.entry((file, *piece)).or_insert(new);
            }
            let now = state.chunk(change.entry.id).map_or(&[][..], |now| &now.pieces);
            let Some(old) = before.and_then(|before| before.chunk(change.entry.id)) else {
                continue;
            };
            for piece in old.pieces.iter().filter(|piece| !now.contains(piece)) {
                if let Some(used) = self.pieces.get_mut(&(old.file(), *piece)) {
                    used.last = Some(number - 1);
                }
            }
        }
    }
}

/// Joins the ranges of adjacent manifests.
fn join_ranges(ranges: impl Iterator<Item = RestorableRange>) -> Vec<RestorableRange> {
    let mut joined: Vec<RestorableRange> = Vec::new();
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
