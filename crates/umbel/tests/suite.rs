//! The engine against a model, and promise by promise.

#[cfg(test)]
mod suite {
    mod advisor;
    mod atomicity;
    mod budget;
    mod carried;
    mod child;
    mod directories;
    mod errors;
    mod existence;
    mod existence_damage;
    mod existence_upkeep;
    mod flush_gate;
    mod full_disk;
    mod golden;
    mod hashes;
    mod hooked;
    mod keys;
    mod least;
    mod level_filters;
    mod lifetimes;
    mod limits;
    mod long_values;
    mod model;
    mod no_room;
    mod prefixes;
    mod pressure;
    mod races;
    mod random;
    mod readers;
    mod real_disk;
    mod regressions_arena;
    mod regressions_copies;
    mod regressions_crash;
    mod regressions_directories;
    mod regressions_garbage;
    mod regressions_review;
    mod regressions_upkeep;
    mod segments;
    mod settings;
    mod shared_budget;
    mod space;
    mod stage;
    mod together;
    mod unlogged;
    mod writing;
}
