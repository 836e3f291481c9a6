//! The frame of every object: magic and version before its body, a checksum after it.

use umbel_base::checksum::checksum;

const VERSION: u8 = 1;

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
        out.push(VERSION);
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
    pub fn open<'a>(&self, number: u64, bytes: &'a [u8]) -> Result<&'a [u8], String> {
        let (head, sum) = bytes.split_last_chunk::<8>().ok_or("the object is cut short")?;
        let rest = head.strip_prefix(&self.magic).filter(|rest| !rest.is_empty());
        let rest = rest.ok_or_else(|| format!("the object is no {}", self.noun))?;
        if checksum(number, self.offset, head) != u64::from_le_bytes(*sum) {
            return Err("the object does not match its checksum and its number".into());
        }
        match rest[0] > VERSION {
            true => Err(format!("a newer Umbel wrote it (format {}); use that Umbel", rest[0])),
            false => Ok(&rest[1..]),
        }
    }
}
