//! [`ContextCursor`]: a source of a merge that borrows its data for each movement.

use umbel_base::{Cursor, Result, SequenceNumber, ValueKind};

/// A [`Cursor`] that does not own its data but borrows it from `context` in each movement. So the
/// cursors over the parts of a super version need no references of their own. The laws of
/// [`Cursor`] hold.
///
/// REQUIRES: all movements of a cursor get the same context.
pub trait ContextCursor<Context: ?Sized>: Send {
    /// Like [`Cursor::seek_to_first`].
    fn seek_to_first(&mut self, context: &Context) -> Result<()>;
    /// Like [`Cursor::seek_to_last`].
    fn seek_to_last(&mut self, context: &Context) -> Result<()>;
    /// Like [`Cursor::seek`].
    fn seek(&mut self, context: &Context, key: &[u8], sequence: SequenceNumber) -> Result<()>;
    /// First part of a seek: looks up the target and prefetches the memory that the next part
    /// reads. A merge runs one part of the seek for all its cursors before the next part, so that
    /// their memory waits overlap. Between the parts a cursor is not valid, and no other method may
    /// be called.
    fn begin_seek(
        &mut self,
        context: &Context,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        let _ = (context, key, sequence);
        Ok(())
    }
    /// Second part of a seek: prefetches the memory that the third part reads.
    fn prefetch_seek(&mut self, context: &Context) -> Result<()> {
        let _ = context;
        Ok(())
    }
    /// Third part of a seek: searches, and prefetches the memory that the last part reads.
    /// REQUIRES: the arguments of `begin_seek`.
    fn narrow_seek(
        &mut self,
        context: &Context,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        let _ = (context, key, sequence);
        Ok(())
    }
    /// Last part of a seek: moves to the target. REQUIRES: the arguments of `begin_seek`, and that
    /// `narrow_seek` was called.
    fn finish_seek(
        &mut self,
        context: &Context,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        self.seek(context, key, sequence)
    }
    /// Prefetches the memory of the entries around the current one, where iteration probably
    /// continues. REQUIRES: `valid()`.
    #[inline]
    fn prefetch_entries(&self) {}
    /// Like [`Cursor::seek_before`].
    fn seek_before(&mut self, context: &Context, key: &[u8]) -> Result<()>;
    /// Like [`Cursor::next`].
    fn next(&mut self, context: &Context) -> Result<()>;
    /// Like [`Cursor::next_repeats`].
    fn next_repeats(&mut self, context: &Context) -> Result<bool>;
    /// Like [`Cursor::prev`].
    fn prev(&mut self, context: &Context) -> Result<()>;
    /// Moves like `next_repeats` and returns the same result if the cursor has the next entry at
    /// hand. Otherwise returns `None` and does not move. REQUIRES: `valid()`.
    #[inline]
    fn try_next(&mut self) -> Option<bool> {
        None
    }
    /// Sets the key before which `try_next_visible` stops; `None` sets no limit. The limit holds
    /// until the next movement other than `try_next_visible`. REQUIRES: `valid()`, and that no
    /// other cursor of the merge has a key from the current key to `key`, exclusive.
    #[inline]
    fn set_limit(&mut self, key: Option<&[u8]>) {
        let _ = key;
    }
    /// Like [`Cursor::try_next_visible`], but stops before the limit that `set_limit` sets.
    /// REQUIRES: `valid()`.
    #[inline]
    fn try_next_visible(&mut self, sequence: SequenceNumber) -> bool {
        let _ = sequence;
        false
    }
    /// Moves like `prev` if the cursor has the previous entry at hand. Otherwise returns `false`
    /// and does not move. REQUIRES: `valid()`.
    #[inline]
    fn try_prev(&mut self) -> bool {
        false
    }
    /// Like [`Cursor::skipped_copies`].
    fn skipped_copies(&self) -> u64 {
        0
    }
    /// Like [`Cursor::release`].
    fn release(&mut self) {}
    /// Like [`Cursor::valid`].
    fn valid(&self) -> bool;
    /// Like [`Cursor::key`].
    fn key(&self) -> &[u8];
    /// Like [`Cursor::sequence`].
    fn sequence(&self) -> SequenceNumber;
    /// Like [`Cursor::kind`].
    fn kind(&self) -> ValueKind;
    /// Like [`Cursor::value`].
    fn value(&self) -> &[u8];
}

/// A boxed [`Cursor`] owns its data and needs no context.
impl<C: Cursor + ?Sized> ContextCursor<()> for Box<C> {
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

/// Implements `Cursor` for a cursor whose parts own their data and so need no context.
macro_rules! impl_cursor {
    (<$($parameter:ident: $bound:path),+> $walker:ty) => {
        impl<$($parameter: $bound),+> umbel_base::Cursor for $walker {
            fn seek_to_first(&mut self) -> umbel_base::Result<()> {
                ContextCursor::<()>::seek_to_first(self, &())
            }

            fn seek_to_last(&mut self) -> umbel_base::Result<()> {
                ContextCursor::<()>::seek_to_last(self, &())
            }

            fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> umbel_base::Result<()> {
                ContextCursor::<()>::seek(self, &(), key, sequence)
            }

            fn seek_before(&mut self, key: &[u8]) -> umbel_base::Result<()> {
                ContextCursor::<()>::seek_before(self, &(), key)
            }

            #[inline]
            fn next(&mut self) -> umbel_base::Result<()> {
                ContextCursor::<()>::next(self, &())
            }

            #[inline]
            fn next_repeats(&mut self) -> umbel_base::Result<bool> {
                ContextCursor::<()>::next_repeats(self, &())
            }

            #[inline]
            fn try_next(&mut self) -> Option<bool> {
                ContextCursor::<()>::try_next(self)
            }

            #[inline]
            fn try_next_visible(&mut self, sequence: umbel_base::SequenceNumber) -> bool {
                ContextCursor::<()>::try_next_visible(self, sequence)
            }

            #[inline]
            fn prev(&mut self) -> umbel_base::Result<()> {
                ContextCursor::<()>::prev(self, &())
            }

            fn skipped_copies(&self) -> u64 {
                ContextCursor::<()>::skipped_copies(self)
            }

            fn release(&mut self) {
                ContextCursor::<()>::release(self);
            }

            #[inline]
            fn valid(&self) -> bool {
                ContextCursor::<()>::valid(self)
            }

            #[inline]
            fn key(&self) -> &[u8] {
                ContextCursor::<()>::key(self)
            }

            #[inline]
            fn sequence(&self) -> SequenceNumber {
                ContextCursor::<()>::sequence(self)
            }

            #[inline]
            fn kind(&self) -> ValueKind {
                ContextCursor::<()>::kind(self)
            }

            #[inline]
            fn value(&self) -> &[u8] {
                ContextCursor::<()>::value(self)
            }
        }
    };
}
pub(super) use impl_cursor;
