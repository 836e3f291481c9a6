//! Campaigns against the key-value store: crashes, faults, bit rot, kills, filters, memory.

pub mod advisor;
pub mod bit_rot;
pub mod crash;
pub mod fault_campaign;
pub mod filter_rates;
pub mod first_open_crashes;
pub mod kill;
pub mod memory_budget;
pub mod open_time;
pub mod planted_env_bugs;
pub mod planted_fault_campaign;
pub mod random_model;
