//! [`Shortage`]: work that the disk had no room for, and when it is tried again.
//!
//! Nothing of such work counts yet, so it can wait: a compaction of what is only of use always, a
//! flush or another compaction as long as no writer waits for it. Each attempt fills the disk for a
//! while, so that the pauses grow.

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
    /// How many writers wait for work that is needed.
    pub writers: usize,
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

    /// Puts work of this kind off that failed now, when `newest` was the newest write. `false`
    /// where writers wait for it.
    pub fn put_off(
        &mut self,
        need: Need,
        error: Error,
        (now, newest): (Duration, SequenceNumber),
    ) -> bool {
        if need == Need::Needed && self.writers > 0 {
            return false;
        }
        let put_off = self.of(need);
        let goes_on = put_off.newest == newest && !put_off.pause.is_zero();
        let pause = if goes_on { (put_off.pause * 2).min(PAUSE.1) } else { PAUSE.0 };
        *put_off = PutOff { failed: Some((now, error)), pause, newest };
        true
    }

    /// How long work of this kind waits still; `None` where it may be tried.
    pub fn left(
        &mut self,
        need: Need,
        (now, newest): (Duration, SequenceNumber),
    ) -> Option<Duration> {
        let is_awaited = need == Need::Needed && self.writers > 0;
        let put_off = self.of(need);
        let (failed, _) = put_off.failed.as_ref()?;
        // Whoever writes again may have made room.
        let pause = if put_off.newest == newest { put_off.pause } else { PAUSE.0 };
        let left = failed.saturating_add(pause).saturating_sub(now);
        if is_awaited || left.is_zero() {
            put_off.failed = None;
            return None;
        }
        Some(left)
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

    /// Whether work of this kind is put off.
    pub fn is_put_off(&self, need: Need) -> bool {
        match need {
            Need::Needed => self.needed.failed.is_some(),
            Need::Useful => self.useful.failed.is_some(),
        }
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
            assert!(shortage.put_off(Need::Needed, full(), (now, 7)));
            let left = shortage.left(Need::Needed, (now, 7));
            assert_eq!(left, Some(Duration::from_secs(seconds)));
            now += Duration::from_secs(seconds);
            assert_eq!(shortage.left(Need::Needed, (now, 7)), None);
        }
        assert!(shortage.put_off(Need::Needed, full(), (now, 7)));
        assert_eq!(shortage.left(Need::Needed, (now, 8)), Some(PAUSE.0));
        assert_eq!(shortage.left(Need::Useful, (now, 8)), None);
        shortage.writers += 1;
        assert_eq!(shortage.left(Need::Needed, (now, 8)), None);
        assert!(!shortage.put_off(Need::Needed, full(), (now, 8)));
        assert!(shortage.put_off(Need::Useful, full(), (now, 8)));
    }
}
