//! Tests of the crash disk's promises.

#[cfg(test)]
mod suite {
    mod call_trace;
    mod directories;
    mod faults;
    mod objects;
    mod power_loss;
    mod power_loss_model;
}
