//! Tests of the replicated log.

mod suite {
    mod bucket_exploration;
    mod bucket_histories;
    mod event_exploration;
    mod exploration;
    mod explored_events;
    mod explored_requests;
    mod explored_store;
    mod formats;
    mod histories;
    mod newer_objects;
    mod simulation;
}
