//! [`HashSource`]: returns every hash when a filter is rebuilt, grows, or repairs damaged lines.

use umbel_base::Result;

/// Returns the hashes of all existing keys in an order of its own, for example of all stream heads.
///
/// REQUIRES the following; otherwise the filter denies existing keys:
/// 1. **Visible before inserted.** Every walk that begins after a call of
///    [`insert`](crate::ExistenceFilter::insert) returns the key, until the key is deleted. So a
///    caller puts a key where the source finds it before it inserts the key's hash.
/// 2. A walk returns every key that exists from its first call to its last. A key that is added
///    during the walk may be omitted.
/// 3. A cursor stays valid across a restart. A walk that continues at a cursor returns every key
///    that the walk has not returned before.
/// 4. After a crash a walk returns every key that a [`flush`](crate::ExistenceFilter::flush)
///    covered, unless the key is deleted.
pub trait HashSource {
    /// Appends up to about `most` hashes that follow the cursor `after`, or the first hashes.
    /// Returns the cursor after the last appended hash, at most 65,536 bytes, or `None` at the end
    /// of the walk.
    ///
    /// # Errors
    /// Any error of the source; the filter repeats the call later.
    fn hashes(
        &self,
        after: Option<&[u8]>,
        most: usize,
        output: &mut Vec<u64>,
    ) -> Result<Option<Vec<u8>>>;

    /// Approximate number of hashes, or 0 if it is unknown. That number determines the size of a
    /// filter that is built from nothing.
    fn estimated(&self) -> u64 {
        0
    }

    /// Whether other urgent work needs the processors now. The walk of a growing filter then yields
    /// until inserts reach half of the first filter's capacity, and for some hundred steps at most.
    fn is_busy(&self) -> bool {
        false
    }
}

/// Whether background work is left after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepProgress {
    /// Work is left: call `step` again soon.
    More,
    /// Work is left but is not urgent: the filter grows faster than inserts fill it. Call `step`
    /// again when [`wants_step`](crate::ExistenceFilter::wants_step) returns `true`, or when the
    /// thread has no other work.
    Ahead,
    /// Work is left, but the step did nothing because of other urgent work
    /// ([`HashSource::is_busy`]). Call `step` again when
    /// [`wants_step`](crate::ExistenceFilter::wants_step) returns `true`, or after a pause.
    Yielded,
    /// No work is left: call `step` again after some thousand inserts, or after a pause.
    Idle,
}
