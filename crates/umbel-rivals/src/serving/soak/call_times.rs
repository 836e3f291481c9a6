//! How long calls of each kind took, by parts of the soak.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::plan::Kind;

/// What the calls of one kind took in one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// How many there were.
    pub calls: u64,
    /// Microseconds of half of them,
    pub p50_us: u32,
    /// of 99 of a hundred,
    pub p99_us: u32,
    /// and of the longest.
    pub most_us: u32,
}

/// The times of the part that is under way.
#[derive(Debug, Default)]
pub(super) struct Times(Mutex<BTreeMap<Kind, Vec<u32>>>);

impl Times {
    /// A call took so long.
    pub(super) fn add(&self, kind: Kind, time: Duration) {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        self.locked().entry(kind).or_default().push(micros);
    }

    /// What the part that ends here took; the next one begins.
    pub(super) fn take(&self) -> BTreeMap<Kind, Window> {
        let times = std::mem::take(&mut *self.locked());
        times.into_iter().filter_map(|(kind, times)| Some((kind, window(times)?))).collect()
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<Kind, Vec<u32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn window(mut times: Vec<u32>) -> Option<Window> {
    times.sort_unstable();
    let at = |part: f64| {
        let place = (part * times.len() as f64).ceil() as usize;
        times.get(place.saturating_sub(1)).copied()
    };
    Some(Window {
        calls: times.len() as u64,
        p50_us: at(0.5)?,
        p99_us: at(0.99)?,
        most_us: *times.last()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_its_own_times() {
        let times = Times::default();
        for micros in 1..=200 {
            times.add(Kind::Batch, Duration::from_micros(micros));
        }
        let taken = times.take()[&Kind::Batch];
        assert_eq!(taken, Window { calls: 200, p50_us: 100, p99_us: 198, most_us: 200 });
        assert!(times.take().is_empty());
    }
}
