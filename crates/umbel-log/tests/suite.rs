//! The tests of the log file, in one binary.

#[cfg(test)]
mod suite {
    mod adversarial_bytes;
    mod append_and_read;
    mod continued_logs;
    mod crash_points;
    mod damage;
    mod format_example;
    mod memory_disk;
    mod model_format;
    mod pending_records;
    mod random_damage;
    mod recycling;
    mod torn_segments;
}
