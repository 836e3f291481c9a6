//! The flags that every command has and that bound what the store takes of the machine.

use clap::Args;
use umbel::Error;

use crate::errors::Failure;
use crate::number::counts;

/// What a store may take of the machine.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Limits {
    /// Bytes of memory for everything the store keeps (like 64MiB) [default: a quarter, up to 4GiB]
    #[arg(long, global = true, value_name = "BYTES", value_parser = counts(1, 1 << 50))]
    pub memory: Option<u64>,
    /// Files of tables that may be open at the same time [default: half of what may be open]
    #[arg(long, global = true, value_name = "FILES", value_parser = counts(4, 1 << 32))]
    pub open_tables: Option<u64>,
}

impl Limits {
    /// `options` with what was given.
    pub fn put_into(&self, options: umbel::Options) -> umbel::Options {
        umbel::Options {
            memory_bytes: self.memory.or(options.memory_bytes),
            open_tables_max: self.open_tables.or(options.open_tables_max),
            ..options
        }
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
