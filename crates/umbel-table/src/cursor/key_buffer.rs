//! The key on which a cursor is, composed of the group's prefix and the entry's suffix.
//!
//! A step within a group replaces only the suffix. Keys of usual length are in an array inside the
//! cursor. The suffixes of such keys are copied by a few moves of fixed length, without a call or
//! an allocation. Longer keys are in a vector.

/// Number of bytes of the array.
const INLINE: usize = 96;
/// Suffixes up to this length are copied by moves of fixed length, which always write this many
/// bytes.
const MOVED: usize = 32;

/// A key, and how much of it is the prefix of its group.
#[derive(Debug, Clone)]
pub(crate) struct KeyBuffer {
    inline: [u8; INLINE],
    len: usize,
    prefix_len: usize,
    /// Whether the key is in `long`. Further keys of its group are then in `long`, too.
    is_long: bool,
    long: Vec<u8>,
}

impl Default for KeyBuffer {
    fn default() -> KeyBuffer {
        KeyBuffer { inline: [0; INLINE], len: 0, prefix_len: 0, is_long: false, long: Vec::new() }
    }
}

impl KeyBuffer {
    /// Begins a group: the key is the group's prefix until a suffix is set.
    pub(crate) fn start_group(&mut self, prefix: &[u8]) {
        self.prefix_len = prefix.len();
        self.len = prefix.len();
        self.is_long = prefix.len() > INLINE - MOVED;
        if self.is_long {
            self.long.clear();
            self.long.extend_from_slice(prefix);
        } else {
            self.inline[..prefix.len()].copy_from_slice(prefix);
        }
    }

    /// Replaces the bytes after the prefix by `suffix`. `around` begins with the suffix; if it is
    /// long enough, the suffix is copied together with the bytes after it.
    #[inline]
    pub(crate) fn set_suffix(&mut self, suffix: &[u8], around: &[u8]) {
        self.len = self.prefix_len + suffix.len();
        let target = self.inline.get_mut(self.prefix_len..).and_then(<[u8]>::first_chunk_mut);
        match (target, around.first_chunk::<MOVED>()) {
            (Some(target), Some(moved)) if suffix.len() <= MOVED && !self.is_long => {
                *target = *moved
            }
            _ => self.set_any_suffix(suffix),
        }
    }

    /// Replaces the bytes after the prefix by the first `len` bytes of `moved`, if the key is in
    /// the array and fits. Otherwise returns `false` and changes nothing.
    #[inline(always)]
    pub(crate) fn move_suffix(&mut self, moved: &[u8; MOVED], len: usize) -> bool {
        let target = self.inline.get_mut(self.prefix_len..).and_then(<[u8]>::first_chunk_mut);
        match target {
            Some(target) if len <= MOVED && !self.is_long => *target = *moved,
            _ => return false,
        }
        self.len = self.prefix_len + len;
        true
    }

    /// Returns the head of a suffix of `len` bytes: its first eight bytes, filled up with zeros.
    #[inline(always)]
    pub(crate) fn head_of_moved(moved: &[u8; MOVED], len: usize) -> u64 {
        let head = moved.first_chunk().map_or(0, |head| u64::from_be_bytes(*head));
        head & !u64::MAX.checked_shr(8 * len as u32).unwrap_or(0)
    }

    #[inline(never)]
    fn set_any_suffix(&mut self, suffix: &[u8]) {
        if !self.is_long {
            if let Some(target) = self.inline.get_mut(self.prefix_len..self.len) {
                target.copy_from_slice(suffix);
                return;
            }
            self.is_long = true;
            self.long.clear();
            self.long.extend_from_slice(&self.inline[..self.prefix_len]);
        }
        self.long.truncate(self.prefix_len);
        self.long.extend_from_slice(suffix);
    }

    /// Returns the key.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        let key = if self.is_long { &self.long[..] } else { &self.inline[..] };
        key.get(..self.len).unwrap_or_default()
    }

    /// Returns the prefix of the key's group.
    #[inline]
    pub(crate) fn prefix(&self) -> &[u8] {
        self.key().get(..self.prefix_len).unwrap_or_default()
    }

    /// Returns the rest of the key after the group's prefix.
    #[inline]
    pub(crate) fn suffix(&self) -> &[u8] {
        self.key().get(self.prefix_len..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::head64;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_of_any_length_are_put_together(
            groups in proptest::collection::vec(
                (0usize..130, proptest::collection::vec((0usize..130, 0usize..40), 1..6)),
                1..6,
            ),
        ) {
            let bytes: Vec<u8> = (0..=255).collect();
            let mut buffer = KeyBuffer::default();
            for (prefix_len, suffixes) in groups {
                let prefix = &bytes[..prefix_len];
                buffer.start_group(prefix);
                for (len, extra) in suffixes {
                    let around = &bytes[5..5 + len + extra];
                    buffer.set_suffix(&around[..len], around);
                    prop_assert_eq!(buffer.key(), [prefix, &around[..len]].concat());
                    prop_assert_eq!(buffer.suffix(), &around[..len]);
                    prop_assert_eq!(buffer.prefix(), prefix);
                    let moved = bytes[9..].first_chunk().unwrap();
                    let head = KeyBuffer::head_of_moved(moved, len.min(MOVED));
                    prop_assert_eq!(head, head64(&moved[..len.min(MOVED)]));
                    if buffer.move_suffix(moved, len) {
                        prop_assert_eq!(buffer.key(), [prefix, &moved[..len]].concat());
                    } else {
                        prop_assert!(prefix_len > INLINE - MOVED || len > MOVED || buffer.is_long);
                        prop_assert_eq!(buffer.suffix(), &around[..len]);
                    }
                }
            }
        }
    }
}
