//! Built-in engines.

use crate::engine::Engine;

/// The engines of a build without rivals.
pub const BUILT_IN: [Engine; 1] = [crate::engine::umbel_engine::ENGINE];
