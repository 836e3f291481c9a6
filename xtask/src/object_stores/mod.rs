//! Servers of object stores for checks, each installed by its registry's client.

pub mod object_server;
