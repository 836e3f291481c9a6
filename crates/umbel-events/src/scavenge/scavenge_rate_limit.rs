//! [`ScavengeThrottle`]: rate limit of a scavenge, by bytes per second and by share of time.

use std::sync::Arc;
use std::time::Duration;

use umbel_env::Clock;

/// Bytes that are read or written between two checks of the clock.
pub const SLICE_BYTES: u64 = 64 << 10;
/// Maximum length of a pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Time of the last pause, the bytes processed since that pause, and both limits.
pub struct ScavengeThrottle {
    bytes_per_second: Option<u64>,
    busy_percent: u64,
    clock: Arc<dyn Clock>,
    last: Duration,
    bytes: u64,
}

impl ScavengeThrottle {
    /// Begins to count time and bytes. `busy_percent` is the percentage of time without pauses.
    pub fn new(
        clock: Arc<dyn Clock>,
        bytes_per_second: Option<u64>,
        busy_percent: u64,
    ) -> ScavengeThrottle {
        let last = clock.now();
        ScavengeThrottle { bytes_per_second, busy_percent, clock, last, bytes: 0 }
    }

    /// Records bytes that were read or written. Returns the pause that is due; after the pause the
    /// caller calls [`ScavengeThrottle::resume`].
    pub fn record(&mut self, bytes: u64) -> Option<Duration> {
        self.bytes += bytes;
        if self.bytes < SLICE_BYTES {
            return None;
        }
        let worked = self.clock.now().saturating_sub(self.last);
        let percent = u32::try_from(self.busy_percent).unwrap_or(100).max(1);
        let mut pause = worked * (100 - percent.min(100)) / percent;
        if let Some(rate) = self.bytes_per_second {
            let wanted = Duration::from_secs_f64(self.bytes as f64 / rate as f64);
            pause = pause.max(wanted.saturating_sub(worked));
        }
        Some(pause.min(PAUSE_MAX))
    }

    /// Begins to count the next slice, after a pause.
    pub fn resume(&mut self) {
        self.last = self.clock.now();
        self.bytes = 0;
    }
}
