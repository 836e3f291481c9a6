//! Reads from LevelDB's info log which background work has run.

/// Counts the finished flushes and compactions. The library keeps no count of these jobs, but logs
/// each job in a file that it restarts when the store is opened.
pub fn finished_jobs(log: &str) -> u64 {
    let done = |line: &&str| {
        let (_, message) = line.split_once(' ').unwrap_or_default();
        let flushed = message.contains("Level-0 table #") && !message.ends_with("started");
        flushed || ["Compacted ", "Moved #"].iter().any(|begin| message.contains(begin))
    };
    log.lines().filter(done).count() as u64
}

/// Whether a flush or a compaction has begun and not ended. Each job logs a line when it begins,
/// and another line when it is done or has failed.
pub fn is_job_running(log: &str) -> bool {
    let (mut flushes, mut compactions) = (0i64, 0i64);
    for line in log.lines() {
        let (_, message) = line.split_once(' ').unwrap_or_default();
        match message {
            _ if message.contains("Level-0 table #") => {
                flushes += if message.ends_with("started") { 1 } else { -1 };
            }
            _ if message.contains("Compacting ") => compactions += 1,
            _ if message.contains("Compacted ") || message.contains("Compaction error") => {
                compactions -= 1;
            }
            _ => {}
        }
    }
    flushes > 0 || compactions > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_jobs_are_counted_without_begun_ones() {
        let log = "\
2026/11/22-17:00:00.000000 1 Level-0 table #9: started
2026/11/22-17:00:00.100000 1 Level-0 table #9: 2100 bytes OK
2026/11/22-17:00:00.200000 1 Delete type=0 #8
2026/11/22-17:00:00.300000 1 Compacting 1@0 + 0@1 files
2026/11/22-17:00:00.400000 1 Generated table #10@0: 5 keys, 2100 bytes
2026/11/22-17:00:00.500000 1 Compacted 1@0 + 0@1 files => 2100 bytes
2026/11/22-17:00:00.600000 1 compacted to: files[ 0 1 0 0 0 0 0 ]
2026/11/22-17:00:00.700000 1 Moved #10 to level-2 2100 bytes OK: files[ 0 0 1 0 0 0 0 ]
";
        assert_eq!(finished_jobs(log), 3);
        assert_eq!(finished_jobs(""), 0);
    }

    /// Story: levels do not change during a long compaction. A store in the middle of a compaction
    /// was taken for settled after two seconds.
    #[test]
    fn job_is_running_between_begin_and_end() {
        let flush = "2026/11/22-17:00:00.000000 1 Level-0 table #9: started\n";
        let flushed = "2026/11/22-17:00:00.100000 1 Level-0 table #9: 2100 bytes OK\n";
        let begun = "2026/11/22-17:00:00.300000 1 Compacting 1@0 + 0@1 files\n";
        let made = "2026/11/22-17:00:00.400000 1 Generated table #10@0: 5 keys, 2100 bytes\n";
        let done = "2026/11/22-17:00:00.500000 1 Compacted 1@0 + 0@1 files => 2100 bytes\n";
        for (lines, expected) in [
            (vec![], false),
            (vec![flush], true),
            (vec![flush, flushed], false),
            (vec![flush, flushed, begun, made], true),
            // A flush in the middle of a compaction.
            (vec![begun, flush, flushed], true),
            (vec![begun, flush, flushed, made, done], false),
        ] {
            assert_eq!(is_job_running(&lines.concat()), expected, "{lines:?}");
        }
    }
}
