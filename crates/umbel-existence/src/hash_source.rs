//! [`Source`]: where every hash comes from when a filter is made anew, grows or heals.

use umbel_base::Result;

/// Hands out every hash there is, in an order of its own: the heads of all streams, say.
///
/// REQUIRES, or keys are denied that exist:
/// 1. **Seen before inserted.** A walk that begins after [`insert`](crate::ExistenceFilter::insert)
///    of a key was called hands the key out, as does every later one, until the key is gone. So put
///    a key where the source finds it, and insert it then.
/// 2. A walk hands out every key that is there from its first call to its last. One that comes
///    meanwhile may be left out.
/// 3. A cursor stays good when the process restarts: what a walk that goes on at it hands out, with
///    what was handed out before, is all there is.
/// 4. After a crash a key that a [`flush`](crate::ExistenceFilter::flush) covered is handed out by
///    a walk, unless it is gone.
pub trait Source {
    /// Appends up to about `most` hashes that follow `after`, or the first ones. Gives the cursor
    /// behind the last one, at most 65,536 bytes, or `None` if that was the end.
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

    /// Whether other work that cannot wait has the processors now. The walk for a filter that grows
    /// waits for its end then, for as long as there is time: until half as many hashes were
    /// inserted as the first filter was made for, and for some hundred steps at most.
    fn is_busy(&self) -> bool {
        false
    }
}

/// Whether there is more to be done in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There is: call again soon.
    More,
    /// There is, and time for it: the filter grows, and is further with that than inserts are with
    /// filling it. Call again when [`wants_step`](crate::ExistenceFilter::wants_step) says so, or
    /// whenever there is nothing else to do.
    Ahead,
    /// There is, and it made way for other work ([`Source::is_busy`]): nothing was done. Call again
    /// when [`wants_step`](crate::ExistenceFilter::wants_step) says so, or in a while.
    MadeWay,
    /// There is nothing for now: call again after some thousand inserts, or in a while.
    Idle,
}
