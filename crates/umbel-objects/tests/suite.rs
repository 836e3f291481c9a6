//! Tests of the stores and of the probe.

#[cfg(test)]
mod suite {
    mod directory_crashes;
    mod directory_objects;
    mod event_backups;
    mod probe;
    #[cfg(feature = "s3")]
    mod s3_answers;
    #[cfg(feature = "s3")]
    mod s3_servers;
}
