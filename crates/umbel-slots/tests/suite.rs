//! Tests of the replicated log.

mod suite {
    mod exploration;
    mod explored_store;
    mod histories;
    mod simulation;
}
