//! Writing what a flush or a compaction keeps into new tables.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbel_base::{Cursor, RangeTombstone, Result, SequenceNumber};
use umbel_table::{FilterChoice, TableBuilder, TableMeta, TableOptions};

use crate::compaction::older::Older;
use crate::compaction::stream::{CompactionStream, StreamCounts, clip};
use crate::counters::add;
use crate::filter_choice::Choice;
use crate::keyspace_core::KeyspaceCore;
use crate::names;
use crate::options::{HashKind, KeyspaceOptions};
use crate::store::Store;
use crate::version::TableFile;

/// A table holds as many keys before it ends, about: its bounds stay in memory, and with them what
/// tables of fewer long keys would take would be a good part of these keys.
const KEYS_LEAST: u64 = 64;

/// Where and how tables are written.
#[derive(Debug)]
pub struct Plan {
    /// The level they are for.
    pub level: usize,
    /// The options of their keyspace.
    pub options: Arc<KeyspaceOptions>,
    /// The second filter that the tables get.
    pub second_filter: Option<FilterChoice>,
    /// Which filter is kept of them.
    pub choice: Choice,
    /// Whether a table ends once it is as large as the options say. Level 0 takes one table.
    pub split: bool,
    /// About how many bytes a table becomes, at most.
    pub expected_bytes: u64,
    /// The first key the output may hold.
    pub lower: Option<Vec<u8>>,
    /// The first key behind the output.
    pub upper: Option<Vec<u8>>,
    /// The states held by readers, for whom older versions are kept.
    pub readers: Vec<SequenceNumber>,
}

/// Tables written but not yet part of a version. Dropping it removes their files.
#[derive(Debug)]
pub struct Output {
    store: Arc<Store>,
    /// Metadata of the tables, in key order.
    pub metas: Vec<TableMeta>,
    /// The ranges of states for which each of them holds many older versions.
    kept_for: Vec<Vec<(SequenceNumber, SequenceNumber)>>,
    level: usize,
    /// What the keys are hashed with.
    hash: HashKind,
    choice: Choice,
    /// What became of the entries.
    pub counts: StreamCounts,
    /// Whether it was given up before everything was written.
    pub is_given_up: bool,
    unfinished: Option<u64>,
    adopted: bool,
}

impl Output {
    fn new(store: &Arc<Store>, plan: &Plan) -> Output {
        let counts = StreamCounts::default();
        let (store, level, choice) = (Arc::clone(store), plan.level, plan.choice);
        let hash = plan.options.hash;
        let (metas, kept_for, is_given_up, unfinished, adopted) = Default::default();
        Output {
            store,
            metas,
            kept_for,
            level,
            hash,
            choice,
            counts,
            is_given_up,
            unfinished,
            adopted,
        }
    }

    /// Makes the names durable, opens every table, which checks that it can be read back, and hands
    /// them over. The caller removes them where they do not become part of a version.
    pub fn open(&self) -> Result<Vec<Arc<TableFile>>> {
        let folder = &self.store.folder;
        self.store.options.env.files.sync_dir(folder)?;
        let open = |(meta, kept_for): (&TableMeta, &Vec<(SequenceNumber, SequenceNumber)>)| {
            let context = Arc::clone(&self.store.context);
            let table = TableFile::new(meta.clone(), self.level, self.hash, context);
            let table = Arc::new(table.keeping_for(kept_for.clone()));
            table.set_choice(self.choice);
            table.reader()?;
            Ok(table)
        };
        self.metas.iter().zip(&self.kept_for).map(open).collect()
    }

    /// Says that the tables are named by a durable manifest, or may be: they stay.
    pub fn adopt(&mut self) {
        self.adopted = true;
    }

    fn begin(&mut self, plan: &Plan) -> Result<TableBuilder> {
        let id = self.store.ids.fetch_add(1, Ordering::Relaxed);
        let path = names::table(&self.store.folder, id);
        let file = self.store.options.env.files.create(&path)?;
        self.unfinished = Some(id);
        let filter = plan.options.level_filter(plan.level);
        let options = TableOptions {
            block_bytes: plan.options.block_bytes,
            compression: plan.options.compression.levels[plan.level],
            bloom_bits: filter.bits_per_key,
            filter_kind: filter.kind,
            filter_probes: filter.probes,
            second_filter: plan.second_filter,
        };
        let hasher = *self.store.context.hashers.of(self.hash);
        let pieces = piece_bytes(self.store.budget.sizes.ahead);
        let builder = TableBuilder::new(file, id, hasher, options);
        let builder = builder.with_prefix(plan.options.prefix.as_ref());
        Ok(builder.with_pieces(pieces, plan.expected_bytes, writes_directly(&self.store)))
    }

