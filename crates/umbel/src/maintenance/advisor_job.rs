//! Having the [advisor](crate::advisor) decide, and doing what it decided: on the threads of the
//! background, after flushes and compactions, and on that of a reader who misses a filter.

mod report;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, TryLockError};

use umbel_base::limits::LEVELS;
use umbel_table::FilterChoice;

use crate::advisor::{Offer, PLAIN_FOR_GETS, choose, too_few};
use crate::filter_choice::Choice;
use crate::keyspace_core::KeyspaceCore;
use crate::sharing;
use crate::store::Store;
use crate::version::{Edit, Keeper, Version};
use crate::weigh;

pub use report::{FilterAdvice, LevelAdvice, advice};

/// So many tables get other filters at once.
const AT_ONCE: usize = 64;

impl Keeper for Store {
    fn close_readers(&self) {
        sharing::close_readers(self);
    }

    fn advise_for(&self, table: u64) {
        advise_for(self, table);
    }
}

/// After a flush or compaction: other tables, other needs.
pub fn after_work(store: &Store) {
    advise(store);
    weigh::give_back(store);
}

/// What the manifest is to keep of what reads asked; `None` where that is too little.
pub fn edit(keyspace: &KeyspaceCore) -> Option<Edit> {
    let mut state = keyspace.advisor.lock();
    state.look(&keyspace.reads, keyspace.reads.gets());
    let evidence = Some(state.evidence).filter(|evidence| !too_few(evidence.gets))?;
    Some(Edit::Evidence(keyspace.id, Arc::new(evidence.to_saved())))
}

/// A keyspace of which something was decided, and the tables that were looked at.
type Decided = (Arc<KeyspaceCore>, Arc<Version>);

/// Decides anew what is kept of every keyspace's filters, and has it so.
pub fn advise(store: &Store) {
    let _one_at_a_time = store.advising.lock().unwrap_or_else(PoisonError::into_inner);
    decide_and_refilter(store, None);
}

/// The same for whoever misses the filter of table `id` while reading: nothing where somebody is at
/// it, and no filter is read but that table's. The others follow as they are missed themselves, or
/// soon by a background thread.
fn advise_for(store: &Store, id: u64) {
    let _one_at_a_time = match store.advising.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    decide_and_refilter(store, Some(id));
}

/// Decides, and has all tables follow, or the one that is named. REQUIRES: `store.advising`.
fn decide_and_refilter(store: &Store, only: Option<u64>) {
    let decided = decide(store);
    weigh::decide(store);
    decided.iter().for_each(|(keyspace, version)| refilter(keyspace, version, only));
    weigh::keep_within(store);
}

/// Has the plain filters of a keyspace back for some while: somebody asks them on their own.
pub fn bring_back(store: &Store, keyspace: &KeyspaceCore) {
    keyspace.advisor.lock().plain_until = keyspace.reads.gets() + PLAIN_FOR_GETS;
    advise(store);
}

/// Gets of all keyspaces since the store was opened.
pub fn gets(store: &Store) -> u64 {
    store.keyspaces().iter().map(|keyspace| keyspace.reads.gets()).sum()
}

/// Decides, and says it to the tables. REQUIRES: `store.advising`.
fn decide(store: &Store) -> Vec<Decided> {
    let keyspaces = store.keyspaces();
    let mut offers: Vec<Offer> = Vec::new();
    let mut advised = Vec::new();
    let mut decided = Vec::with_capacity(keyspaces.len());
    for keyspace in keyspaces {
        let options = keyspace.options();
        let version = Arc::clone(&keyspace.view.load().version);
        let is_advised = {
            let mut state = keyspace.advisor.lock();
            let own = state.offers(&version, &options, &keyspace.reads);
            let is_advised = options.advisor && keyspace.reads.gets() >= state.plain_until;
            if is_advised {
                offers.extend(own);
            } else {
                state.choices = [Choice::Plain; LEVELS];
            }
            is_advised
        };
        decided.push((keyspace, version));
        if is_advised {
            advised.push(decided.len() - 1);
        }
    }
    let most = offers.iter().map(|offer| offer.bytes(Choice::Plain)).sum();
    let chosen = choose(&offers, most);
    for (&place, chosen) in advised.iter().zip(chosen.chunks(LEVELS)) {
        decided[place].0.advisor.lock().choices.copy_from_slice(chosen);
    }
    for (keyspace, version) in &decided {
        let choices = keyspace.advisor.lock().choices;
        version.tables().for_each(|(level, table)| table.set_choice(choices[level]));
    }
    decided
}

/// Has the tables of a version keep what was chosen for them, or the one that is named.
fn refilter(keyspace: &KeyspaceCore, version: &Version, only: Option<u64>) {
    let mut others = HashMap::new();
    for (_, table) in version.tables() {
        if only.is_some_and(|id| id != table.meta.id) {
            continue;
        }
        // A filter that cannot be read now stays as it is: whoever verifies the table hears why.
        if let Ok(Some(other)) = table.refiltered() {
            others.insert(table.meta.id, Arc::new(other));
        }
        // Those of before go with the view that has them: not all are to be there twice.
        if others.len() >= AT_ONCE {
            keyspace.view.refilter(&std::mem::take(&mut others));
        }
    }
    if !others.is_empty() {
        keyspace.view.refilter(&others);
    }
}

/// The second filter that new tables of a level get, if one is worth it. `inputs` are the levels
/// and entries that go into them, `None` being memtables.
pub fn second_filter(
    store: &Store,
    keyspace: &KeyspaceCore,
    target: usize,
    inputs: &[(Option<usize>, u64)],
) -> Option<FilterChoice> {
    let options = keyspace.options();
    let is_explicit = options.level_filters.is_some();
    if !options.advisor || is_explicit || options.bloom_bits <= 0 || store.read_only {
        return None;
    }
    let version = Arc::clone(&keyspace.view.load().version);
    let gets = keyspace.reads.gets();
    let mut state = keyspace.advisor.lock();
    state.look(&keyspace.reads, gets);
    let is_plain = gets < state.plain_until;
    if is_plain { None } else { state.second_filter(&version, &options, target, inputs) }
}
