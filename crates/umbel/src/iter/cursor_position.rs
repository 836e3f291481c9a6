//! [`Position`]: where a cursor over what a reader sees stands.

/// The bit of the positions on an entry that points at its value: every step asks for it.
const POINTER: u8 = 2;

/// Where a cursor over what a reader sees stands, and where what it shows is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Position {
    /// On no entry: never sought, or passed an end.
    Nowhere = 0,
    /// A source failed; stays so until the next seek.
    Failed = 1,
    /// On the entry the inner cursor stands on.
    Lent = 4,
    /// The same, where what stands there points at the value. Apart, so that the quick way on needs
    /// no further question.
    LentPointer = 4 + POINTER,
    /// On the entry in the buffers; the inner cursor stands before all versions of its key.
    Buffered = 8,
    /// The same, where what stands there points at the value.
    BufferedPointer = 8 + POINTER,
    /// On the entry in the buffers; the inner cursor has released its memory and needs a seek.
    Parked = 12,
    /// The same, where what stands there points at the value.
    ParkedPointer = 12 + POINTER,
}

impl Position {
    /// Whether it is on an entry that points at its value.
    #[inline]
    pub fn is_on_pointer(self) -> bool {
        self as u8 & POINTER != 0
    }

    /// The same, once what is shown is in the buffers and the inner cursor holds no memory.
    pub fn parked(self) -> Position {
        match self {
            Position::Lent | Position::Buffered => Position::Parked,
            Position::LentPointer | Position::BufferedPointer => Position::ParkedPointer,
            position => position,
        }
    }
}
