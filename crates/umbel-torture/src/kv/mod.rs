//! Campaigns against the key-value store: crashes, faults, bit rot, kills, filters, memory.

pub mod advisor;
pub mod big_open;
pub mod bit_rot;
pub mod crash;
pub mod fault_detection;
pub mod faults;
pub mod faulty_env;
pub mod filter_rates;
pub mod first_open_crashes;
pub mod kill;
pub mod memory_budget;
pub mod random_model;
