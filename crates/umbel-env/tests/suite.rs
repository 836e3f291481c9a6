//! The real backend against a temporary folder.

#[cfg(test)]
mod suite {
    mod files;
    #[cfg(all(target_os = "linux", not(miri)))]
    mod fork;
    mod mapping;
    mod world;
}
