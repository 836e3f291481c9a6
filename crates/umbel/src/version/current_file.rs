//! The file `CURRENT`: which manifest counts, and how much of it must be there.
//!
//! FORMAT: `docs/formats/current.md`. 64 bytes, replaced as a whole.

use std::path::Path;
use std::sync::Arc;

use umbel_base::{Decoder, Error, Result, checksum};
use umbel_env::{Access, Env, File, FileSystem};
use umbel_log::Sealed;

use crate::names;

const MAGIC: [u8; 8] = *b"UMBELCUR";
const VERSION: u32 = 1;
const BYTES: usize = 64;
/// FORMAT: the place the checksum is bound to; no file of a store has this id.
const CHECKSUM_ID: u64 = u64::MAX;

/// What `CURRENT` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current {
    /// The manifest's id.
    pub manifest_id: u64,
    /// After a clean close: where the manifest ends and the checksum over its records.
    pub sealed: Option<Sealed>,
    /// Bytes of the manifest that were durable when this was written.
    pub durable: u64,
}

impl Current {
    fn encode(&self) -> [u8; BYTES] {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(u32::from(self.sealed.is_some()).to_le_bytes());
        bytes.extend(self.manifest_id.to_le_bytes());
        bytes.extend(self.durable.to_le_bytes());
        let sealed = self.sealed.unwrap_or(Sealed { len: 0, checksum: 0 });
        bytes.extend(sealed.len.to_le_bytes());
        bytes.extend(sealed.checksum.to_le_bytes());
        bytes.extend([0; 8]);
        let sum = checksum::checksum(CHECKSUM_ID, 0, &bytes);
        bytes.extend(sum.to_le_bytes());
        let mut out = [0; BYTES];
        out.copy_from_slice(&bytes);
        out
    }

    fn decode(bytes: &[u8]) -> std::result::Result<Current, Refusal> {
        let mut decoder = Decoder::new(bytes);
        if bytes.len() != BYTES || decoder.array() != Some(MAGIC) {
            return Err(Refusal::Damaged("it is not 64 bytes that begin with UMBELCUR"));
        }
        let (body, sum) = bytes.split_at(BYTES - 8);
        if checksum::checksum(CHECKSUM_ID, 0, body).to_le_bytes() != sum {
            return Err(Refusal::Damaged("its checksum does not fit its bytes"));
        }
        let fields = (|| {
            let version = decoder.u32()?;
            let sealed = decoder.u32()?;
            let (manifest_id, durable) = (decoder.u64()?, decoder.u64()?);
            let seal = Sealed { len: decoder.u64()?, checksum: decoder.u64()? };
            let sealed = (sealed == 1).then_some(seal);
            Some((version, Current { manifest_id, sealed, durable }))
        })();
        match fields {
            // Each pointer has one encoding; anything else was not written by this version.
            Some((VERSION, current)) if current.encode() == bytes => Ok(current),
            Some((version, _)) if version > VERSION => Err(Refusal::Newer(version)),
            _ => Err(Refusal::Damaged("its fields say what no Umbel writes")),
        }
    }

    /// Writes the file that is to be `CURRENT` next, and makes its bytes durable.
    pub fn prepare(&self, env: &Env, folder: &Path) -> Result<Arc<dyn File>> {
        let source = folder.join(names::CURRENT_NEW);
        if env.files.exists(&source)? {
            env.files.remove_file(&source)?;
        }
        let file = env.files.create(&source)?;
        file.write_all_at(&self.encode(), 0)?;
        file.sync()?;
        Ok(file)
    }

