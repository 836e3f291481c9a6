//! [`HashSource`]: where every hash comes from when a filter is rebuilt, grows or heals.

use umbel_base::Result;

/// Hands out every existing hash in an order of its own, for example the heads of all streams.
///
/// REQUIRES, or existing keys are denied:
/// 1. **Visible before inserted.** A walk that begins after a call of
///    [`insert`](crate::ExistenceFilter::insert) hands the key out, and so does every later walk,
///    until the key is deleted. So put a key where the source finds it, and insert it then.
/// 2. A walk hands out every key that exists from its first call to its last. A key that arrives
///    during the walk may be omitted.
/// 3. A cursor stays valid across a restart. A walk that continues at it hands out every key that
///    was not handed out before.
/// 4. After a crash a walk hands out every key that a [`flush`](crate::ExistenceFilter::flush)
///    covered, unless the key is deleted.
pub trait HashSource {
    /// Appends up to about `most` hashes that follow `after`, or the first ones. Returns the cursor
    /// after the last one, at most 65,536 bytes, or `None` if that was the end.
    ///
    /// # Errors
    /// Whatever keeps it from doing so; the same call is made again later.
    fn hashes(
        &self,
        after: Option<&[u8]>,
        most: usize,
        output: &mut Vec<u64>,
    ) -> Result<Option<Vec<u8>>>;

    /// About how many hashes there are, 0 if that is not known: a filter that is made from nothing
    /// gets its size by it.
    fn estimated(&self) -> u64 {
        0
    }

    /// Whether other urgent work has the processors now. The walk of a growing filter
    /// then waits for its end, for as long as there is time: until the number of inserts is
    /// half of the first filter's capacity, and for some hundred steps at most.
    fn is_busy(&self) -> bool {
        false
    }
}

/// Whether there is more to be done in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepProgress {
    /// There is: call again soon.
    More,
    /// There is, and time for it: the filter grows, and is further with that than inserts are with
    /// filling it. Call again when [`wants_step`](crate::ExistenceFilter::wants_step) says so, or
    /// whenever there is nothing else to do.
    Ahead,
    /// There is, and it made way for other work ([`HashSource::is_busy`]): nothing was done. Call
    /// again when [`wants_step`](crate::ExistenceFilter::wants_step) says so, or in a while.
    Yielded,
    /// There is nothing for now: call again after some thousand inserts, or in a while.
    Idle,
}
