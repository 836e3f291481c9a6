//! [`Shortage`]: work that the disk had no room for, and when it is tried again.
//!
//! Nothing of such work counts yet, so it can wait. A writer who waits for it has it tried at once,
//! and is refused where it finds no room again. Each attempt fills the disk for a while, so that
//! the pauses grow.

use std::time::Duration;

use umbel_base::{Error, SequenceNumber};

/// How long such work waits at first, and at most where nobody writes.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(256));

/// What work is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Writers will wait for it if it is not done.
    Needed,
    /// It makes the store smaller.
    Useful,
}

/// What waits for room. Guarded by the work lock.
#[derive(Debug, Default)]
pub struct Shortage {
    /// How often work that is needed found no room.
    refusals: u64,
    needed: PutOff,
    useful: PutOff,
}

/// Work of one kind.
#[derive(Debug, Default)]
struct PutOff {
    /// When it failed, and why, until it is tried again.
    failed: Option<(Duration, Error)>,
    /// How long it waits.
    pause: Duration,
    /// The newest write when it failed.
    newest: SequenceNumber,
}

impl Shortage {
    fn of(&mut self, need: Need) -> &mut PutOff {
        match need {
            Need::Needed => &mut self.needed,
            Need::Useful => &mut self.useful,
        }
    }

    /// Puts work of this kind off that failed now, when `newest` was the newest write.
    pub fn put_off(&mut self, need: Need, error: Error, (now, newest): (Duration, SequenceNumber)) {
        self.refusals += u64::from(need == Need::Needed);
        let put_off = self.of(need);
        let goes_on = put_off.newest == newest && !put_off.pause.is_zero();
        let pause = if goes_on { (put_off.pause * 2).min(PAUSE.1) } else { PAUSE.0 };
        *put_off = PutOff { failed: Some((now, error)), pause, newest };
    }

    /// How long work of this kind waits still; `None` where it may be tried.
    pub fn left(
        &mut self,
        need: Need,
        (now, newest): (Duration, SequenceNumber),
    ) -> Option<Duration> {
        let put_off = self.of(need);
        let (failed, _) = put_off.failed.as_ref()?;
        // Whoever writes again may have made room.
        let pause = if put_off.newest == newest { put_off.pause } else { PAUSE.0 };
        let left = failed.saturating_add(pause).saturating_sub(now);
        if left.is_zero() {
            put_off.failed = None;
            return None;
        }
        Some(left)
    }

    /// Has work that is needed tried at once, for a writer who begins to wait for it. Answers with
    /// what he asks [`Shortage::refusal_since`] by, and whether the work was put off.
    pub fn await_needed(&mut self) -> (u64, bool) {
        (self.refusals, self.needed.failed.take().is_some())
    }

    /// Why work that is needed found no room after [`Shortage::await_needed`]; `None` where it was
    /// done or is tried still.
    pub fn refusal_since(&self, refusals: u64) -> Option<&Error> {
        let failed = self.needed.failed.as_ref().filter(|_| self.refusals > refusals)?;
        Some(&failed.1)
    }

    /// Why work waits.
    pub fn reason(&self) -> Option<&Error> {
        let failed = self.needed.failed.as_ref().or(self.useful.failed.as_ref());
        failed.map(|(_, reason)| reason)
    }

    /// Lets everything be tried now.
    pub fn try_now(&mut self) {
        (self.needed.failed, self.useful.failed) = (None, None);
    }

    /// Notes that such work was done.
    pub fn done(&mut self, need: Need) {
        *self.of(need) = PutOff::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Error {
        Error::io("write", "/store".as_ref(), std::io::Error::from_raw_os_error(28))
    }

    /// Work that was put off was tried again each second for as long as nobody wrote.
    #[test]
    fn the_pauses_grow_until_somebody_writes() {
        let (mut shortage, mut now) = (Shortage::default(), Duration::ZERO);
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 256] {
            shortage.put_off(Need::Needed, full(), (now, 7));
            let left = shortage.left(Need::Needed, (now, 7));
            assert_eq!(left, Some(Duration::from_secs(seconds)));
            now += Duration::from_secs(seconds);
            assert_eq!(shortage.left(Need::Needed, (now, 7)), None);
        }
        shortage.put_off(Need::Needed, full(), (now, 7));
        assert_eq!(shortage.left(Need::Needed, (now, 8)), Some(PAUSE.0));
        assert_eq!(shortage.left(Need::Useful, (now, 8)), None);
        let (refusals, was_put_off) = shortage.await_needed();
        assert!(was_put_off && shortage.refusal_since(refusals).is_none());
        assert_eq!(shortage.left(Need::Needed, (now, 8)), None);
        shortage.put_off(Need::Useful, full(), (now, 8));
        assert!(shortage.refusal_since(refusals).is_none());
        shortage.put_off(Need::Needed, full(), (now, 8));
        assert!(shortage.refusal_since(refusals).is_some());
    }
}
