//! Tests of the server over real connections, with a real store.
#![forbid(unsafe_code)]

#[cfg(test)]
mod suite {
    mod access_log;
    mod append_read_delete;
    mod append_records;
    mod append_session;
    mod backup_stops;
    mod batch_append;
    mod call_policy;
    mod client;
    mod console;
    mod continuous_backups;
    mod damage;
    mod deleted_streams;
    mod event_filters;
    #[cfg(target_os = "linux")]
    mod fork;
    mod group_metrics;
    mod group_skipped_events;
    mod group_streams;
    mod hostile_clients;
    mod http_api;
    mod http_client;
    mod http_endpoints;
    mod http_streams;
    mod http_work;
    mod indexes;
    mod kv;
    mod kv_access;
    mod kv_client;
    mod kv_watch_model;
    mod limits;
    mod log_quota;
    mod long_names;
    mod many_groups;
    mod monitoring;
    mod operations;
    mod parked_events;
    mod persistent_subscription_names;
    mod persistent_subscriptions;
    mod projections;
    mod reflection;
    mod stream_permissions;
    mod subscriptions;
    #[cfg(feature = "otlp")]
    mod telemetry;
    mod test_server;
    mod tls;
    mod users;
    mod v2_client;
    mod views;
}
