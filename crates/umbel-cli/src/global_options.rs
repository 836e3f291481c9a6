//! Global flags: memory budget, open tables, and the wait for a locked store.

use std::time::Duration;

use clap::Args;
use umbel::Error;
use umbel_events::StoreOptions;

use crate::errors::CommandError;
use crate::text::numbers::integer_parser;

/// Seconds that `--wait` without a number waits.
const WAIT_SECONDS: &str = "60";

/// Memory budget, limit of open tables and lock wait of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Args)]
pub struct StoreLimits {
    /// Memory budget of the store, like 64MiB [default: a quarter of the memory, at most 4GiB]
    #[arg(long, global = true, value_name = "BYTES", value_parser = integer_parser(1, 1 << 50))]
    pub memory: Option<u64>,
    /// Maximum number of open table files [default: half of the file descriptor limit]
    #[arg(long, global = true, value_name = "FILES", value_parser = integer_parser(4, 1 << 32))]
    pub open_tables: Option<u64>,
    /// Wait up to SECONDS while another process has the store open [without a number: 60]
    #[arg(long, global = true, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
        default_missing_value = WAIT_SECONDS, value_parser = integer_parser(0, 86_400))]
    pub wait: Option<u64>,
}

impl StoreLimits {
    /// Returns `options` with these limits.
    pub fn apply_to(&self, options: umbel::Options) -> umbel::Options {
        umbel::Options {
            memory_bytes: self.memory.or(options.memory_bytes),
            open_tables_max: self.open_tables.or(options.open_tables_max),
            lock_wait: self.lock_wait(),
            ..options
        }
    }

    /// Returns the options of an event store with these limits.
    pub fn to_event_store(self) -> StoreOptions {
        StoreOptions {
            memory_bytes: self.memory,
            open_tables_max: self.open_tables,
            lock_wait: self.lock_wait(),
            ..StoreOptions::default()
        }
    }

    /// Time to wait for a store that another process has open.
    pub fn lock_wait(&self) -> Duration {
        Duration::from_secs(self.wait.unwrap_or_default())
    }

    /// Adds the wait time and the remedy to a "store in use" error; returns other errors unchanged.
    pub fn with_lock_wait(&self, failure: CommandError) -> CommandError {
        let CommandError::Store(Error::Locked(path)) = &failure else { return failure };
        let shown = path.display();
        CommandError::Locked(match self.wait {
            Some(seconds) if seconds > 0 => format!(
                "the store in {shown} is still in use by another process after {seconds} s; end \
                 that process first, or wait longer with --wait=SECONDS"
            ),
            _ => format!(
                "the store in {shown} is in use by another process; end that process first, or \
                 wait for it with --wait"
            ),
        })
    }
}

/// Replaces `memory_bytes` in an error by the name of the option that set it.
pub fn with_memory_flag(failure: CommandError, name: &str) -> CommandError {
    match failure {
        CommandError::Usage(text) | CommandError::Store(Error::Invalid(text)) => {
            CommandError::Usage(text.replace("memory_bytes is ", &format!("{name} is ")))
        }
        failure => failure,
    }
}
