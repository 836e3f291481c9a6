//! Back-pressure: how much a writer is slowed so that compaction keeps up.
//!
//! One number between 0 and 1 says how far the store is from its soft limits (0) to its hard ones
//! (1); the limit nearest to being reached counts. Between them each byte written costs a delay
//! that grows with the square of that number, so that writers feel almost nothing at first and
//! settle where they write as fast as compaction clears away, instead of stopping and starting.
//! At a hard limit writers wait on a condition variable that the end of a flush or compaction
//! signals. Nothing here waits or knows the time: the caller adds up the delay of what it wrote and
//! waits once, outside every lock.

/// What presses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Tables in level 0.
    pub level0_tables: usize,
    /// Bytes that compactions have to move until all levels are within their targets.
    pub debt_bytes: u64,
    /// Memtables that wait to be flushed.
    pub immutable_memtables: usize,
}

/// From where on writers are slowed (`soft`) and where they wait (`hard`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Tables in level 0. INVARIANT, as for the others: soft is less than hard.
    pub level0_tables_soft: usize,
    /// Tables in level 0 at which writers wait.
    pub level0_tables_hard: usize,
    /// Compaction debt.
    pub debt_bytes_soft: u64,
    /// Compaction debt at which writers wait.
    pub debt_bytes_hard: u64,
    /// Memtables that wait to be flushed.
    pub immutable_memtables_soft: usize,
    /// Memtables waiting at which writers wait.
    pub immutable_memtables_hard: usize,
    /// The delay per byte just below a hard limit.
    pub delay_per_byte_ns_max: f64,
}

impl Limits {
    /// Limits that fit a keyspace: level 0 may grow to three times its trigger before writers are
    /// slowed and to nine times before they wait; debt counts from four times what the base level
    /// holds; the third memtable waiting slows and the fourth stops. Just below a stop 100 ns a
    /// byte leave 10 MB a second, which at ten bytes written for each is what slow disks manage.
    pub fn new(level0_trigger: usize, level_bytes_base: u64) -> Limits {
        let trigger = level0_trigger.max(1);
        let base = level_bytes_base.max(1);
        Limits {
            level0_tables_soft: trigger.saturating_mul(3),
            level0_tables_hard: trigger.saturating_mul(9),
            debt_bytes_soft: base.saturating_mul(4).min(u64::MAX - 1),
            debt_bytes_hard: base.saturating_mul(64),
            immutable_memtables_soft: 2,
            immutable_memtables_hard: 4,
            delay_per_byte_ns_max: 100.0,
        }
    }

    /// How far `load` is on the way from the soft limits (0 and below) to the hard ones (1).
    fn way(&self, load: &Load) -> f64 {
        let part = |value: f64, soft: f64, hard: f64| (value - soft) / (hard - soft).max(1.0);
        let level0 = part(
            load.level0_tables as f64,
            self.level0_tables_soft as f64,
            self.level0_tables_hard as f64,
        );
        let debt =
            part(load.debt_bytes as f64, self.debt_bytes_soft as f64, self.debt_bytes_hard as f64);
        let memtables = part(
            load.immutable_memtables as f64,
            self.immutable_memtables_soft as f64,
            self.immutable_memtables_hard as f64,
        );
        level0.max(debt).max(memtables)
    }
}

/// What a writer is to be delayed for each byte it writes: 0 up to the soft limits, then growing
/// with the square of the way to the hard ones; never more than the maximum.
pub fn delay_per_byte_ns(load: &Load, limits: &Limits) -> f64 {
    let way = limits.way(load).clamp(0.0, 1.0);
    limits.delay_per_byte_ns_max * way * way
}

/// Whether writers must wait until a flush or compaction has ended.
pub fn must_wait(load: &Load, limits: &Limits) -> bool {
    limits.way(load) >= 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_below_the_soft_limits_and_waiting_at_the_hard_ones() {
        let limits = Limits::new(4, 256 << 20);
        let calm = Load { level0_tables: 12, debt_bytes: 1 << 30, immutable_memtables: 1 };
        assert_eq!(delay_per_byte_ns(&calm, &limits), 0.0);
        assert!(!must_wait(&calm, &limits));
        for full in [
            Load { level0_tables: 36, ..calm },
            Load { debt_bytes: 16 << 30, ..calm },
            Load { immutable_memtables: 4, ..calm },
        ] {
            assert!(must_wait(&full, &limits));
            assert_eq!(delay_per_byte_ns(&full, &limits), limits.delay_per_byte_ns_max);
        }
        let halfway = Load { level0_tables: 24, ..calm };
        assert_eq!(delay_per_byte_ns(&halfway, &limits), limits.delay_per_byte_ns_max / 4.0);
    }

    #[test]
    fn the_delay_grows_in_small_steps() {
        let limits = Limits::new(4, 256 << 20);
        let at = |percent: u64| {
            let debt_bytes = (16 << 30) / 100 * percent;
            delay_per_byte_ns(&Load { debt_bytes, ..Load::default() }, &limits)
        };
        for percent in 0..100 {
            assert!((0.0..=2.5).contains(&(at(percent + 1) - at(percent))), "at {percent} %");
        }
    }

    proptest! {
        #[test]
        fn more_load_never_means_less_delay(
            load in (0usize..60, 0u64..1 << 36, 0usize..8),
            more in (0usize..3, 0u64..1 << 26, 0usize..2),
            trigger in 0usize..12,
            base in prop::sample::select(vec![0, 1, 1 << 20, 256 << 20, u64::MAX]),
        ) {
            let limits = Limits::new(trigger, base);
            let less = Load {
                level0_tables: load.0, debt_bytes: load.1, immutable_memtables: load.2,
            };
            let more = Load {
                level0_tables: load.0 + more.0,
                debt_bytes: load.1 + more.1,
                immutable_memtables: load.2 + more.2,
            };
            let low = delay_per_byte_ns(&less, &limits);
            let high = delay_per_byte_ns(&more, &limits);
            prop_assert!(low.is_finite() && high.is_finite());
            prop_assert!(0.0 <= low && low <= high && high <= limits.delay_per_byte_ns_max);
            prop_assert!(!must_wait(&less, &limits) || must_wait(&more, &limits));
            prop_assert_eq!(must_wait(&less, &limits), low == limits.delay_per_byte_ns_max);
        }
    }
}
