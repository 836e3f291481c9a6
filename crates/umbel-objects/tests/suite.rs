//! Tests of the stores and of the probe.

#[cfg(test)]
mod suite {
    mod directory_crashes;
    mod directory_objects;
}
