//! Write throttle: slows writers so that compaction keeps up.
//!
//! The severity says where the load is between the soft limits (0) and the hard limits (1). The
//! kind of load nearest to its hard limit decides. Each written byte costs a delay that grows with
//! the square of the severity. So writers notice almost nothing at first, and settle at the speed
//! of compaction instead of stopping and starting.
//!
//! At a hard limit writers wait on a condition variable that the end of a flush or compaction
//! signals. This module neither waits nor reads a clock: the caller sums the delays of its writes
//! and waits once, outside every lock.

/// Load of flushes and compactions, which throttles writers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionLoad {
    /// Number of tables in level 0.
    pub level0_tables: usize,
    /// Compaction debt: bytes that compactions have to move until all levels are within their
    /// targets.
    pub debt_bytes: u64,
    /// Number of frozen memtables that wait for a flush.
    pub frozen_memtables: usize,
}

/// Limits at which writers are slowed (`soft`) and at which they stall (`hard`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThrottleLimits {
    /// Number of tables in level 0 at which writers are slowed. INVARIANT, for all pairs: the soft
    /// limit is less than the hard limit.
    pub level0_tables_soft: usize,
    /// Number of tables in level 0 at which writers stall.
    pub level0_tables_hard: usize,
    /// Compaction debt in bytes at which writers are slowed.
    pub debt_bytes_soft: u64,
    /// Compaction debt in bytes at which writers stall.
    pub debt_bytes_hard: u64,
    /// Number of frozen memtables at which writers are slowed.
    pub frozen_memtables_soft: usize,
    /// Number of frozen memtables at which writers stall.
    pub frozen_memtables_hard: usize,
    /// The delay of a writer per byte just below a hard limit.
    pub delay_per_byte_ns_max: f64,
}

impl ThrottleLimits {
    /// Limits that fit a keyspace. Writers are slowed when level 0 has three times its trigger's
    /// tables, and stall at nine times. Compaction debt slows writers from four times the base
    /// level's size. The third frozen memtable slows writers, and the fourth stalls them.
    ///
    /// Just below a stall, a delay of 100 ns per byte leaves 10 MB/s, which slow disks reach at a
    /// write amplification of ten.
    pub fn new(level0_trigger: usize, level_bytes_base: u64) -> ThrottleLimits {
        let trigger = level0_trigger.max(1);
        let base = level_bytes_base.max(1);
        ThrottleLimits {
            level0_tables_soft: trigger.saturating_mul(3),
            level0_tables_hard: trigger.saturating_mul(9),
            debt_bytes_soft: base.saturating_mul(4).min(u64::MAX - 1),
            debt_bytes_hard: base.saturating_mul(64),
            frozen_memtables_soft: 2,
            frozen_memtables_hard: 4,
            delay_per_byte_ns_max: 100.0,
        }
    }

    /// Returns the position of `load` between the soft limits (0 and below) and the hard limits
    /// (1).
    fn severity(&self, load: &CompactionLoad) -> f64 {
        let part = |value: f64, soft: f64, hard: f64| (value - soft) / (hard - soft).max(1.0);
        let level0 = part(
            load.level0_tables as f64,
            self.level0_tables_soft as f64,
            self.level0_tables_hard as f64,
        );
        let debt =
            part(load.debt_bytes as f64, self.debt_bytes_soft as f64, self.debt_bytes_hard as f64);
        let memtables = part(
            load.frozen_memtables as f64,
            self.frozen_memtables_soft as f64,
            self.frozen_memtables_hard as f64,
        );
        level0.max(debt).max(memtables)
    }
}

/// Returns a writer's delay per written byte: 0 up to the soft limits, then growing with the square
/// of the severity, up to the maximum.
pub fn delay_per_byte_ns(load: &CompactionLoad, limits: &ThrottleLimits) -> f64 {
    let severity = limits.severity(load).clamp(0.0, 1.0);
    limits.delay_per_byte_ns_max * severity * severity
}

/// Whether writers must wait until a flush or compaction ends.
pub fn must_stall(load: &CompactionLoad, limits: &ThrottleLimits) -> bool {
    limits.severity(load) >= 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_delay_below_soft_limits_and_stall_at_hard_ones() {
        let limits = ThrottleLimits::new(4, 256 << 20);
        let calm = CompactionLoad { level0_tables: 12, debt_bytes: 1 << 30, frozen_memtables: 1 };
        assert_eq!(delay_per_byte_ns(&calm, &limits), 0.0);
        assert!(!must_stall(&calm, &limits));
        for full in [
            CompactionLoad { level0_tables: 36, ..calm },
            CompactionLoad { debt_bytes: 16 << 30, ..calm },
            CompactionLoad { frozen_memtables: 4, ..calm },
        ] {
            assert!(must_stall(&full, &limits));
            assert_eq!(delay_per_byte_ns(&full, &limits), limits.delay_per_byte_ns_max);
        }
        let halfway = CompactionLoad { level0_tables: 24, ..calm };
        assert_eq!(delay_per_byte_ns(&halfway, &limits), limits.delay_per_byte_ns_max / 4.0);
    }

    #[test]
    fn the_delay_grows_in_small_steps() {
        let limits = ThrottleLimits::new(4, 256 << 20);
        let at = |percent: u64| {
            let debt_bytes = (16 << 30) / 100 * percent;
            delay_per_byte_ns(&CompactionLoad { debt_bytes, ..CompactionLoad::default() }, &limits)
        };
        for percent in 0..100 {
            assert!((0.0..=2.5).contains(&(at(percent + 1) - at(percent))), "at {percent} %");
        }
    }

    proptest! {
        #[test]
        fn delay_never_decreases_with_load(
            load in (0usize..60, 0u64..1 << 36, 0usize..8),
            more in (0usize..3, 0u64..1 << 26, 0usize..2),
            trigger in 0usize..12,
            base in prop::sample::select(vec![0, 1, 1 << 20, 256 << 20, u64::MAX]),
        ) {
            let limits = ThrottleLimits::new(trigger, base);
            let less = CompactionLoad {
                level0_tables: load.0, debt_bytes: load.1, frozen_memtables: load.2,
            };
            let more = CompactionLoad {
                level0_tables: load.0 + more.0,
                debt_bytes: load.1 + more.1,
                frozen_memtables: load.2 + more.2,
            };
            let low = delay_per_byte_ns(&less, &limits);
            let high = delay_per_byte_ns(&more, &limits);
            prop_assert!(low.is_finite() && high.is_finite());
            prop_assert!(0.0 <= low && low <= high && high <= limits.delay_per_byte_ns_max);
            prop_assert!(!must_stall(&less, &limits) || must_stall(&more, &limits));
            prop_assert_eq!(must_stall(&less, &limits), low == limits.delay_per_byte_ns_max);
        }
    }
}
