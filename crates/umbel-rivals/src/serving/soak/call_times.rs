//! Times of calls of each kind, by parts of the soak.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use crate::serving::soak::soak_plan::SoakWork;

/// Times of the calls of one kind in one part of the soak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallWindow {
    /// Number of calls.
    pub calls: u64,
    /// Median in microseconds.
    pub p50_us: u32,
    /// p99 in microseconds.
    pub p99_us: u32,
    /// Maximum in microseconds.
    pub max_us: u32,
}

/// Times of calls in the current part of the soak.
#[derive(Debug, Default)]
pub(super) struct CallTimes(Mutex<BTreeMap<SoakWork, Vec<u32>>>);

impl CallTimes {
    /// Adds the time of a call.
    pub(super) fn add(&self, kind: SoakWork, time: Duration) {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        self.locked().entry(kind).or_default().push(micros);
    }

    /// Ends the part and returns its times; the next part begins.
    pub(super) fn take(&self) -> BTreeMap<SoakWork, CallWindow> {
        let times = std::mem::take(&mut *self.locked());
        times.into_iter().filter_map(|(kind, times)| Some((kind, window(times)?))).collect()
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<SoakWork, Vec<u32>>> {
        self.0.lock().ignore_poison()
    }
}

fn window(mut times: Vec<u32>) -> Option<CallWindow> {
    times.sort_unstable();
    let at = |part: f64| {
        let place = (part * times.len() as f64).ceil() as usize;
        times.get(place.saturating_sub(1)).copied()
    };
    Some(CallWindow {
        calls: times.len() as u64,
        p50_us: at(0.5)?,
        p99_us: at(0.99)?,
        max_us: *times.last()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_starts_a_new_part() {
        let times = CallTimes::default();
        for micros in 1..=200 {
            times.add(SoakWork::Batch, Duration::from_micros(micros));
        }
        let taken = times.take()[&SoakWork::Batch];
        assert_eq!(taken, CallWindow { calls: 200, p50_us: 100, p99_us: 198, max_us: 200 });
        assert!(times.take().is_empty());
    }
}
