//! The tests of blob files, in one binary.

#[cfg(test)]
mod suite {
    mod damage;
    mod fixture;
    mod format_example;
    mod round_trip;
}
