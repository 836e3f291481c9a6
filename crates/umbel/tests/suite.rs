//! The engine against a model, and promise by promise.

#[cfg(test)]
mod suite {
    mod atomicity;
    mod errors;
    mod hooked;
    mod keys;
    mod limits;
    mod model;
    mod races;
    mod random;
    mod settings;
    mod stage;
    mod unlogged;
}
