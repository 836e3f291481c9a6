//! Users, passwords, ACLs, the calls' required roles, and their caches.

pub mod acl;
pub mod acl_cache;
pub mod append_invalidated_cache;
pub mod call_policy;
pub mod name_list;
pub mod passwords;
pub mod readable_streams;
pub mod users;
