//! [`RecoveryReport`]: what lost disks cost, as a page.

use std::time::Duration;

use umbel_lab::measure::machine::Machine;

use crate::lost_events::LostEvents;

/// One lost disk.
#[derive(Debug, Clone)]
pub struct Try {
    /// Time for which the writers wrote.
    pub time: Duration,
    /// Number of acknowledged events.
    pub acknowledged: usize,
    /// Events that the restored store lacks.
    pub lost: LostEvents,
    /// Duration of the restore.
    pub restore_time: Duration,
}

impl Try {
    /// The row of the table.
    pub fn line(&self) -> String {
        format!(
            "| {:.1} | {} | {} | {:.1} | {:.2} |",
            self.time.as_secs_f64(),
            self.acknowledged,
            self.lost.count,
            self.lost.time.as_secs_f64(),
            self.restore_time.as_secs_f64()
        )
    }
}

/// All lost disks.
#[derive(Debug)]
pub struct RecoveryReport {
    /// Time between two runs of the backup.
    pub interval: Duration,
    /// Time that one run can take.
    pub upload: Duration,
    /// The measuring machine.
    pub machine: Machine,
    /// Number of writers.
    pub writers: usize,
    /// Lost disks.
    pub tries: Vec<Try>,
}

impl RecoveryReport {
    /// Whether no try lost more than the interval and one upload.
    pub fn is_good(&self) -> bool {
        self.tries.iter().all(|done| done.lost.time <= self.interval + self.upload)
    }

    /// The page.
    pub fn markdown(&self) -> String {
        let most = self.tries.iter().map(|done| done.lost.time).max().unwrap_or_default();
        let sum = |value: fn(&Try) -> usize| self.tries.iter().map(value).sum::<usize>();
        let mut page = format!(
            "# Recovery point of continuous backups\n\n{}. Appends are synced.\n\n`cargo xtask \
             disk-losses`. {} writers append one event of 300 bytes after the other to `umbel \
             serve --backup-to --backup-interval {}s`. At a random moment the server is killed \
             with `SIGKILL` and its disk is lost. The store is restored from the backup, whole \
             and to the time of one of its events.\n\n- {} lost disks; at most {:.1} s of \
             acknowledged events were lost; the limit is {} s.\n- {} acknowledged events; {} of \
             them were lost. Every restored stream was a prefix of what its writer wrote.\n- \
             Every restore to a time had exactly the events up to it.\n\n| seconds of writing | \
             acknowledged events | lost events | seconds lost | seconds of the restore \
             |\n|--:|--:|--:|--:|--:|\n",
            self.machine.summary(),
            self.writers,
            self.interval.as_secs(),
            self.tries.len(),
            most.as_secs_f64(),
            (self.interval + self.upload).as_secs(),
            sum(|done| done.acknowledged),
            sum(|done| done.lost.count),
        );
        for done in &self.tries {
            page.push_str(&done.line());
            page.push('\n');
        }
        page
    }
}
