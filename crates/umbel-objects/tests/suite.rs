//! Tests of the stores and of the probe.

#[cfg(test)]
mod suite {
    mod directory_crashes;
    mod directory_objects;
    mod event_backups;
    #[cfg(feature = "buckets")]
    mod gcs_azure_answers;
    mod probe;
    mod replica_nodes;
    mod replicated_log;
    #[cfg(feature = "buckets")]
    mod s3_answers;
    #[cfg(feature = "buckets")]
    mod s3_servers;
    #[cfg(feature = "buckets")]
    mod s3_settings;
    #[cfg(feature = "buckets")]
    mod stand_in;
}
