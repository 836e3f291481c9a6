//! The tests of the existence filter, in one binary. With the feature `failpoints` faults are
//! active in the whole process, so that only the tests that need them run.

#[cfg(test)]
mod suite {
    #[cfg(not(feature = "failpoints"))]
    mod concurrency;
    #[cfg(not(feature = "failpoints"))]
    mod crash_points;
    #[cfg(not(feature = "failpoints"))]
    mod damage;
    #[cfg(not(feature = "failpoints"))]
    mod diverged_log;
    #[cfg(feature = "failpoints")]
    mod failpoints;
    #[cfg(not(feature = "failpoints"))]
    mod false_positive_rates;
    #[cfg(not(feature = "failpoints"))]
    mod fixture;
    #[cfg(all(target_os = "linux", not(feature = "failpoints")))]
    mod fork;
    #[cfg(not(feature = "failpoints"))]
    mod format_example;
    #[cfg(not(feature = "failpoints"))]
    mod lifecycle;
    #[cfg(not(feature = "failpoints"))]
    mod maintenance_cost;
    mod seeded_scripts;
}
