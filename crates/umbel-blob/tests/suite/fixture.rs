//! Fixture of the tests: a simulated machine with one directory of blob files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_base::{BlobPointer, Result};
use umbel_env::{Access, File};
use umbel_sim::Sim;

/// Returns a simulated machine with an empty directory.
pub fn machine() -> Sim {
    let sim = Sim::new(1);
    sim.env().files.create_dir_all(Path::new("/blobs")).unwrap();
    sim
}

/// Path of the blob with this id.
pub fn path(id: u64) -> PathBuf {
    PathBuf::from(format!("/blobs/{id:06}.blob"))
}

/// Writes a blob.
pub fn write(sim: &Sim, id: u64, value: &[u8]) -> Result<BlobPointer> {
    let file = sim.env().files.create(&path(id))?;
    umbel_blob::write(&*file, id, value)
}

/// Opens a blob's file.
pub fn open(sim: &Sim, id: u64) -> Arc<dyn File> {
    sim.env().files.open(&path(id), Access::Read).unwrap()
}

/// Reads the value of a pointer.
pub fn read(sim: &Sim, pointer: &BlobPointer) -> Result<Vec<u8>> {
    umbel_blob::read(open(sim, pointer.id), pointer)
}

/// Returns a value of `len` bytes that differs from the value of any other seed.
pub fn value(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 251 + at * 7) as u8 ^ seed).collect()
}
