//! Tests of the event store through its interface.

mod suite {
    pub mod answers;
    pub mod crashes;
    pub mod damage;
    pub mod ends;
    pub mod full_disk;
    pub mod hooks;
    pub mod opening;
    pub mod page;
    pub mod reading;
    pub mod support;
    pub mod together;
}
