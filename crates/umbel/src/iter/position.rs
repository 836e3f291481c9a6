//! [`Position`]: where a cursor over what a reader sees stands.

/// Where a cursor over what a reader sees stands, and where what it shows is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// On no entry: never sought, or passed an end.
    Nowhere,
    /// A source failed; stays so until the next seek.
    Failed,
    /// On the entry the inner cursor stands on.
    Lent,
    /// The same, where what stands there points at the value. Apart, so that the quick way on needs
    /// no further question.
    LentPointer,
    /// On the entry in the buffers; the inner cursor stands before all versions of its key.
    Buffered,
    /// The same, where what stands there points at the value.
    BufferedPointer,
    /// On the entry in the buffers; the inner cursor has released its memory and needs a seek.
    Parked,
    /// The same, where what stands there points at the value.
    ParkedPointer,
}

impl Position {
    /// Whether it is on an entry that points at its value.
    #[inline]
    pub fn is_on_pointer(self) -> bool {
        matches!(self, Position::LentPointer | Position::BufferedPointer | Position::ParkedPointer)
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
