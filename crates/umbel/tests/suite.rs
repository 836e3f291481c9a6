//! The engine against a model, and promise by promise.

#[cfg(test)]
mod suite {
    mod hooked;
    mod keys;
    mod model;
    mod races;
    mod random;
    mod settings;
    mod stage;
}
