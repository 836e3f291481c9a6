//! What LevelDB tells in its own log of what it does in the background.

/// Flushes and compactions that are done, of which the library keeps no count but tells in the file
/// that it begins anew when the store is opened.
pub fn jobs(told: &str) -> u64 {
    let done = |line: &&str| {
        let (_, said) = line.split_once(' ').unwrap_or_default();
        let flushed = said.contains("Level-0 table #") && !said.ends_with("started");
        flushed || ["Compacted ", "Moved #"].iter().any(|begin| said.contains(begin))
    };
    told.lines().filter(done).count() as u64
}

/// Whether a flush or a compaction was begun that has not ended: each says so when it begins, and
/// when it is done or has failed.
pub fn is_under_way(told: &str) -> bool {
    let (mut flushes, mut compactions) = (0i64, 0i64);
    for line in told.lines() {
        let (_, said) = line.split_once(' ').unwrap_or_default();
        match said {
            _ if said.contains("Level-0 table #") => {
                flushes += if said.ends_with("started") { 1 } else { -1 };
            }
            _ if said.contains("Compacting ") => compactions += 1,
            _ if said.contains("Compacted ") || said.contains("Compaction error") => {
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
    fn what_is_done_is_counted_and_not_what_begins() {
        let told = "\
2026/11/22-17:00:00.000000 1 Level-0 table #9: started
2026/11/22-17:00:00.100000 1 Level-0 table #9: 2100 bytes OK
2026/11/22-17:00:00.200000 1 Delete type=0 #8
2026/11/22-17:00:00.300000 1 Compacting 1@0 + 0@1 files
2026/11/22-17:00:00.400000 1 Generated table #10@0: 5 keys, 2100 bytes
2026/11/22-17:00:00.500000 1 Compacted 1@0 + 0@1 files => 2100 bytes
2026/11/22-17:00:00.600000 1 compacted to: files[ 0 1 0 0 0 0 0 ]
2026/11/22-17:00:00.700000 1 Moved #10 to level-2 2100 bytes OK: files[ 0 0 1 0 0 0 0 ]
";
        assert_eq!(jobs(told), 3);
        assert_eq!(jobs(""), 0);
    }

    /// The story: levels rest while a long compaction goes on, so that a store in the middle of one
    /// was taken for settled after two seconds.
    #[test]
    fn what_has_begun_and_not_ended_is_under_way() {
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
            assert_eq!(is_under_way(&lines.concat()), expected, "{lines:?}");
        }
    }
}
