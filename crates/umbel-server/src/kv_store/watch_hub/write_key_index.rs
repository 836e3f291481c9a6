//! [`OperationIndex`]: the operations of a write by key, to find those of a watch.

use std::collections::HashMap;

use umbel_proto::kv::OperationKind;

use crate::kv_store::write_request::WriteOperation;

use super::WatchFilter;

/// End of the keys of an operation, and whether it is one of them.
type Reach<'a> = (&'a [u8], bool);

/// The operations of a write, grouped by keyspace. The operations of a keyspace get an index when
/// it is first requested.
#[derive(Debug)]
pub struct OperationIndexes<'a> {
    operations: &'a [WriteOperation],
    /// Numbers of the operations of each keyspace.
    numbers: HashMap<&'a str, Vec<usize>>,
    indexes: HashMap<&'a str, OperationIndex<'a>>,
    /// Number of operations that the groups and the indexes examined.
    #[cfg(test)]
    pub examined: usize,
}

impl<'a> OperationIndexes<'a> {
    /// Groups these operations.
    pub fn new(operations: &'a [WriteOperation]) -> OperationIndexes<'a> {
        let mut numbers: HashMap<&str, Vec<usize>> = HashMap::new();
        for (number, operation) in operations.iter().enumerate() {
            numbers.entry(operation.keyspace.name()).or_default().push(number);
        }
        OperationIndexes {
            operations,
            numbers,
            indexes: HashMap::new(),
            #[cfg(test)]
            examined: operations.len(),
        }
    }

    /// Returns the index of a keyspace; `None` if no operation is in the keyspace.
    pub fn of(&mut self, keyspace: &str) -> Option<&OperationIndex<'a>> {
        let (&name, numbers) = self.numbers.get_key_value(keyspace)?;
        Some(self.indexes.entry(name).or_insert_with(|| {
            #[cfg(test)]
            {
                self.examined += numbers.len();
            }
            OperationIndex::new(self.operations, numbers)
        }))
    }
}

/// The operations of a write in one keyspace, by their first keys.
#[derive(Debug)]
pub struct OperationIndex<'a> {
    /// First keys and numbers of the operations, sorted.
    starts: Vec<(&'a [u8], usize)>,
    /// A binary tree over `starts`: the root is at 1, the children of a node at twice its index.
    /// Each node has the highest reach below it.
    reaches: Vec<Reach<'a>>,
    leaves: usize,
    /// Number of nodes that searches visited.
    #[cfg(test)]
    pub visited: std::cell::Cell<usize>,
}

impl<'a> OperationIndex<'a> {
    /// Creates the index of the operations with these numbers, which are all in one keyspace.
    fn new(operations: &'a [WriteOperation], numbers: &[usize]) -> OperationIndex<'a> {
        let start = |number: &usize| (range_of(&operations[*number]).0, *number);
        let mut starts: Vec<(&[u8], usize)> = numbers.iter().map(start).collect();
        starts.sort_unstable();
        let leaves = starts.len().next_power_of_two();
        let mut reaches: Vec<Reach<'_>> = vec![(&[], false); 2 * leaves];
        for (leaf, (_, number)) in starts.iter().enumerate() {
            reaches[leaves + leaf] = range_of(&operations[*number]).1;
        }
        for node in (1..leaves).rev() {
            reaches[node] = reaches[2 * node].max(reaches[2 * node + 1]);
        }
        OperationIndex {
            starts,
            reaches,
            leaves,
            #[cfg(test)]
            visited: std::cell::Cell::new(0),
        }
    }

    /// Returns the numbers of the operations that concern a watch of this keyspace, in order.
    pub fn matching(&self, filter: &WatchFilter) -> Vec<usize> {
        let prefix = &filter.prefix[..];
        let begins_before = |start: &[u8]| start <= prefix || start.starts_with(prefix);
        let end = self.starts.partition_point(|(start, _)| begins_before(start));
        let mut found = Vec::new();
        self.collect(1, (0, self.leaves), (prefix, end), &mut found);
        found.sort_unstable();
        found
    }

    /// Adds the operations below a node, of leaves `first` to `last`, that reach the prefix and are
    /// before `end`.
    fn collect(
        &self,
        node: usize,
        (first, last): (usize, usize),
        (prefix, end): (&[u8], usize),
        found: &mut Vec<usize>,
    ) {
        #[cfg(test)]
        self.visited.set(self.visited.get() + 1);
        if first >= end || self.reaches[node] <= (prefix, false) {
            return;
        }
        if last - first == 1 {
            found.push(self.starts[first].1);
            return;
        }
        let middle = first.midpoint(last);
        self.collect(2 * node, (first, middle), (prefix, end), found);
        self.collect(2 * node + 1, (middle, last), (prefix, end), found);
    }
}

/// First key of an operation, and its reach.
fn range_of(operation: &WriteOperation) -> (&[u8], Reach<'_>) {
    match &operation.kind {
        OperationKind::Put(entry) => (&entry.key, (&entry.key, true)),
        OperationKind::Delete(key) => (key, (key, true)),
        OperationKind::DeleteRange(range) => (&range.start, (&range.end, false)),
    }
}
