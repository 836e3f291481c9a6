//! The tests of the existence filter, in one binary. With the feature `canary` bugs are planted in
//! the whole process, so that only the tests that want them run.

#[cfg(test)]
mod suite {
    #[cfg(feature = "canary")]
    mod canaries;
    #[cfg(not(feature = "canary"))]
    mod damage;
    #[cfg(not(feature = "canary"))]
    mod faults;
    #[cfg(all(target_os = "linux", not(feature = "canary")))]
    mod fork;
    #[cfg(not(feature = "canary"))]
    mod histories;
    mod histories_apart;
    mod history;
    mod keys;
    #[cfg(not(feature = "canary"))]
    mod life;
    #[cfg(not(feature = "canary"))]
    mod page;
    #[cfg(feature = "canary")]
    mod plants;
    #[cfg(not(feature = "canary"))]
    mod rates;
    mod rot;
    #[cfg(not(feature = "canary"))]
    mod stage;
    #[cfg(not(feature = "canary"))]
    mod threads;
    #[cfg(not(feature = "canary"))]
    mod upkeep;
}
