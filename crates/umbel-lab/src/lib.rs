//! The lab: experiments that answer what a filter setting is worth, with measurements that anybody
//! can repeat; and the workloads that every measurement shares.
//!
//! An [`experiment`] is a table of facts in a file of its own. [`run`] measures it in rounds, each
//! repetition watched by [`sanity`] and kept by [`journal`]; what it asks with is made [`ahead`],
//! what engines say is compared by [`answers`]. What it finds is an [`outcome`], which
//! [`results`] keeps in a file, [`terminal`] and [`report`] show and [`compare`] puts beside
//! another. [`engine`] is what a store must be able to do to take part.
#![forbid(unsafe_code)]

pub mod ahead;
pub mod answers;
pub mod command;
pub mod compare;
pub mod disk;
pub mod engine;
pub mod engines;
pub mod experiment;
pub mod experiments;
pub mod journal;
pub mod keys;
pub mod kill;
pub mod lab;
pub mod lab_error;
pub mod latency;
pub mod machine;
pub mod measure;
pub mod number;
pub mod outcome;
pub mod page_cache;
pub mod progress;
pub mod published;
pub mod recorder;
pub mod report;
pub mod results;
pub mod run;
pub mod sanity;
pub mod signals;
pub mod space;
pub mod stopped;
pub mod store_case;
pub mod streams;
pub mod terminal;
mod turns;
pub mod user_data;
pub mod workload;
pub mod ycsb;
pub mod zipfian;
