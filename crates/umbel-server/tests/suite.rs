//! Tests of the server over real connections, with a real store.
#![forbid(unsafe_code)]

#[cfg(test)]
mod suite {
    mod access;
    mod attacks;
    mod batches;
    mod calls;
    mod client;
    mod connection;
    mod console;
    mod filters;
    #[cfg(target_os = "linux")]
    mod fork;
    mod ground;
    mod kv;
    mod kv_access;
    mod kv_client;
    mod kv_watching;
    mod limits;
    mod logs;
    mod names;
    mod operations;
    mod parking;
    mod persistent;
    mod persistent_names;
    mod projections;
    mod records;
    mod reflection;
    mod second;
    mod sessions;
    mod streams;
    mod subscriptions;
    mod surface;
    mod tls;
    mod users;
    mod views;
    mod watching;
}
