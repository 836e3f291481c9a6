//! The real backend against a temporary folder.

#[cfg(test)]
mod suite {
    mod clock_entropy_threads;
    mod file_system;
    #[cfg(all(target_os = "linux", not(miri)))]
    mod fork;
    mod mapped_file;
}
