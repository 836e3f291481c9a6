//! Runs the binary `umbel` and checks its output and exit codes.
#![forbid(unsafe_code)]

#[cfg(test)]
mod suite {
    mod backups;
    mod bad_input;
    mod bench;
    mod bench_parsers;
    mod commands;
    mod continuous_backups;
    mod doctor;
    mod events;
    mod filter;
    mod groups;
    mod import;
    mod import_events;
    mod in_process_server;
    mod lab;
    mod lock_wait;
    mod metadata;
    mod object_backups;
    mod object_stores;
    mod printed_commands;
    mod removal_kills;
    mod removals;
    mod repairs;
    mod replicated_servers;
    #[cfg(feature = "buckets")]
    mod s3_backups;
    mod scavenge_kills;
    mod serve;
    mod serve_errors;
    mod serve_kv;
    mod serve_log;
    mod server_writes;
    mod test_binary;
    mod transcript;
    mod users;
}
