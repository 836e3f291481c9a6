//! The tests of table files from outside: against a model, against damage, and their bytes.

#[path = "suite/damage.rs"]
mod damage;
#[path = "suite/memory.rs"]
mod memory;
#[path = "suite/model.rs"]
mod model;
#[path = "suite/world.rs"]
mod world;
