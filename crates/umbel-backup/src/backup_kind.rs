//! [`BackupKind`]: the kinds of stores that are backed up, as their objects distinguish them.

/// Kind of the store in a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackupKind {
    /// An event store.
    Events,
    /// A key-value store.
    KeyValues,
}

impl BackupKind {
    /// Every kind.
    pub const ALL: [BackupKind; 2] = [BackupKind::Events, BackupKind::KeyValues];

    /// The kind of store for messages.
    pub fn store(self) -> &'static str {
        match self {
            BackupKind::Events => "event store",
            BackupKind::KeyValues => "key-value store",
        }
    }

    /// The kind of store with its article, for messages.
    pub fn a_store(self) -> &'static str {
        match self {
            BackupKind::Events => "an event store",
            BackupKind::KeyValues => "a key-value store",
        }
    }

    /// Prefixes of the names of pieces.
    pub fn piece_prefixes(self) -> &'static [&'static str] {
        match self {
            BackupKind::Events => &["chunks/", "tails/"],
            BackupKind::KeyValues => &["blobs/", "tables/"],
        }
    }

    /// FORMAT: the first bytes of the object `BACKUP`.
    pub(crate) fn identity_magic(self) -> [u8; 8] {
        self.magic(b'B')
    }

    /// FORMAT: the first bytes of a floor.
    pub(crate) fn floor_magic(self) -> [u8; 8] {
        self.magic(b'F')
    }

    /// FORMAT: the first bytes of a manifest.
    pub(crate) fn manifest_magic(self) -> [u8; 8] {
        self.magic(b'M')
    }

    /// FORMAT: the first bytes of the footer of a piece.
    pub(crate) fn piece_magic(self) -> [u8; 8] {
        self.magic(b'j')
    }

    fn magic(self, object: u8) -> [u8; 8] {
        let [first, second] = match self {
            BackupKind::Events => *b"Ob",
            BackupKind::KeyValues => *b"Kv",
        };
        [b'U', b'm', b'b', b'e', b'l', first, second, object]
    }
}
