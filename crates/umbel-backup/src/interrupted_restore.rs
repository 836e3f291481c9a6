//! The manifest of an interrupted restore, so that the same restore can resume beside a running
//! backup, which has newer manifests by then.

use crate::backup_error::BackupResult;
use crate::manifest::{Manifest, ManifestContents};
use crate::manifest_chain::ManifestChain;

/// Word before the manifest's number in the marker of a restore.
const BEFORE_NUMBER: &str = ", manifest ";

/// Returns the manifest whose restore `marker` marks. `marker_of` returns the marker of a manifest.
/// `None` if the marker is that of another restore, or the manifest does not count any more.
pub fn interrupted_manifest<C: ManifestContents>(
    chain: &ManifestChain<'_, C>,
    marker: &[u8],
    marker_of: impl Fn(&Manifest<C>) -> Vec<u8>,
) -> BackupResult<Option<Manifest<C>>> {
    let text = String::from_utf8_lossy(marker);
    let number = text.split_once(BEFORE_NUMBER).map(|(_, after)| after);
    let number = number.and_then(|after| after.split(' ').next()?.parse::<u64>().ok());
    let counts = |number: &u64| (chain.first..=chain.newest.number).contains(number);
    let Some(number) = number.filter(counts) else { return Ok(None) };
    let manifest = chain.manifest(number)?;
    Ok(Some(manifest).filter(|manifest| marker_of(manifest) == marker))
}
