//! Call sites: the operation of a call and the class of its file.

use std::path::Path;

/// Operation that a call requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// Opening a directory, which the process then holds.
    OpenDirectory,
    /// Query of the path of a held directory.
    LocateDirectory,
    /// Query of the identity of the file that a handle or a name refers to.
    Identity,
    CreateDir,
    Create,
    Open,
    Len,
    Read,
    Write,
    /// A write past the page cache.
    WriteDirect,
    /// A store into a mapping.
    Store,
    SetLen,
    Preallocate,
    Sync,
    Map,
    Rename,
    HardLink,
    Remove,
    RemoveDir,
    ReadDir,
    Exists,
    SyncDir,
    Lock,
    /// A reader pins a version.
    Pin,
    /// Query of the time of a file's last change.
    Modified,
    /// Query of the permission to create files in a directory.
    CheckWritable,
}

impl Operation {
    /// Returns the operation's word in labels.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Operation::OpenDirectory => "hold",
            Operation::LocateDirectory => "place",
            Operation::Identity => "identity",
            Operation::CreateDir => "create_dir",
            Operation::Create => "create",
            Operation::Open => "open",
            Operation::Len => "len",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::WriteDirect => "write_direct",
            Operation::Store => "store",
            Operation::SetLen => "set_len",
            Operation::Preallocate => "preallocate",
            Operation::Sync => "sync",
            Operation::Map => "map",
            Operation::Rename => "rename",
            Operation::HardLink => "hard_link",
            Operation::Remove => "remove",
            Operation::RemoveDir => "remove_dir",
            Operation::ReadDir => "read_dir",
            Operation::Exists => "exists",
            Operation::SyncDir => "sync_dir",
            Operation::Lock => "lock",
            Operation::Pin => "pin",
            Operation::Modified => "modified",
            Operation::CheckWritable => "check_writable",
        }
    }

    /// Returns the operation's verb phrase in error messages, which a path follows.
    pub(crate) fn phrase(self) -> &'static str {
        match self {
            Operation::OpenDirectory => "open the directory",
            Operation::LocateDirectory => "look for the directory",
            Operation::Identity => "read the metadata of",
            Operation::CreateDir => "create the directory",
            Operation::Create => "create",
            Operation::Open => "open",
            Operation::Len => "read the length of",
            Operation::Read => "read from",
            Operation::Write => "write to",
            Operation::WriteDirect => "write directly to",
            Operation::Store => "store into the mapping of",
            Operation::SetLen => "set the length of",
            Operation::Preallocate => "reserve space for",
            Operation::Sync => "sync",
            Operation::Map => "map",
            Operation::Rename => "rename",
            Operation::HardLink => "give a second name to",
            Operation::Remove => "remove",
            Operation::RemoveDir => "remove the directory",
            Operation::ReadDir => "list the directory",
            Operation::Exists => "look for",
            Operation::SyncDir => "sync the directory",
            Operation::Lock => "lock",
            Operation::Pin => "pin a version in",
            Operation::Modified => "read the time of",
            Operation::CheckWritable => "write to the directory",
        }
    }

    /// Whether the call can change the disk, or its durable state.
    pub(crate) fn changes(self) -> bool {
        !matches!(
            self,
            Operation::OpenDirectory
                | Operation::LocateDirectory
                | Operation::Identity
                | Operation::Open
                | Operation::Len
                | Operation::Modified
                | Operation::Read
                | Operation::Map
                | Operation::ReadDir
                | Operation::Exists
                | Operation::CheckWritable
        )
    }

    /// Whether the call can be omitted without its caller noticing at once.
    pub(crate) fn can_be_ignored(self) -> bool {
        self.changes()
            && !matches!(self, Operation::Create | Operation::CreateDir | Operation::Lock)
    }
}

/// Returns the class of a file: its name with a star in place of every number, decimal or
/// hexadecimal.
pub(crate) fn class_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut class = String::with_capacity(name.len());
    let mut rest = &*name;
    while !rest.is_empty() {
        let is_word = |character: char| character.is_ascii_alphanumeric();
        let end = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        push_class_of_word(&mut class, word);
        let mut characters = after.chars();
        class.extend(characters.next());
        rest = characters.as_str();
    }
    class
}

fn push_class_of_word(class: &mut String, word: &str) {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
    if has_digit && word.bytes().all(is_hex) {
        class.push('*');
        return;
    }
    for character in word.chars() {
        if !character.is_ascii_digit() {
            class.push(character);
        } else if !class.ends_with('*') {
            class.push('*');
        }
    }
}

/// Whether a pattern names this site: by the whole label (`sync *.log`), by only the operation
/// (`sync`) or by only the class (`*.log`).
pub(crate) fn matches(pattern: &str, operation: Operation, class: &str) -> bool {
    let word = operation.word();
    if pattern == word || pattern == class {
        return true;
    }
    let behind_word = pattern.strip_prefix(word).and_then(|rest| rest.strip_prefix(' '));
    behind_word == Some(class)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Operation, class_of, matches};

    #[test]
    fn numbers_become_stars() {
        for (name, class) in [
            ("MANIFEST-000012", "MANIFEST-*"),
            ("a/b/000001.log", "*.log"),
            ("00c4.table", "*.table"),
            ("beef.table", "beef.table"),
            ("CURRENT.tmp", "CURRENT.tmp"),
            ("part12of30", "part*of*"),
            ("LOCK", "LOCK"),
            ("ä7-1", "ä*-*"),
            ("", ""),
        ] {
            assert_eq!(class_of(Path::new(name)), class, "{name}");
        }
    }

    #[test]
    fn patterns_name_a_label_an_operation_or_a_class() {
        for pattern in ["sync", "*.log", "sync *.log"] {
            assert!(matches(pattern, Operation::Sync, "*.log"), "{pattern}");
        }
        for pattern in ["sync_dir", "sync *.table", "*.table", "syn", "", "sync "] {
            assert!(!matches(pattern, Operation::Sync, "*.log"), "{pattern}");
        }
    }
}
