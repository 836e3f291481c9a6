//! [`Walker`]: what a merge is made of.

use umbel_base::{Cursor, Result, SequenceNumber, ValueKind};

/// A [`Cursor`] that does not hold what it walks over but is handed it with each movement: so that
/// many walkers over the parts of one whole need no reference to it each. The laws are those of
/// [`Cursor`].
///
/// REQUIRES: each movement gets the same ground.
pub trait Walker<Ground: ?Sized>: Send {
    /// As [`Cursor::seek_to_first`].
    fn seek_to_first(&mut self, ground: &Ground) -> Result<()>;
    /// As [`Cursor::seek_to_last`].
    fn seek_to_last(&mut self, ground: &Ground) -> Result<()>;
    /// As [`Cursor::seek`].
    fn seek(&mut self, ground: &Ground, key: &[u8], sequence: SequenceNumber) -> Result<()>;
    /// The first part of a seek: looks up where it goes and asks for the memory that the next part
    /// reads. Who seeks with many walkers does one part with all of them before the next, so that
    /// their waiting overlaps. Between the parts a walker is not valid and gets no other calls.
    fn aim(&mut self, ground: &Ground, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        let _ = (ground, key, sequence);
        Ok(())
    }
    /// The second part of a seek: asks for the memory that the third part reads.
    fn approach(&mut self, ground: &Ground) -> Result<()> {
        let _ = ground;
        Ok(())
    }
    /// The third part of a seek: searches, and asks for the memory that the last part reads.
    /// REQUIRES: what `aim` got.
    fn reach(&mut self, ground: &Ground, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        let _ = (ground, key, sequence);
        Ok(())
    }
    /// The last part of a seek. REQUIRES: what `aim` got, and that `reach` was called.
    fn seek_aimed(&mut self, ground: &Ground, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.seek(ground, key, sequence)
    }
    /// Says that a walk is likely to go on from here: asks for the memory. REQUIRES: `valid()`.
    #[inline]
    fn expect(&self) {}
    /// As [`Cursor::seek_before`].
    fn seek_before(&mut self, ground: &Ground, key: &[u8]) -> Result<()>;
    /// As [`Cursor::next`].
    fn next(&mut self, ground: &Ground) -> Result<()>;
    /// As [`Cursor::next_repeats`].
    fn next_repeats(&mut self, ground: &Ground) -> Result<bool>;
    /// As [`Cursor::prev`].
    fn prev(&mut self, ground: &Ground) -> Result<()>;
    /// Moves as `next_repeats` where that takes nothing but what is at hand, and answers the same.
    /// `None`, and nothing changed, where it takes more. REQUIRES: `valid()`.
    #[inline]
    fn step(&mut self) -> Option<bool> {
        None
    }
    /// Says up to which key, and without it, strides may go; without one they may go anywhere.
    /// Holds until the next movement but a stride. REQUIRES: `valid()`, and that no key at or
    /// behind the entry stood on and before that key stands in another walker.
    #[inline]
    fn set_limit(&mut self, key: Option<&[u8]>) {
        let _ = key;
    }
    /// As [`Cursor::stride`], before the limit. REQUIRES: `valid()`.
    #[inline]
    fn stride(&mut self, sequence: SequenceNumber) -> bool {
        let _ = sequence;
        false
    }
    /// Moves as `prev` where that takes nothing but what is at hand. `false`, and nothing changed,
    /// where it takes more. REQUIRES: `valid()`.
    #[inline]
    fn step_back(&mut self) -> bool {
        false
    }
    /// As [`Cursor::release`].
    fn release(&mut self) {}
    /// As [`Cursor::valid`].
    fn valid(&self) -> bool;
    /// As [`Cursor::key`].
    fn key(&self) -> &[u8];
    /// As [`Cursor::sequence`].
    fn sequence(&self) -> SequenceNumber;
    /// As [`Cursor::kind`].
    fn kind(&self) -> ValueKind;
    /// As [`Cursor::value`].
    fn value(&self) -> &[u8];
}

/// A cursor needs no ground.
impl<C: Cursor + ?Sized> Walker<()> for Box<C> {
    fn seek_to_first(&mut self, _: &()) -> Result<()> {
        (**self).seek_to_first()
    }
    fn seek_to_last(&mut self, _: &()) -> Result<()> {
        (**self).seek_to_last()
    }
    fn seek(&mut self, _: &(), key: &[u8], sequence: SequenceNumber) -> Result<()> {
        (**self).seek(key, sequence)
    }
    fn seek_before(&mut self, _: &(), key: &[u8]) -> Result<()> {
        (**self).seek_before(key)
    }
    #[inline]
    fn next(&mut self, _: &()) -> Result<()> {
        (**self).next()
    }
    #[inline]
    fn next_repeats(&mut self, _: &()) -> Result<bool> {
        (**self).next_repeats()
    }
    #[inline]
    fn prev(&mut self, _: &()) -> Result<()> {
        (**self).prev()
    }
    fn release(&mut self) {
        (**self).release();
    }
    #[inline]
    fn valid(&self) -> bool {
        (**self).valid()
    }
    #[inline]
    fn key(&self) -> &[u8] {
        (**self).key()
    }
    #[inline]
    fn sequence(&self) -> SequenceNumber {
        (**self).sequence()
    }
    #[inline]
    fn kind(&self) -> ValueKind {
        (**self).kind()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        (**self).value()
    }
}

/// Makes a cursor of a walker whose parts hold what they walk over.
macro_rules! cursor_of_walker {
    (<$($parameter:ident: $bound:path),+> $walker:ty) => {
        impl<$($parameter: $bound),+> umbel_base::Cursor for $walker {
            fn seek_to_first(&mut self) -> umbel_base::Result<()> {
                Walker::<()>::seek_to_first(self, &())
            }

            fn seek_to_last(&mut self) -> umbel_base::Result<()> {
                Walker::<()>::seek_to_last(self, &())
            }

            fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> umbel_base::Result<()> {
                Walker::<()>::seek(self, &(), key, sequence)
            }

            fn seek_before(&mut self, key: &[u8]) -> umbel_base::Result<()> {
                Walker::<()>::seek_before(self, &(), key)
            }

            #[inline]
            fn next(&mut self) -> umbel_base::Result<()> {
                Walker::<()>::next(self, &())
            }

            #[inline]
            fn next_repeats(&mut self) -> umbel_base::Result<bool> {
                Walker::<()>::next_repeats(self, &())
            }

            #[inline]
            fn step(&mut self) -> Option<bool> {
                Walker::<()>::step(self)
            }

            #[inline]
            fn stride(&mut self, sequence: umbel_base::SequenceNumber) -> bool {
                Walker::<()>::stride(self, sequence)
            }

            #[inline]
            fn prev(&mut self) -> umbel_base::Result<()> {
                Walker::<()>::prev(self, &())
            }

            fn release(&mut self) {
                Walker::<()>::release(self);
            }

            #[inline]
            fn valid(&self) -> bool {
                Walker::<()>::valid(self)
            }

            #[inline]
            fn key(&self) -> &[u8] {
                Walker::<()>::key(self)
            }

            #[inline]
            fn sequence(&self) -> SequenceNumber {
                Walker::<()>::sequence(self)
            }

            #[inline]
            fn kind(&self) -> ValueKind {
                Walker::<()>::kind(self)
            }

            #[inline]
            fn value(&self) -> &[u8] {
                Walker::<()>::value(self)
            }
        }
    };
}
pub(super) use cursor_of_walker;
