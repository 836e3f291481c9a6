//! The engine against a model, and promise by promise.

#[cfg(test)]
mod suite {
    mod keys;
    mod model;
    mod random;
    mod settings;
}
