//! The binary `umbel`, which is all in the library beside it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Messages are taken by the threads that serve connections and given back by the one that appends;
/// the allocators of C libraries have such threads wait for each other.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    umbel_cli::main()
}
