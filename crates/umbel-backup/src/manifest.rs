//! [`Manifest`]: a numbered object that states what a backup has, or what changed since the
//! manifest before it.
//!
//! FORMAT: `docs/formats/object-backup.md`.

use std::fmt::Debug;

use umbel_base::checksum::checksum;
use umbel_base::{Decoder, varint};
use umbel_env::ObjectName;

use crate::backup_kind::BackupKind;
use crate::piece::{Piece, SourceFile};

const VERSION: u8 = 1;
const MAGIC_BYTES: usize = 8;
/// Prefix of the names of manifests.
pub const MANIFEST_PREFIX: &str = "manifests/";
/// Maximum length of a manifest; it bounds the memory that an answer can take.
pub const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// Returns the name of the manifest with this number.
pub fn manifest_name(number: u64) -> ObjectName {
    let name = format!("{MANIFEST_PREFIX}{number:020}");
    ObjectName::new(name).expect("digits are a name")
}

/// Returns the number in the name of an object below `prefix`; `None` if it is no such name.
pub fn number_of_name(prefix: &str, name: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    let is_number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// Statement of a manifest about a store of one kind.
pub trait ManifestContents: Clone + Debug {
    /// Kind of the store.
    const KIND: BackupKind;
    /// All that a backup has after one manifest.
    type State: Clone + Debug;

    /// Whether the manifest states everything, instead of the changes since the one before.
    fn is_full(&self) -> bool;
    /// Position or sequence number up to which the backup has everything.
    fn through(&self) -> u64;
    /// Time of the state by the writer's wall clock, for a manifest that was written at
    /// `written_micros`, in microseconds since 1970.
    fn time_micros(&self, written_micros: u64) -> u64 {
        written_micros
    }
    /// Appends the bytes of the contents.
    fn encode(&self, out: &mut Vec<u8>);
    /// Decodes the output of [`ManifestContents::encode`]; `None` where it is malformed.
    fn decode(decoder: &mut Decoder<'_>) -> Option<Self>;
    /// Changes `state`, that of the manifest before, to the state of this manifest. Returns `None`
    /// if the manifest does not fit the state. A full manifest needs no state.
    fn apply(&self, state: Option<Self::State>) -> Option<Self::State>;
    /// Returns the contents that lead from one state to another one, or the full contents.
    fn between(before: Option<&Self::State>, state: &Self::State) -> Self;
    /// Whether a manifest of the second state would add nothing to a backup with the first one.
    fn is_same(before: &Self::State, state: &Self::State) -> bool;
    /// Whether a store can be restored from a state.
    fn is_restorable(_state: &Self::State) -> bool {
        true
    }
    /// Returns the pieces of a state.
    fn pieces(state: &Self::State) -> Vec<(SourceFile, Piece)>;
    /// Returns the pieces that the manifest adds; all pieces of a full manifest.
    fn added(&self) -> Vec<(SourceFile, Piece)>;
    /// Returns the pieces of the state before the manifest that are not in its state.
    fn dropped(&self, before: &Self::State, state: &Self::State) -> Vec<(SourceFile, Piece)>;
    /// Returns the name of a piece.
    fn name(file: SourceFile, piece: &Piece) -> ObjectName;
}

/// A manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest<C> {
    /// Number of the manifest; the first one has 1.
    pub number: u64,
    /// Random id of the manifest.
    pub uid: [u8; 16],
    /// Id of the manifest before this one; zeros in the first one.
    pub previous: [u8; 16],
    /// Random id of the backup, from the object `BACKUP`.
    pub backup: [u8; 16],
    /// Random id of the process that wrote the manifest.
    pub writer: [u8; 16],
    /// The writer's wall clock, in microseconds since 1970.
    pub wall_micros: u64,
    /// The newest time that the object store had stated to the writer, in microseconds since 1970;
    /// 0 if it stated none.
    pub store_micros: u64,
    /// Statement about the store.
    pub contents: C,
}

impl<C: ManifestContents> Manifest<C> {
    /// Returns the bytes of the object.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = C::KIND.manifest_magic().to_vec();
        out.push(VERSION);
        varint::put_u64(&mut out, self.number);
        for id in [&self.uid, &self.previous, &self.backup, &self.writer] {
            out.extend_from_slice(id);
        }
        varint::put_u64(&mut out, self.wall_micros);
        varint::put_u64(&mut out, self.store_micros);
        self.contents.encode(&mut out);
        let sum = checksum(self.number, 0, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    fn decode_body(bytes: &[u8]) -> Option<Manifest<C>> {
        let mut decoder = Decoder::new(bytes);
        let number = decoder.varint().filter(|number| *number > 0)?;
        let (uid, previous) = (decoder.array()?, decoder.array()?);
        let (backup, writer) = (decoder.array()?, decoder.array()?);
        let (wall_micros, store_micros) = (decoder.varint()?, decoder.varint()?);
        let contents = C::decode(&mut decoder)?;
        decoder.is_done().then_some(Manifest {
            number,
            uid,
            previous,
            backup,
            writer,
            wall_micros,
            store_micros,
            contents,
        })
    }

    /// Decodes the object of the manifest with this number.
    ///
    /// # Errors
    /// The reason why the bytes are not this manifest.
    pub fn decode(bytes: &[u8], number: u64) -> Result<Manifest<C>, String> {
        let Some((head, sum)) = bytes.split_last_chunk::<8>() else {
            return Err("the manifest is cut short".into());
        };
        if !head.starts_with(&C::KIND.manifest_magic()) || head.len() <= MAGIC_BYTES {
            return Err(format!(
                "the object is not the manifest of a backup of {}",
                C::KIND.a_store()
            ));
        }
        if checksum(number, 0, head) != u64::from_le_bytes(*sum) {
            return Err("the manifest does not match its checksum".into());
        }
        let version = head[MAGIC_BYTES];
        if version > VERSION {
            return Err(format!(
                "a newer Umbel wrote the manifest (format {version}, this Umbel reads up to \
                 {VERSION}); use the newer Umbel or a later one"
            ));
        }
        let decoded = Manifest::decode_body(&head[MAGIC_BYTES + 1..]);
        let decoded = decoded.filter(|decoded| decoded.number == number);
        decoded.ok_or_else(|| "the manifest is malformed".into())
    }
}
