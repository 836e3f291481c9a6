//! What the crash disk promises, tried against itself.

#[cfg(test)]
mod suite {
    mod faults;
    mod model;
    mod survival;
    mod watching;
}
