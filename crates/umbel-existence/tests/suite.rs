//! The tests of the existence filter, in one binary. With the feature `canary` bugs are planted in
//! the whole process, so that only the tests that want them run.

#[cfg(test)]
mod suite {
    #[cfg(not(feature = "canary"))]
    mod concurrency;
    #[cfg(not(feature = "canary"))]
    mod crash_points;
    #[cfg(not(feature = "canary"))]
    mod damage;
    #[cfg(not(feature = "canary"))]
    mod diverged_log;
    #[cfg(feature = "canary")]
    mod failpoints;
    #[cfg(not(feature = "canary"))]
    mod false_positive_rates;
    #[cfg(not(feature = "canary"))]
    mod fixture;
    #[cfg(all(target_os = "linux", not(feature = "canary")))]
    mod fork;
    #[cfg(not(feature = "canary"))]
    mod format_example;
    #[cfg(not(feature = "canary"))]
    mod lifecycle;
    #[cfg(not(feature = "canary"))]
    mod maintenance_cost;
    #[cfg(not(feature = "canary"))]
    mod seeded_scripts;
}
