//! Tests of the real operating system's environment in a temporary directory.

#[cfg(test)]
mod suite {
    mod clock_entropy_threads;
    mod file_system;
    #[cfg(all(target_os = "linux", not(miri)))]
    mod fork;
    mod mapped_file;
}
