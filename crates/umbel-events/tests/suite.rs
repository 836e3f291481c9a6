//! Tests of the event store through its interface.

mod suite {
    pub mod answers;
    pub mod backup_cuts;
    pub mod backup_scavenged;
    pub mod backups;
    pub mod checks;
    pub mod crashes;
    pub mod damage;
    pub mod ends;
    pub mod filter_speed;
    pub mod filters;
    pub mod filters_by_views;
    pub mod filters_choose;
    pub mod following;
    pub mod full_disk;
    pub mod hooks;
    pub mod imports;
    pub mod links;
    pub mod live_backups;
    pub mod opening;
    pub mod page;
    pub mod reading;
    pub mod restores;
    pub mod rolling;
    pub mod scavenge_crashes;
    pub mod scavenge_histories;
    pub mod scavenge_speed;
    pub mod scavenging;
    pub mod subscriptions;
    pub mod support;
    pub mod together;
    pub mod view_crashes;
    pub mod view_speed;
    pub mod views;
    pub mod views_scavenged;
}