    fn end(
        &mut self,
        mut builder: TableBuilder,
        older: &mut Older<'_>,
        tombstones: Vec<RangeTombstone>,
    ) -> Result<()> {
        tombstones.iter().for_each(|tombstone| builder.add_tombstone(tombstone));
        let direct = builder.is_direct();
        let meta = builder.finish()?;
        let counters = &self.store.counters;
        let written = if direct { &counters.bytes_direct } else { &counters.bytes_buffered };
        add(written, meta.file_bytes);
        self.kept_for.push(older.take_above(meta.entries / OLDER_SHARE));
        self.metas.push(meta);
        self.unfinished = None;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.adopted {
            return;
        }
        for id in self.metas.iter().map(|meta| meta.id).chain(self.unfinished) {
            // What cannot be removed now is removed at the next open.
            let path = names::table(&self.store.folder, id);
            let _ = self.store.options.env.files.remove_file(&path);
        }
    }
}

/// The least and the most that is gathered before it is written.
const PIECE_BYTES: (u64, u64) = (256 << 10, 1 << 20);

/// How much is gathered before it is written where so much is read ahead.
pub fn piece_bytes(ahead: u64) -> usize {
    ahead.saturating_mul(4).clamp(PIECE_BYTES.0, PIECE_BYTES.1) as usize
}

/// Whether tables are to be written past the page cache.
fn writes_directly(store: &Store) -> bool {
    store.options.direct_writes.unwrap_or_else(|| {
        let sizes = &store.budget.sizes;
        let cached = sizes.machine.unwrap_or(sizes.total.saturating_mul(4)) / 4;
        let bytes = |keyspace: &Arc<KeyspaceCore>| -> u64 {
            let version = Arc::clone(&keyspace.view.load().version);
            version.tables().map(|(_, table)| table.meta.file_bytes).sum()
        };
        store.keyspaces().iter().map(bytes).sum::<u64>() > cached
    })
}

/// A table of which more than one part in so many are older versions for the same readers is worth
/// writing again once those are gone.
const OLDER_SHARE: u64 = 12;

/// How many entries are written before it is asked whether to give up.
const ENTRIES_UNASKED: u32 = 1024;

/// Writes what `stream` yields, and `tombstones`, into tables, until `gives_up` says yes.
///
/// INVARIANT: all versions of a key lie in one table, and each tombstone is cut to the keys of the
/// table it lies in.
pub fn write_tables<C: Cursor, B: FnMut(&[u8]) -> bool>(
    store: &Arc<Store>,
    plan: &Plan,
    mut stream: CompactionStream<C, B>,
    tombstones: &[RangeTombstone],
    gives_up: impl Fn() -> bool,
) -> Result<Output> {
    let mut output = Output::new(store, plan);
    let (mut unasked, mut older) = (0u32, Older::new(&plan.readers));
    let mut builder: Option<TableBuilder> = None;
    let mut lower = plan.lower.clone();
    while let Some(entry) = stream.next_entry()? {
        unasked += 1;
        if unasked % ENTRIES_UNASKED == 0 && gives_up() {
            output.is_given_up = true;
            return Ok(output);
        }
        let full = builder.as_ref().is_some_and(|builder| {
            let most = plan.options.table_bytes.max(KEYS_LEAST * entry.key.len() as u64);
            plan.split && builder.estimated_bytes() >= most && !entry.repeats
        });
        if full && let Some(done) = builder.take() {
            let clipped = clip(tombstones, lower.as_deref(), Some(entry.key));
            output.end(done, &mut older, clipped)?;
            lower = Some(entry.key.to_vec());
        }
        older.note(entry.sequence, entry.repeats);
        let builder = match &mut builder {
            Some(builder) => builder,
            none => none.insert(output.begin(plan)?),
        };
        builder.add(entry.key, entry.sequence, entry.kind, entry.value)?;
    }
    let clipped = clip(tombstones, lower.as_deref(), plan.upper.as_deref());
    if builder.is_none() && !clipped.is_empty() {
        builder = Some(output.begin(plan)?);
    }
    if let Some(builder) = builder {
        output.end(builder, &mut older, clipped)?;
    }
    output.counts = stream.counts();
    Ok(output)
}
