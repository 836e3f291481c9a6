//! [`Parts`]: splits an input into numbers, then parts that each have their length before them.
//!
//! Every input is valid: missing bytes read as zero or empty, so no mutation is wasted.

/// The unread bytes of an input.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Creates the reader of a whole input.
    pub fn new(input: &'a [u8]) -> Parts<'a> {
        Parts { rest: input }
    }

    /// Whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the remaining bytes of the input.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (head, tail) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = tail;
        head
    }

    /// Reads the next number of `N` bytes.
    pub fn number<const N: usize>(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let taken = self.take(N);
        bytes[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(bytes)
    }

    /// Reads the next part: its length as two bytes, then its bytes.
    pub fn part(&mut self) -> &'a [u8] {
        let length = self.number::<2>() as usize;
        self.take(length)
    }
}

/// Appends a part as [`Parts::part`] reads it; too long a part is cut.
pub fn put_part(input: &mut Vec<u8>, part: &[u8]) {
    let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
    input.extend_from_slice(&length.to_le_bytes());
    input.extend_from_slice(&part[..usize::from(length)]);
}
