//! Programs that checks need, build folders, and the steps of a check.

pub mod background_checks;
pub mod built_programs;
pub mod check_steps;
pub mod tool_install;
