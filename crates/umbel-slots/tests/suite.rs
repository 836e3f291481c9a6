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
    mod log_creation;
    mod moment_exploration;
    mod newer_objects;
    mod node_claims;
    mod object_exploration;
    mod object_histories;
    mod progress_exploration;
    mod read_exploration;
    mod simulation;
}
