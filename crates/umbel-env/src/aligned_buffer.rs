//! [`AlignedBuffer`]: memory that can be written to a file past the page cache.

/// Alignment of addresses, lengths and offsets of direct writes, which is enough for every common
/// device.
pub const DIRECT_ALIGNMENT: usize = 4096;

/// Buffer of bytes that start at a multiple of [`DIRECT_ALIGNMENT`]. The memory of a buffer never
/// moves.
#[derive(Debug)]
pub struct AlignedBuffer {
    memory: Vec<u8>,
    /// Offset of the bytes in `memory`.
    start: usize,
    len: usize,
    capacity: usize,
}

impl AlignedBuffer {
    /// Creates an empty buffer for `capacity` bytes, rounded up to a nonzero multiple of the
    /// alignment.
    pub fn new(capacity: usize) -> AlignedBuffer {
        let capacity = capacity.max(1).next_multiple_of(DIRECT_ALIGNMENT);
        let memory = vec![0; capacity + DIRECT_ALIGNMENT];
        // Where this cannot be said, which is allowed, direct writes are refused and nothing else.
        let start = memory.as_ptr().align_offset(DIRECT_ALIGNMENT);
        let start = if start < DIRECT_ALIGNMENT { start } else { 0 };
        AlignedBuffer { memory, start, len: 0, capacity }
    }

    /// Number of bytes that fit into the buffer.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of bytes in the buffer.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes in the buffer.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    /// Appends as many of `bytes` as fit, and returns how many fitted.
    #[inline]
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.capacity - self.len);
        let at = self.start + self.len;
        self.memory[at..at + taken].copy_from_slice(&bytes[..taken]);
        self.len += taken;
        taken
    }

    /// Appends zeros up to the next multiple of the alignment.
    pub fn pad(&mut self) {
        let padded = self.len.next_multiple_of(DIRECT_ALIGNMENT);
        self.memory[self.start + self.len..self.start + padded].fill(0);
        self.len = padded;
    }

    /// Empties the buffer.
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_aligned_and_padded_with_zeros() {
        let mut buffer = AlignedBuffer::new(5000);
        assert_eq!((buffer.capacity(), buffer.is_empty()), (8192, true));
        assert_eq!(buffer.fill(&[7; 5000]), 5000);
        assert!(buffer.bytes().as_ptr().addr().is_multiple_of(DIRECT_ALIGNMENT));
        assert_eq!(buffer.fill(&[8; 5000]), 3192);
        assert_eq!(buffer.fill(&[9]), 0);
        assert!(buffer.bytes()[..5000].iter().all(|byte| *byte == 7));
        buffer.clear();
        assert_eq!(buffer.fill(&[1]), 1);
        buffer.pad();
        assert_eq!(buffer.len(), DIRECT_ALIGNMENT);
        assert!(buffer.bytes()[1..].iter().all(|byte| *byte == 0));
    }
}
