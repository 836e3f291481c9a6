//! The flags that every command has: what the store may take of the machine, and how long to wait
//! for it.

use std::time::Duration;

use clap::Args;
use umbel::Error;

use crate::errors::Failure;
use crate::number::counts;

/// How long `--wait` without a number waits, in seconds.
const WAIT_SECONDS: &str = "60";

/// What a store may take of the machine, and how long it may take to get it.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Limits {
    /// Bytes of memory for everything the store keeps (like 64MiB) [default: a quarter, up to 4GiB]
    #[arg(long, global = true, value_name = "BYTES", value_parser = counts(1, 1 << 50))]
    pub memory: Option<u64>,
    /// Files of tables that may be open at the same time [default: half of what may be open]
    #[arg(long, global = true, value_name = "FILES", value_parser = counts(4, 1 << 32))]
    pub open_tables: Option<u64>,
    /// Wait while another process has the store open, and give up after so many seconds [60]
    #[arg(long, global = true, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
        default_missing_value = WAIT_SECONDS, value_parser = counts(0, 86_400))]
    pub wait: Option<u64>,
}

impl Limits {
    /// `options` with what was given.
    pub fn put_into(&self, options: umbel::Options) -> umbel::Options {
        umbel::Options {
            memory_bytes: self.memory.or(options.memory_bytes),
            open_tables_max: self.open_tables.or(options.open_tables_max),
            lock_wait: self.lock_wait(),
            ..options
        }
    }

    /// How long to wait for a store that another process has open.
    pub fn lock_wait(&self) -> Duration {
        Duration::from_secs(self.wait.unwrap_or_default())
    }

    /// The failure, where it is a store in use with how long it was waited for and what to do.
    pub fn waited(&self, failure: Failure) -> Failure {
        let Failure::Store(Error::Locked(path)) = &failure else { return failure };
        let shown = path.display();
        Failure::Locked(match self.wait {
            Some(seconds) if seconds > 0 => format!(
                "the store in {shown} is still in use by another process after {seconds} s; close \
                 that one first, or wait longer with --wait=SECONDS"
            ),
            _ => format!(
                "the store in {shown} is in use by another process; close that one first, or wait \
                 for it with --wait"
            ),
        })
    }
}

/// The failure with the name that whoever gave the memory gave it by.
pub fn memory_named(failure: Failure, name: &str) -> Failure {
    match failure {
        Failure::Usage(text) | Failure::Store(Error::Invalid(text)) => {
            Failure::Usage(text.replace("memory_bytes is ", &format!("{name} is ")))
        }
        failure => failure,
    }
}
