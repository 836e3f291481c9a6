//! Engines that every build has.

pub mod umbel;

use crate::engine::Engine;

/// The engines of a build without rivals.
pub const OURS: [Engine; 1] = [umbel::ENGINE];
