//! Values with a given compression ratio: slices of one pool, so that generating a value costs no
//! time.

use std::sync::Arc;

use crate::bench::key_generator::Random;

const POOL_BYTES_MIN: usize = 1 << 20;
const FRAGMENT_BYTES: usize = 100;

/// Bytes from which values are cut; all threads share the pool.
#[derive(Debug, Clone)]
pub struct ValuePool {
    bytes: Arc<[u8]>,
}

impl ValuePool {
    /// Creates a pool of at least 1 MiB, more than any compression window. The pool consists of
    /// pieces of 100 bytes; each piece repeats random printable characters so that it compresses to
    /// `ratio`.
    pub fn new(ratio: f64, value_size_max: usize) -> ValuePool {
        let mut random = Random::new(301);
        let unique = ((FRAGMENT_BYTES as f64 * ratio) as usize).clamp(1, FRAGMENT_BYTES);
        let size = POOL_BYTES_MIN.max(value_size_max);
        let mut bytes = Vec::with_capacity(size + FRAGMENT_BYTES);
        while bytes.len() < size {
            let start = bytes.len();
            bytes.extend((0..unique).map(|_| b' ' + random.below(95) as u8));
            for index in unique..FRAGMENT_BYTES {
                bytes.push(bytes[start + index % unique]);
            }
        }
        ValuePool { bytes: bytes.into() }
    }

    /// Returns the values for one thread, which begin at another place of the pool than those of
    /// other threads.
    pub fn values(&self, thread: usize) -> ValueGenerator {
        let offset = thread.wrapping_mul(7919 * FRAGMENT_BYTES) % self.bytes.len();
        ValueGenerator { pool: self.clone(), offset }
    }
}

/// One thread's cursor over the pool.
#[derive(Debug, Clone)]
pub struct ValueGenerator {
    pool: ValuePool,
    offset: usize,
}

impl ValueGenerator {
    /// Returns the next value of `len` bytes. REQUIRES: `len` is at most the pool's
    /// `value_size_max`.
    #[inline]
    pub fn next(&mut self, len: usize) -> &[u8] {
        if self.offset + len > self.pool.bytes.len() {
            self.offset = 0;
        }
        let start = self.offset;
        self.offset += len;
        &self.pool.bytes[start..start + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_repeat_by_compression_ratio() {
        let pool = ValuePool::new(0.5, 0);
        assert_eq!(pool.bytes[..50], pool.bytes[50..100]);
        assert_ne!(pool.bytes[..50], pool.bytes[100..150]);
        assert!(pool.bytes.iter().all(|byte| (b' '..=b'~').contains(byte)));
        assert!(pool.bytes.len() >= POOL_BYTES_MIN);
        assert_eq!(ValuePool::new(0.0, 0).bytes[..100], [ValuePool::new(0.0, 0).bytes[0]; 100]);
    }

    #[test]
    fn values_wrap_at_the_end_of_the_pool() {
        let pool = ValuePool::new(0.5, 3 << 20);
        let mut values = pool.values(3);
        for _ in 0..5 {
            assert_eq!(values.next(3 << 20).len(), 3 << 20);
        }
        assert_eq!(values.next(0), b"");
    }
}
