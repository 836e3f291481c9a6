//! [`CursorPosition`]: position of a cursor over a reader's visible entries.

/// Bit of the positions on an entry that points at its value: every step tests it.
const POINTER: u8 = 2;

/// Position of a cursor over a reader's visible entries, and the source of its current entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CursorPosition {
    /// On no entry: never sought, or past an end.
    Unpositioned = 0,
    /// A source failed; lasts until the next seek.
    Failed = 1,
    /// On the inner cursor's entry.
    Lent = 4,
    /// Like `Lent`, where the entry points at the value. Separate, so that the fast path needs no
    /// further test.
    LentPointer = 4 + POINTER,
    /// On the entry in the buffers; the inner cursor is before all versions of its key.
    Buffered = 8,
    /// Like `Buffered`, where the entry points at the value.
    BufferedPointer = 8 + POINTER,
    /// On the entry in the buffers; the inner cursor has released its memory and needs a seek.
    Parked = 12,
    /// Like `Parked`, where the entry points at the value.
    ParkedPointer = 12 + POINTER,
}

impl CursorPosition {
    /// Whether it is on an entry that points at its value.
    #[inline]
    pub fn is_blob_pointer(self) -> bool {
        self as u8 & POINTER != 0
    }

    /// Returns this position once the entry is in the buffers and the inner cursor holds no memory.
    pub fn parked(self) -> CursorPosition {
        match self {
            CursorPosition::Lent | CursorPosition::Buffered => CursorPosition::Parked,
            CursorPosition::LentPointer | CursorPosition::BufferedPointer => {
                CursorPosition::ParkedPointer
            }
            position => position,
        }
    }
}