    /// Reads `CURRENT`; `None` where there is none.
    pub fn read(files: &dyn FileSystem, folder: &Path) -> Result<Option<Current>> {
        let path = folder.join(names::CURRENT);
        if !files.exists(&path)? {
            return Ok(None);
        }
        let file = files.open(&path, Access::Read)?;
        let mut bytes = [0; BYTES + 1];
        let len = file.read_at(&mut bytes, 0)?;
        match Current::decode(bytes.get(..len).unwrap_or_default()) {
            Ok(current) => Ok(Some(current)),
            Err(Refusal::Damaged(reason)) => Err(Error::corruption(&path, 0, reason)),
            Err(Refusal::Newer(version)) => Err(Error::invalid(format!(
                "{} has format version {version}, but this Umbel reads up to {VERSION}; open the \
                 store with a newer Umbel",
                path.display()
            ))),
        }
    }
}

enum Refusal {
    Damaged(&'static str),
    Newer(u32),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page;

    fn refusal(bytes: &[u8]) -> Option<Refusal> {
        Current::decode(bytes).err()
    }

    /// The bytes with a change, and a checksum that fits them.
    fn forged(current: &Current, change: impl FnOnce(&mut [u8])) -> [u8; BYTES] {
        let mut bytes = current.encode();
        change(&mut bytes);
        let sum = checksum::checksum(CHECKSUM_ID, 0, &bytes[..BYTES - 8]);
        bytes[BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    const OPEN: Current = Current { manifest_id: 7, sealed: None, durable: 128 };

    #[test]
    fn the_page_shows_the_bytes() {
        page::assert_shows("current.md", "open", &OPEN.encode());
        let sealed = Some(Sealed { len: 512, checksum: 0x5424_a36d_9f89_688e });
        let closed = Current { manifest_id: 7, sealed, durable: 512 };
        page::assert_shows("current.md", "sealed", &closed.encode());
    }

    #[test]
    fn a_newer_version_is_told_from_damage() {
        let newer = forged(&OPEN, |bytes| bytes[8] = 2);
        assert!(matches!(refusal(&newer), Some(Refusal::Newer(2))));
        let older = forged(&OPEN, |bytes| bytes[8] = 0);
        assert!(matches!(refusal(&older), Some(Refusal::Damaged(_))));
        let sim = umbel_sim::Sim::new(1);
        let (env, folder) = (sim.env(), Path::new("/store"));
        env.files.create_dir_all(folder).unwrap();
        OPEN.prepare(&env, folder).unwrap();
        env.files.rename(&folder.join(names::CURRENT_NEW), &folder.join(names::CURRENT)).unwrap();
        sim.replace(folder.join(names::CURRENT), &newer);
        let error = Current::read(&*env.files, folder).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
        let said = error.to_string();
        assert!(said.contains("format version 2") && said.contains("a newer Umbel"), "{said}");
        sim.replace(folder.join(names::CURRENT), &newer[..63]);
        assert!(matches!(Current::read(&*env.files, folder), Err(Error::Corruption { .. })));
        sim.replace(folder.join(names::CURRENT), &[&OPEN.encode()[..], &[0]].concat());
        assert!(matches!(Current::read(&*env.files, folder), Err(Error::Corruption { .. })));
    }

    #[test]
    fn what_no_umbel_writes_is_refused() {
        assert!(Current::decode(&forged(&OPEN, |_| ())).is_ok());
        // Another flag, a seal without its flag, reserved bytes.
        for (at, byte) in [(12, 2), (13, 1), (32, 1), (40, 1), (48, 1), (55, 1)] {
            let bytes = forged(&OPEN, |bytes| bytes[at] = byte);
            assert!(matches!(refusal(&bytes), Some(Refusal::Damaged(_))), "byte {at}");
        }
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let sealed = Some(Sealed { len: 512, checksum: 99 });
        let current = Current { manifest_id: 7, sealed, durable: 128 };
        let bytes = current.encode();
        assert_eq!(Current::decode(&bytes).ok(), Some(current));
        for at in 0..bytes.len() {
            for mask in [1, 0x80, 0xff] {
                let mut damaged = bytes;
                damaged[at] ^= mask;
                assert!(Current::decode(&damaged).is_err(), "byte {at}");
            }
            assert!(Current::decode(&bytes[..at]).is_err());
        }
    }
}
