//! Programs that checks need, build folders, and the steps of a check.

pub mod built_programs;
pub mod steps;
pub mod tool_install;
