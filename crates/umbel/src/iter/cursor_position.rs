//! [`CursorPosition`]: position of a cursor over a reader's visible entries.

/// Bit that is set in positions on an entry that points at its value. Every step of a cursor tests
/// this bit.
const POINTER: u8 = 2;

/// Position of a cursor over a reader's visible entries, and the source of its current entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CursorPosition {
    /// On no entry: the cursor was never sought, or moved past an end.
    Unpositioned = 0,
    /// On no entry, since a read of a source failed; lasts until the next seek.
    Failed = 1,
    /// On the inner cursor's entry.
    Lent = 4,
    /// Like `Lent`, but the entry points at its value. The position is separate so that the fast
    /// path needs no further test.
    LentPointer = 4 + POINTER,
    /// On the entry in the buffers; the inner cursor is before all versions of the entry's key.
    Buffered = 8,
    /// Like `Buffered`, but the entry points at its value.
    BufferedPointer = 8 + POINTER,
    /// On the entry in the buffers; the inner cursor has released its memory and needs a seek.
    Parked = 12,
    /// Like `Parked`, but the entry points at its value.
    ParkedPointer = 12 + POINTER,
}

impl CursorPosition {
    /// Whether the cursor is on an entry that points at its value.
    #[inline]
    pub fn is_blob_pointer(self) -> bool {
        self as u8 & POINTER != 0
    }

    /// Returns the parked position that corresponds to this position.
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
