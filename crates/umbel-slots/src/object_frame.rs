//! The frame of every object: magic and version before its body, a checksum after it.

use umbel_base::checksum::checksum;

use crate::decode_error::DecodeError;

/// Format of slots, snapshots and floors that this Umbel reads and writes.
pub const SLOT_FORMAT: u8 = 2;
/// Limit of numbers and epochs, so that the next one exists as well.
pub const NUMBER_LIMIT: u64 = 1 << 63;

/// Kind of an object, and the place that its checksum binds it to.
#[derive(Debug, Clone, Copy)]
pub struct ObjectFrame {
    /// First bytes of the object.
    pub magic: [u8; 8],
    /// Noun for messages.
    pub noun: &'static str,
    /// Offset in the checksum, which tells the kinds apart.
    pub offset: u64,
}

impl ObjectFrame {
    /// Returns the beginning of an object, after which its body follows.
    pub fn begin(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.push(SLOT_FORMAT);
        out
    }

    /// Returns the whole object with this number.
    pub fn seal(&self, number: u64, mut out: Vec<u8>) -> Vec<u8> {
        let sum = checksum(number, self.offset, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Returns the body of the object with this number.
    ///
    /// # Errors
    /// The reason why the bytes are no such object.
    pub fn open<'a>(&self, number: u64, bytes: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        let wrong = |reason: &str| DecodeError::Wrong(reason.to_owned());
        let (head, sum) =
            bytes.split_last_chunk::<8>().ok_or_else(|| wrong("the object is cut short"))?;
        let rest = head.strip_prefix(&self.magic).and_then(<[u8]>::split_first);
        let (version, body) =
            rest.ok_or_else(|| DecodeError::Wrong(format!("the object is no {}", self.noun)))?;
        if checksum(number, self.offset, head) != u64::from_le_bytes(*sum) {
            return Err(wrong("the object does not match its checksum and its number"));
        }
        match *version {
            SLOT_FORMAT => Ok(body),
            newer if newer > SLOT_FORMAT => Err(DecodeError::Newer(format!("format {newer}"))),
            older => Err(DecodeError::Wrong(format!(
                "it has format {older}, and this Umbel reads format {SLOT_FORMAT} only"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: ObjectFrame = ObjectFrame { magic: *b"UmbelTst", noun: "test", offset: 9 };

    #[test]
    fn other_versions_are_refused_by_their_number() {
        let open = |version: u8| {
            let mut out = FRAME.begin();
            out[8] = version;
            FRAME.open(5, &FRAME.seal(5, out)).map(<[u8]>::to_vec)
        };
        assert_eq!(open(2), Ok(Vec::new()));
        for (version, reason) in [
            (0, "it has format 0, and this Umbel reads format 2 only"),
            (1, "it has format 1, and this Umbel reads format 2 only"),
            (3, "a newer Umbel wrote it (format 3); use that Umbel"),
            (255, "a newer Umbel wrote it (format 255); use that Umbel"),
        ] {
            assert_eq!(open(version).expect_err("another version").to_string(), reason);
        }
    }

    #[test]
    fn objects_without_a_version_are_refused() {
        let error = FRAME.open(5, &FRAME.seal(5, FRAME.magic.to_vec())).expect_err("no version");
        assert_eq!(error.to_string(), "the object is no test");
    }
}
