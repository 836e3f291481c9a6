//! What the crash disk promises, tried against itself.

#[cfg(test)]
mod suite {
    mod directories;
    mod faults;
    mod model;
    mod survival;
    mod watching;
}
