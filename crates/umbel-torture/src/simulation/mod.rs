//! Scripts on a simulated machine, the oracle of allowed states, checks of crash images.

pub mod call_observer;
pub mod crash_image_check;
pub mod full_read;
pub mod oracle;
pub mod script;
pub mod script_runner;
pub mod scripts;
pub mod state_diff;
