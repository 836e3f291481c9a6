//! [`NameSource`]: names of streams, categories and types, page by page, of a store or of a server.

use umbel_events::{Store, StreamState, ViewKind, skip_system_streams};

use crate::errors::CommandResult;

/// Number of names that are fetched at a time.
pub const PAGE_NAMES: usize = 1000;

/// A page of names in byte order, each with a value.
#[derive(Debug)]
pub struct NamePage<T> {
    /// The names.
    pub names: Vec<(String, T)>,
    /// The name after which the next page begins; `None` if no page follows.
    pub after: Option<String>,
    /// Whether the list ends before names that the user may not read.
    pub is_cut: bool,
}

impl<T> NamePage<T> {
    /// A page that another one follows, unless it has fewer than [`PAGE_NAMES`] names.
    pub fn of(names: Vec<(String, T)>) -> NamePage<T> {
        let last = names.last().filter(|_| names.len() >= PAGE_NAMES);
        let after = last.map(|(name, _)| name.clone());
        NamePage { names, after, is_cut: false }
    }

    /// Lets the next page begin after the system streams, if this one ends among them.
    pub fn skip_system_streams(mut self) -> NamePage<T> {
        self.after = self.after.map(skip_system_streams);
        self
    }
}

/// Source of names.
pub trait NameSource {
    /// Streams with this prefix after this name, with their states. Names that begin with `$` can
    /// be missing if the caller does not want them.
    ///
    /// # Errors
    /// Errors of the store, of the connection or of the server.
    fn streams(
        &self,
        prefix: &str,
        after: Option<&str>,
        has_system: bool,
    ) -> CommandResult<NamePage<StreamState>>;

    /// Categories or types with this prefix after this name, with their numbers of events.
    ///
    /// # Errors
    /// Errors of the store, of the connection or of the server.
    fn views(
        &self,
        kind: ViewKind,
        prefix: &str,
        after: Option<&str>,
    ) -> CommandResult<NamePage<u64>>;
}

impl NameSource for Store {
    fn streams(
        &self,
        prefix: &str,
        after: Option<&str>,
        has_system: bool,
    ) -> CommandResult<NamePage<StreamState>> {
        let page = NamePage::of(Store::streams(self, prefix, after, PAGE_NAMES)?);
        Ok(if has_system { page } else { page.skip_system_streams() })
    }

    fn views(
        &self,
        kind: ViewKind,
        prefix: &str,
        after: Option<&str>,
    ) -> CommandResult<NamePage<u64>> {
        Ok(NamePage::of(Store::views(self, kind, prefix, after, PAGE_NAMES)?))
    }
}
