//! [`WatchIndex`]: the watches by keyspace and prefix.
//!
//! INVARIANT: the nodes of a keyspace are sorted by prefix. So the prefixes of a key are all among
//! the last node that does not sort after it, and that node's ancestors.

use std::collections::{BTreeSet, HashMap, HashSet};

use umbel_proto::kv::OperationKind;

use crate::kv_store::write_request::WriteOperation;

use super::WatchFilter;

/// Number of a watch. Later ones have higher numbers.
pub type WatchNumber = u64;

/// Watches by keyspace and prefix.
#[derive(Debug, Default)]
pub struct WatchIndex {
    keyspaces: HashMap<String, Vec<PrefixNode>>,
    /// Number of nodes that searches visited.
    #[cfg(test)]
    pub visited: std::cell::Cell<usize>,
    /// Number of nodes that were linked to their ancestors.
    #[cfg(test)]
    pub linked: usize,
}

/// Watches of one prefix. The first node of a keyspace has the empty prefix.
#[derive(Debug)]
struct PrefixNode {
    prefix: Vec<u8>,
    watches: BTreeSet<WatchNumber>,
    /// Node of the longest other prefix that begins this one; the first node is its own parent.
    parent: usize,
    /// An ancestor. The steps over ancestors are such that few of them lead to each.
    jump: usize,
    depth: usize,
}

impl WatchIndex {
    /// Adds a watch.
    pub fn insert(&mut self, filter: &WatchFilter, watch: WatchNumber) {
        let nodes = self.keyspaces.entry(filter.keyspace.clone()).or_default();
        for prefix in [&[][..], &filter.prefix] {
            if let Err(index) = nodes.binary_search_by(|node| (*node.prefix).cmp(prefix)) {
                nodes.insert(index, PrefixNode::new(prefix));
            }
        }
        if let Ok(index) = nodes.binary_search_by(|node| node.prefix.cmp(&filter.prefix)) {
            nodes[index].watches.insert(watch);
        }
        link(nodes);
        #[cfg(test)]
        {
            self.linked += nodes.len();
        }
    }

    /// Removes these watches. Links the nodes of each keyspace once.
    pub fn remove_all<'a>(
        &mut self,
        watches: impl Iterator<Item = (&'a WatchFilter, WatchNumber)>,
    ) {
        let mut keyspaces: HashSet<&str> = HashSet::new();
        for (filter, watch) in watches {
            let Some(nodes) = self.keyspaces.get_mut(&filter.keyspace) else { continue };
            if let Ok(index) = nodes.binary_search_by(|node| node.prefix.cmp(&filter.prefix)) {
                nodes[index].watches.remove(&watch);
            }
            keyspaces.insert(&filter.keyspace);
        }
        for keyspace in keyspaces {
            let Some(nodes) = self.keyspaces.get_mut(keyspace) else { continue };
            if nodes.iter().all(|node| node.watches.is_empty()) {
                self.keyspaces.remove(keyspace);
                continue;
            }
            nodes.retain(|node| node.prefix.is_empty() || !node.watches.is_empty());
            link(nodes);
            #[cfg(test)]
            {
                self.linked += nodes.len();
            }
        }
    }

    /// Returns the watches of these operations, and no others unless a range is empty.
    pub fn watches_of(&self, operations: &[WriteOperation]) -> BTreeSet<WatchNumber> {
        let mut watches = BTreeSet::new();
        let mut done: HashMap<&str, DoneNodes> = HashMap::new();
        for operation in operations {
            let Some((name, nodes)) = self.keyspaces.get_key_value(operation.keyspace.name())
            else {
                continue;
            };
            let done = done.entry(name).or_default();
            let (start, end) = match &operation.kind {
                OperationKind::Put(entry) => (&entry.key[..], None),
                OperationKind::Delete(key) => (&key[..], None),
                OperationKind::DeleteRange(range) => (&range.start[..], Some(&range.end[..])),
            };
            let mut add = |index: usize| {
                if done.added.insert(index) {
                    watches.extend(&nodes[index].watches);
                }
            };
            let mut index = self.longest_prefix(nodes, start);
            // The ancestors of a node that was reached like this were reached, too.
            while done.reached.insert(index) {
                self.count_visit();
                add(index);
                index = nodes[index].parent;
            }
            if let Some(end) = end {
                let from = nodes.partition_point(|node| &*node.prefix < start);
                let inside = nodes[from..].iter().take_while(|node| &*node.prefix < end);
                (from..from + inside.count()).for_each(|index| {
                    self.count_visit();
                    add(index);
                });
            }
        }
        watches
    }

    /// Returns the node of the longest prefix of this key.
    fn longest_prefix(&self, nodes: &[PrefixNode], key: &[u8]) -> usize {
        let mut index = nodes.partition_point(|node| &*node.prefix <= key).saturating_sub(1);
        let equal = nodes[index].prefix.iter().zip(key).take_while(|(one, other)| one == other);
        let common_bytes = equal.count();
        while nodes[index].prefix.len() > common_bytes {
            self.count_visit();
            let PrefixNode { parent, jump, .. } = nodes[index];
            index = if nodes[jump].prefix.len() > common_bytes { jump } else { parent };
        }
        index
    }

    fn count_visit(&self) {
        #[cfg(test)]
        self.visited.set(self.visited.get() + 1);
    }
}

/// Nodes that operations reached.
#[derive(Default)]
struct DoneNodes {
    added: HashSet<usize>,
    /// Those that were reached from a longer prefix.
    reached: HashSet<usize>,
}

impl PrefixNode {
    fn new(prefix: &[u8]) -> PrefixNode {
        let (prefix, watches) = (prefix.to_vec(), BTreeSet::new());
        PrefixNode { prefix, watches, parent: 0, jump: 0, depth: 0 }
    }
}

/// Sets the ancestors of sorted nodes.
fn link(nodes: &mut [PrefixNode]) {
    for index in 1..nodes.len() {
        let mut parent = index - 1;
        while !nodes[index].prefix.starts_with(&nodes[parent].prefix) {
            parent = nodes[parent].parent;
        }
        // A jump over as many ancestors as the two jumps before it together, where these are equal.
        let jump = nodes[parent].jump;
        let first_step = nodes[parent].depth - nodes[jump].depth;
        let second_step = nodes[jump].depth - nodes[nodes[jump].jump].depth;
        let is_equal = first_step == second_step && parent > 0;
        let jump = if is_equal { nodes[jump].jump } else { parent };
        let depth = nodes[parent].depth + 1;
        (nodes[index].parent, nodes[index].jump, nodes[index].depth) = (parent, jump, depth);
    }
}
