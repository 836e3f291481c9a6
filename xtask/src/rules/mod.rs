//! The rules for sources, documents, layers and modules, and what they report.

pub mod architecture_call_paths;
pub mod const_expression;
pub mod crate_rules;
pub mod documents;
pub mod failpoints;
pub mod forbidden_uses;
pub mod lock_files;
pub mod module_cycles;
pub mod prose;
pub mod size_exceptions;
pub mod tidy;
pub mod violation;
