//! The real backend against a temporary folder.

#[cfg(test)]
mod suite {
    mod files;
    mod mapping;
    mod world;
}
