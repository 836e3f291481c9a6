//! Tests of the engine: against a model, and for each promise.

#[cfg(test)]
mod suite {
    mod advisor;
    mod atomicity;
    mod blobs;
    mod cache_warming;
    mod child_process;
    mod compaction_steps;
    mod concurrency_races;
    mod deleted_space;
    mod directory_moves;
    mod disk_full;
    mod disk_full_background;
    mod disk_full_kernel;
    mod disk_space;
    mod existence;
    mod existence_damage;
    mod existence_maintenance;
    mod fixture;
    mod flush_precondition;
    mod golden_stores;
    mod hash_kinds;
    mod hooked_files;
    mod invalid_input;
    mod iterator_lifetimes;
    mod key_shapes;
    mod keyspaces_without_wal;
    mod level_filters;
    mod limits;
    mod memory_budget;
    mod memory_minimum;
    mod model;
    mod multi_get;
    mod object_backup_campaign;
    mod object_backups;
    mod option_sets;
    mod prefix_filters;
    mod queues;
    mod range_deletes;
    mod read_only;
    mod regressions_arena;
    mod regressions_crash;
    mod regressions_directories;
    mod regressions_garbage;
    mod regressions_maintenance;
    mod regressions_review;
    mod regressions_store_copies;
    mod shared_budget;
    mod table_writing;
    mod wal_segments;
    mod worker_panic;
    mod write_stall;
}
