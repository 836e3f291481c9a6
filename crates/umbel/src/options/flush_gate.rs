//! [`FlushGate`]: what has to succeed before a flush becomes part of the store.

use std::fmt;
use std::sync::Arc;

use umbel_base::Result;

/// What has to succeed before a flush of keyspaces without a log; see
/// [`Options::before_flush`](crate::Options::before_flush).
#[derive(Clone)]
pub struct FlushGate(Arc<dyn Fn() -> Result<()> + Send + Sync>);

impl FlushGate {
    /// One that is passed where `open` succeeds. It is called by the threads of the store, and by
    /// those that write to it; it must not write to it.
    pub fn new(open: impl Fn() -> Result<()> + Send + Sync + 'static) -> FlushGate {
        FlushGate(Arc::new(open))
    }

    pub(crate) fn pass(&self) -> Result<()> {
        (self.0)()
    }
}

impl fmt::Debug for FlushGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlushGate")
    }
}
