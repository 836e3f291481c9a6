//! [`Labels`]: the labels of a metric.

/// Names and values of a metric's labels.
pub type Labels = Vec<(&'static str, String)>;
