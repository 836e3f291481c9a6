//! False-positive rates in closed form, and the arithmetic under them.

pub mod blocked_rate;
pub mod double_double;
pub mod standard_rate;
