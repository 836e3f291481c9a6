//! [`FlushPrecondition`]: condition that must succeed before a flush becomes part of the store.

use std::fmt;
use std::sync::Arc;

use umbel_base::Result;

/// Precondition of flushes of keyspaces without a WAL; see
/// [`Options::before_flush`](crate::Options::before_flush).
#[derive(Clone)]
pub struct FlushPrecondition(Arc<dyn Fn() -> Result<()> + Send + Sync>);

impl FlushPrecondition {
    /// Creates a precondition that holds if `open` succeeds. Background threads and writers of the
    /// store call `open`; it must not write to the store.
    pub fn new(open: impl Fn() -> Result<()> + Send + Sync + 'static) -> FlushPrecondition {
        FlushPrecondition(Arc::new(open))
    }

    pub(crate) fn pass(&self) -> Result<()> {
        (self.0)()
    }
}

impl fmt::Debug for FlushPrecondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlushPrecondition")
    }
}
