//! State of the parked stream, which other writers may delete, truncate or tombstone.

use super::*;
use crate::system_stream;

impl GroupTask {
    /// Reads the range of parked events again, unless the stream is as known.
    pub(super) async fn refresh_parked(&mut self) -> Result<(), Error> {
        let own = self.key.parked_stream();
        let read = move |store: &Store| parked_stream::parked_range(store, &own);
        let (stream, (first, next)) = self.service.store.blocking(read).await?;
        if stream != self.parked_stream {
            self.forget_parked(stream);
        }
        (self.first_parked, self.parked_count) = (first, next - first);
        Ok(())
    }

    /// Continues with another parked stream after this one was tombstoned.
    pub(super) async fn replace_parked_stream(&mut self) -> Result<(), Error> {
        let own = self.key.parked_stream();
        let read = move |store: &Store| parked_stream::parked_range(store, &own);
        let (stream, _) = self.service.store.blocking(read).await?;
        if stream == self.parked_stream {
            return Err(Error::StreamDeleted { stream });
        }
        self.refresh_parked().await
    }

    fn forget_parked(&mut self, stream: String) {
        let effect = "the parked events of the consumer group are lost";
        system_stream::report_replacement(&self.key.parked_stream(), &stream, effect);
        self.parked_stream = stream;
        self.dispatcher.forget_parked();
        (self.replay_range, self.replayed) = (None, None);
    }
}
