//! The tests of the log file, in one binary.

#[cfg(test)]
mod suite {
    mod basics;
    mod crash;
    mod damage;
    mod disk;
    mod held;
    mod hostile;
    mod model;
    mod page;
    mod properties;
    mod reuse;
    mod tears;
}
