//! The file `CURRENT`: names the valid manifest, and says how many bytes of the manifest must be
//! present.
//!
//! FORMAT: `docs/formats/current.md`. `CURRENT` has 64 bytes and is replaced as a whole.

use std::path::Path;
use std::sync::Arc;

use umbel_base::{Decoder, Error, Result, checksum};
use umbel_env::{Access, Env, File, FileSystem};
use umbel_log::Seal;

use crate::fs::filenames;

const MAGIC: [u8; 8] = *b"UMBELCUR";
const VERSION: u32 = 1;
const BYTES: usize = 64;
/// FORMAT: the file id to which the checksum of `CURRENT` is bound; no file of a store has this id.
const CHECKSUM_ID: u64 = u64::MAX;

/// Content of `CURRENT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurrentFile {
    /// Id of the valid manifest.
    pub manifest_id: u64,
    /// After a clean close: the length of the manifest and the checksum over its records.
    pub sealed: Option<Seal>,
    /// Number of bytes of the manifest that were durable when `CURRENT` was written.
    pub durable: u64,
}

impl CurrentFile {
    fn encode(&self) -> [u8; BYTES] {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(u32::from(self.sealed.is_some()).to_le_bytes());
        bytes.extend(self.manifest_id.to_le_bytes());
        bytes.extend(self.durable.to_le_bytes());
        let sealed = self.sealed.unwrap_or(Seal { len: 0, checksum: 0 });
        bytes.extend(sealed.len.to_le_bytes());
        bytes.extend(sealed.checksum.to_le_bytes());
        bytes.extend([0; 8]);
        let sum = checksum::checksum(CHECKSUM_ID, 0, &bytes);
        bytes.extend(sum.to_le_bytes());
        let mut out = [0; BYTES];
        out.copy_from_slice(&bytes);
        out
    }

    fn decode(bytes: &[u8]) -> std::result::Result<CurrentFile, CurrentError> {
        let mut decoder = Decoder::new(bytes);
        if bytes.len() != BYTES || decoder.array() != Some(MAGIC) {
            return Err(CurrentError::Damaged("CURRENT is not 64 bytes that begin with UMBELCUR"));
        }
        let (body, sum) = bytes.split_at(BYTES - 8);
        if checksum::checksum(CHECKSUM_ID, 0, body).to_le_bytes() != sum {
            return Err(CurrentError::Damaged("the checksum of CURRENT does not match its bytes"));
        }
        let fields = (|| {
            let version = decoder.u32()?;
            let sealed = decoder.u32()?;
            let (manifest_id, durable) = (decoder.u64()?, decoder.u64()?);
            let seal = Seal { len: decoder.u64()?, checksum: decoder.u64()? };
            let sealed = (sealed == 1).then_some(seal);
            Some((version, CurrentFile { manifest_id, sealed, durable }))
        })();
        match fields {
            // Each pointer has one encoding; anything else was not written by this version.
            Some((VERSION, current)) if current.encode() == bytes => Ok(current),
            Some((version, _)) if version > VERSION => Err(CurrentError::Newer(version)),
            _ => {
                Err(CurrentError::Damaged("the fields of CURRENT have values that no Umbel writes"))
            }
        }
    }

    /// Writes and syncs the file that is to be renamed to `CURRENT`.
    pub fn prepare(&self, env: &Env, folder: &Path) -> Result<Arc<dyn File>> {
        let source = folder.join(filenames::CURRENT_NEW);
        if env.files.exists(&source)? {
            env.files.remove_file(&source)?;
        }
        let file = env.files.create(&source)?;
        file.write_all_at(&self.encode(), 0)?;
        file.sync()?;
        Ok(file)
    }

    /// Reads `CURRENT`; `None` if it does not exist.
    pub fn read(files: &dyn FileSystem, folder: &Path) -> Result<Option<CurrentFile>> {
        let path = folder.join(filenames::CURRENT);
        if !files.exists(&path)? {
            return Ok(None);
        }
        let file = files.open(&path, Access::Read)?;
        let mut bytes = [0; BYTES + 1];
        let len = file.read_at(&mut bytes, 0)?;
        match CurrentFile::decode(bytes.get(..len).unwrap_or_default()) {
            Ok(current) => Ok(Some(current)),
            Err(CurrentError::Damaged(reason)) => Err(Error::corruption(&path, 0, reason)),
            Err(CurrentError::Newer(version)) => Err(Error::invalid(format!(
                "{} has format version {version}, but this Umbel reads up to {VERSION}; open the \
                 store with a newer Umbel",
                path.display()
            ))),
        }
    }
}

