//! Tests of the replicated log.

mod suite {
    mod bucket_exploration;
    mod bucket_histories;
    mod event_exploration;
    mod exploration;
    mod explored_actions;
    mod explored_events;
    mod explored_objects;
    mod explored_reads;
    mod explored_requests;
    mod explored_store;
    mod explored_world;
    mod formats;
    mod histories;
    mod list_exploration;
    mod moment_exploration;
    mod log_creation;
    mod newer_objects;
    mod object_exploration;
    mod object_histories;
    mod progress_exploration;
    mod read_exploration;
    mod simulation;
}
