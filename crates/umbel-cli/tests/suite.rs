//! Runs the binary `umbel` as a person or a script does, and looks at what it writes and with
//! which code it exits.
#![forbid(unsafe_code)]

#[cfg(test)]
mod suite {
    mod backups;
    mod bad_input;
    mod bench;
    mod bench_parsers;
    mod commands;
    #[expect(dead_code, reason = "the calls of streams are for other suites")]
    #[path = "../../../umbel-server/tests/suite/connection.rs"]
    mod connection;
    mod doctor;
    mod events;
    mod filter;
    mod harness;
    mod import;
    mod import_events;
    mod lab;
    mod metadata;
    mod repairs;
    mod scavenge_kills;
    mod serve;
    mod serve_kv;
    mod serve_log;
    mod serve_refused;
    mod transcript;
    mod waiting;
}