enum CurrentError {
    Damaged(&'static str),
    Newer(u32),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::format_examples;

    fn refusal(bytes: &[u8]) -> Option<CurrentError> {
        CurrentFile::decode(bytes).err()
    }

    /// Returns the bytes of `current` with a change, and with a checksum that matches.
    fn forged(current: &CurrentFile, change: impl FnOnce(&mut [u8])) -> [u8; BYTES] {
        let mut bytes = current.encode();
        change(&mut bytes);
        let sum = checksum::checksum(CHECKSUM_ID, 0, &bytes[..BYTES - 8]);
        bytes[BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    const OPEN: CurrentFile = CurrentFile { manifest_id: 7, sealed: None, durable: 128 };

    #[test]
    fn format_document_matches_encoding() {
        format_examples::assert_shows("current.md", "open", &OPEN.encode());
        let sealed = Some(Seal { len: 512, checksum: 0x5424_a36d_9f89_688e });
        let closed = CurrentFile { manifest_id: 7, sealed, durable: 512 };
        format_examples::assert_shows("current.md", "sealed", &closed.encode());
    }

    #[test]
    fn newer_version_is_distinguished_from_damage() {
        let newer = forged(&OPEN, |bytes| bytes[8] = 2);
        assert!(matches!(refusal(&newer), Some(CurrentError::Newer(2))));
        let older = forged(&OPEN, |bytes| bytes[8] = 0);
        assert!(matches!(refusal(&older), Some(CurrentError::Damaged(_))));
        let sim = umbel_sim::Sim::new(1);
        let (env, folder) = (sim.env(), Path::new("/store"));
        env.files.create_dir_all(folder).unwrap();
        OPEN.prepare(&env, folder).unwrap();
        env.files
            .rename(&folder.join(filenames::CURRENT_NEW), &folder.join(filenames::CURRENT))
            .unwrap();
        sim.replace(folder.join(filenames::CURRENT), &newer);
        let error = CurrentFile::read(&*env.files, folder).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
        let message = error.to_string();
        assert!(
            message.contains("format version 2") && message.contains("a newer Umbel"),
            "{message}"
        );
        sim.replace(folder.join(filenames::CURRENT), &newer[..63]);
        assert!(matches!(CurrentFile::read(&*env.files, folder), Err(Error::Corruption { .. })));
        sim.replace(folder.join(filenames::CURRENT), &[&OPEN.encode()[..], &[0]].concat());
        assert!(matches!(CurrentFile::read(&*env.files, folder), Err(Error::Corruption { .. })));
    }

    #[test]
    fn invalid_contents_are_rejected() {
        assert!(CurrentFile::decode(&forged(&OPEN, |_| ())).is_ok());
        // Another flag, a seal without its flag, reserved bytes.
        for (at, byte) in [(12, 2), (13, 1), (32, 1), (40, 1), (48, 1), (55, 1)] {
            let bytes = forged(&OPEN, |bytes| bytes[at] = byte);
            assert!(matches!(refusal(&bytes), Some(CurrentError::Damaged(_))), "byte {at}");
        }
    }

    #[test]
    fn every_flipped_byte_is_detected() {
        let sealed = Some(Seal { len: 512, checksum: 99 });
        let current = CurrentFile { manifest_id: 7, sealed, durable: 128 };
        let bytes = current.encode();
        assert_eq!(CurrentFile::decode(&bytes).ok(), Some(current));
        for at in 0..bytes.len() {
            for mask in [1, 0x80, 0xff] {
                let mut damaged = bytes;
                damaged[at] ^= mask;
                assert!(CurrentFile::decode(&damaged).is_err(), "byte {at}");
            }
            assert!(CurrentFile::decode(&bytes[..at]).is_err());
        }
    }
}
