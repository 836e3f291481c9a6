//! Runs the [advisor](crate::advisor) and applies its decisions: on background threads after
//! flushes and compactions, and on the thread of a reader that misses a filter.

use std::collections::HashMap;
use std::sync::{Arc, TryLockError};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::limits::LEVELS;
use umbel_table::FilterChoice;

use crate::advisor::{FilterOption, PLAIN_PERIOD_GETS, allocate_memory, has_too_few_gets};
use crate::maintenance::memory_enforcement;
use crate::maintenance::shared_memtable_limit;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::Store;
use crate::store_budget::filter_selection::FilterSelection;
use crate::version::{Edit, TableOwner, Version};

/// Number of tables whose filters are replaced together.
const REFILTER_BATCH: usize = 64;

impl TableOwner for Store {
    fn close_readers(&self) {
        shared_memtable_limit::close_readers(self);
    }

    fn note_filter_miss(&self, table: u64) {
        advise_table(self, table);
    }
}

/// Runs the advisor after a flush or compaction, which has changed the tables.
pub fn advise_after_job(store: &Store) {
    advise(store);
    memory_enforcement::release_memory(store);
}

/// Returns the edit that saves a keyspace's read counts in the manifest; `None` if the counts are
/// too small.
pub fn read_stats_edit(keyspace: &KeyspaceState) -> Option<Edit> {
    let mut state = keyspace.advisor.lock();
    state.observe(&keyspace.reads, keyspace.reads.gets());
    let evidence = Some(state.read_stats).filter(|evidence| !has_too_few_gets(evidence.gets))?;
    Some(Edit::ReadStats(keyspace.id, Arc::new(evidence.to_saved())))
}

/// A keyspace for which the advisor decided, and the version for which the decision holds.
type AdvisedVersion = (Arc<KeyspaceState>, Arc<Version>);

/// Decides which filters of every keyspace are kept, and loads or releases filters accordingly.
pub fn advise(store: &Store) {
    let _one_at_a_time = store.advisor_lock.lock().ignore_poison();
    choose_and_refilter(store, None);
}

/// Runs the advisor for a reader that misses the filter of table `id`. Does nothing if another
/// thread runs the advisor. The call reads only the filter of table `id`; filters of other tables
/// are read when readers miss them, or soon by a background thread.
fn advise_table(store: &Store, id: u64) {
    let _one_at_a_time = match store.advisor_lock.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    choose_and_refilter(store, Some(id));
}

/// Decides which filters are kept, and applies the decision to all tables, or only to table `only`.
/// REQUIRES: the caller holds `store.advisor_lock`.
fn choose_and_refilter(store: &Store, only: Option<u64>) {
    let decided = choose_filters(store);
    memory_enforcement::plan_residency(store);
    decided.iter().for_each(|(keyspace, version)| refilter(keyspace, version, only));
    memory_enforcement::enforce_budget(store);
}

/// Restores the plain filters of a keyspace for a period, because its second filters passed more
/// absent keys than predicted.
pub fn restore_plain_filters(store: &Store, keyspace: &KeyspaceState) {
    keyspace.advisor.lock().plain_until = keyspace.reads.gets() + PLAIN_PERIOD_GETS;
    advise(store);
}

/// Number of gets of all keyspaces since the store was opened.
pub fn total_gets(store: &Store) -> u64 {
    store.keyspaces().iter().map(|keyspace| keyspace.reads.gets()).sum()
}

/// Decides which filters are kept, and records the selections for the tables. REQUIRES: the caller
/// holds `store.advisor_lock`.
fn choose_filters(store: &Store) -> Vec<AdvisedVersion> {
    let keyspaces = store.keyspaces();
    let mut offers: Vec<FilterOption> = Vec::new();
    let mut advised = Vec::new();
    let mut decided = Vec::with_capacity(keyspaces.len());
    for keyspace in keyspaces {
        let options = keyspace.options();
        let version = Arc::clone(&keyspace.super_version.load().version);
        let is_advised = {
            let mut state = keyspace.advisor.lock();
            let own = state.filter_options(&version, &options, &keyspace.reads);
            let is_advised = options.advisor && keyspace.reads.gets() >= state.plain_until;
            if is_advised {
                offers.extend(own);
            } else {
                state.selections = [FilterSelection::Plain; LEVELS];
            }
            is_advised
        };
        decided.push((keyspace, version));
        if is_advised {
            advised.push(decided.len() - 1);
        }
    }
    let plain_bytes = offers.iter().map(|offer| offer.bytes(FilterSelection::Plain)).sum();
    let chosen = allocate_memory(&offers, plain_bytes);
    for (&place, chosen) in advised.iter().zip(chosen.chunks(LEVELS)) {
        decided[place].0.advisor.lock().selections.copy_from_slice(chosen);
    }
    for (keyspace, version) in &decided {
        let choices = keyspace.advisor.lock().selections;
        version.tables().for_each(|(level, table)| table.set_selection(choices[level]));
    }
    decided
}

/// Applies the selections to all tables of a version, or only to table `only`.
fn refilter(keyspace: &KeyspaceState, version: &Version, only: Option<u64>) {
    let mut others = HashMap::new();
    for (_, table) in version.tables() {
        if only.is_some_and(|id| id != table.meta.id) {
            continue;
        }
        // A filter that cannot be read now stays as it is: a verify of the table reports the error.
        if let Ok(Some(other)) = table.refiltered() {
            others.insert(table.meta.id, Arc::new(other));
        }
        // Old filters are freed with their super version: not all are to be in memory twice.
        if others.len() >= REFILTER_BATCH {
            keyspace.super_version.refilter(&std::mem::take(&mut others));
        }
    }
    if !others.is_empty() {
        keyspace.super_version.refilter(&others);
    }
}

/// Returns the second filter for new tables of a level, if one pays off. `inputs` are the levels
/// and entry counts of the new tables' inputs; level `None` stands for memtables.
pub fn choose_second_filter(
    store: &Store,
    keyspace: &KeyspaceState,
    target: usize,
    inputs: &[(Option<usize>, u64)],
) -> Option<FilterChoice> {
    let options = keyspace.options();
    let is_explicit = options.level_filters.is_some();
    if !options.advisor || is_explicit || options.bloom_bits <= 0 || store.read_only {
        return None;
    }
    let version = Arc::clone(&keyspace.super_version.load().version);
    let gets = keyspace.reads.gets();
    let mut state = keyspace.advisor.lock();
    state.observe(&keyspace.reads, gets);
    let is_plain = gets < state.plain_until;
    if is_plain { None } else { state.second_filter(&version, &options, target, inputs) }
}
