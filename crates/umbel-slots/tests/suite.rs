//! Tests of the replicated log.

mod suite {
    mod event_exploration;
    mod exploration;
    mod explored_events;
    mod explored_store;
    mod formats;
    mod histories;
    mod newer_objects;
    mod simulation;
}
