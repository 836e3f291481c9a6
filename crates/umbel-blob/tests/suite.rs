//! The tests of blob files, in one binary.

#[cfg(test)]
mod suite {
    mod damage;
    mod page;
    mod round;
    mod stage;
}
