//! Entries: header, key and value in one allocation of an arena, written once and then only read.

use crate::bump_arena::BumpArena;
use std::alloc::Layout;
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ptr::NonNull;
use umbel_base::limits::{KEY_BYTES_MAX, SEQUENCE_MAX, VALUE_BYTES_MAX};
use umbel_base::{SequenceNumber, ValueKind};

/// Prefetches the cache line of this address, which need not be valid.
#[inline]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing a program could notice, whatever the address; SSE, which has
    // the instruction, is part of every x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Header before the key and the value of an entry.
#[repr(C)]
pub(crate) struct EntryHeader {
    sequence: SequenceNumber,
    value_len: u32,
    /// Length of the key in 24 bits, and the kind in 8 bits. The length is at most 64 Ki, which
    /// does not fit into 16 bits.
    key_len_and_kind: u32,
}

/// Bytes of the header, after which the key starts.
const HEADER_BYTES: usize = size_of::<EntryHeader>();

/// Writes an entry into the arena.
///
/// # Panics
/// If key, value or sequence number are over the limits of `umbel_base::limits`. Callers check the
/// limits; a length that does not fit into its field would make reading the entry unsound.
pub(crate) fn write_entry(
    arena: &mut BumpArena,
    key: &[u8],
    sequence: SequenceNumber,
    kind: ValueKind,
    value: &[u8],
) -> NonNull<EntryHeader> {
    assert!(key.len() <= KEY_BYTES_MAX, "the key is longer than a key may be");
    assert!(value.len() <= VALUE_BYTES_MAX, "the value is longer than a value may be");
    assert!(sequence <= SEQUENCE_MAX, "the sequence number is larger than one may be");
    let bytes = HEADER_BYTES + key.len() + value.len();
    let layout = Layout::from_size_align(bytes, align_of::<EntryHeader>())
        .expect("limits keep an entry below half the address space");
    let piece = arena.allocate(layout);
    let header = piece.cast::<EntryHeader>();
    // SAFETY: the piece is `bytes` bytes of ours, aligned for a header, which no other thread knows
    // yet. Header, key and value follow one another inside it. `key` and `value` do not overlap a
    // piece that was free until now.
    unsafe {
        header.write(EntryHeader {
            sequence,
            value_len: value.len() as u32,
            key_len_and_kind: (key.len() as u32) << 8 | u32::from(kind as u8),
        });
        let start = piece.add(HEADER_BYTES);
        start.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
        let value_start = start.add(key.len());
        value_start.copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
    }
    header
}

/// A position in internal order for which a search looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeekKey<'k> {
    /// The key of the position.
    pub(crate) key: &'k [u8],
    /// The sequence number; for one key, greater sequence numbers come first.
    pub(crate) sequence: SequenceNumber,
}

/// An entry in an arena that outlives `'a`.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    header: NonNull<EntryHeader>,
    arena: PhantomData<&'a [u8]>,
}

// SAFETY: an entry is never written again after it was published, so it is as shareable as the
// `&'a [u8]` that it stands for.
unsafe impl Send for Entry<'_> {}
// SAFETY: as above.
unsafe impl Sync for Entry<'_> {}

impl<'a> Entry<'a> {
    /// Returns the entry behind a pointer.
    ///
    /// # Safety
    /// `header` came from a call of [`write_entry`] that happened before this call, and the arena
    /// is not dropped during `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw(header: NonNull<EntryHeader>) -> Entry<'a> {
        Entry { header, arena: PhantomData }
    }

    /// Returns the pointer that [`Entry::from_raw`] takes.
    #[inline]
    pub(crate) fn as_raw(self) -> NonNull<EntryHeader> {
        self.header
    }

    #[inline]
    fn header(self) -> &'a EntryHeader {
        // SAFETY: `from_raw` was promised a header written before and not dropped during `'a`;
        // nothing writes to it again.
        unsafe { self.header.as_ref() }
    }

    /// Sequence number of the entry.
    #[inline]
    pub(crate) fn sequence(self) -> SequenceNumber {
        self.header().sequence
    }

    /// Kind of the entry.
    #[inline]
    pub(crate) fn kind(self) -> ValueKind {
        ValueKind::from_u8(self.header().key_len_and_kind as u8)
            .expect("the byte was made from a kind")
    }

    /// Key of the entry.
    #[inline]
    pub(crate) fn key(self) -> &'a [u8] {
        let len = (self.header().key_len_and_kind >> 8) as usize;
        // SAFETY: `write_entry` put `len` key bytes after the header, in the same piece; the
        // pointer was derived from that piece and nothing writes to it again.
        unsafe { NonNull::slice_from_raw_parts(self.header.cast().add(HEADER_BYTES), len).as_ref() }
    }

    /// Value of the entry.
    #[inline]
    pub(crate) fn value(self) -> &'a [u8] {
        let key_len = (self.header().key_len_and_kind >> 8) as usize;
        let len = self.header().value_len as usize;
        let skip = HEADER_BYTES + key_len;
        // SAFETY: as for `key`: `len` value bytes stand after the key, in the same piece.
        unsafe { NonNull::slice_from_raw_parts(self.header.cast().add(skip), len).as_ref() }
    }

    /// Prefetches the start of the entry, which will be read soon.
    #[inline]
    pub(crate) fn prefetch(self) {
        self.prefetch_at(64 - HEADER_BYTES);
    }

    /// Prefetches the header, and the cache line of byte `at` of the key.
    #[inline]
    pub(crate) fn prefetch_at(self, at: usize) {
        let start = self.header.as_ptr().cast::<u8>().cast_const();
        prefetch(start);
        prefetch(start.wrapping_add(HEADER_BYTES + at));
    }

    /// Returns the position of this entry.
    #[inline]
    pub(crate) fn seek_key(self) -> SeekKey<'a> {
        SeekKey { key: self.key(), sequence: self.sequence() }
    }

    /// Order of this entry relative to `target`. REQUIRES: the first `shared` bytes of both keys
    /// are equal. Otherwise the result is wrong, but the call is safe.
    #[inline]
    pub(crate) fn cmp_suffix(self, shared: usize, target: SeekKey<'_>) -> Ordering {
        let mine = self.key().get(shared..).unwrap_or_default();
        let other = target.key.get(shared..).unwrap_or_default();
        mine.cmp(other).then_with(|| target.sequence.cmp(&self.sequence()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_back() {
        let mut arena = BumpArena::new();
        let long = vec![7u8; KEY_BYTES_MAX];
        for (key, sequence, kind, value) in [
            (&b""[..], 0, ValueKind::Delete, &b""[..]),
            (&long[..], SEQUENCE_MAX, ValueKind::Put, &b"value"[..]),
            (&b"k"[..], 1, ValueKind::Put, &long[..]),
        ] {
            let header = write_entry(&mut arena, key, sequence, kind, value);
            // SAFETY: written above; the arena lives to the end of the test.
            let entry = unsafe { Entry::from_raw(header) };
            assert!(entry.key() == key && entry.value() == value);
            assert_eq!((entry.sequence(), entry.kind()), (sequence, kind));
            assert_eq!(entry.cmp_suffix(0, SeekKey { key, sequence }), Ordering::Equal);
            assert_eq!(entry.cmp_suffix(0, SeekKey { key, sequence: u64::MAX }), Ordering::Greater);
        }
    }

    #[test]
    #[should_panic(expected = "longer than a key may be")]
    fn a_key_over_the_limit_is_refused() {
        let key = vec![0; KEY_BYTES_MAX + 1];
        write_entry(&mut BumpArena::new(), &key, 1, ValueKind::Put, b"");
    }
}
