//! Tests of the crash disk's promises.

#[cfg(test)]
mod suite {
    mod call_trace;
    mod directories;
    mod faults;
    mod survival;
    mod survival_model;
}
