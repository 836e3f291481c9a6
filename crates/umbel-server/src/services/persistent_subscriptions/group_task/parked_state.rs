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
            self.forget_parked(stream).await;
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

    /// Removes events parked before this revision, without sending them again. Replayed events in
    /// flight stay with their consumers, which may acknowledge or park them.
    pub(super) async fn remove_parked(&mut self, before: u64) -> Result<(), Error> {
        self.refresh_parked().await?;
        let first = before.min(self.first_parked + self.parked_count);
        if first > self.first_parked {
            let stream = self.parked_stream.clone();
            let truncate =
                move |store: &Store| parked_stream::truncate_parked(store, &stream, first);
            match self.service.store.blocking(truncate).await {
                Err(Error::StreamDeleted { .. }) => self.replace_parked_stream().await?,
                truncated => truncated?,
            }
            self.refresh_parked().await?;
            self.replay_range = self
                .replay_range
                .map(|(from, until)| (from.max(first), until))
                .filter(|(from, until)| from < until);
        }
        Ok(())
    }

    async fn forget_parked(&mut self, stream: String) {
        let effect = "the parked events of the consumer group are lost";
        system_stream::report_replacement(&self.key.parked_stream(), &stream, effect);
        self.parked_stream = stream;
        let mut steps = BoundedSteps::default();
        while self.dispatcher.forget_parked_event() {
            steps.count(0).await;
        }
        (self.replay_range, self.replayed) = (None, None);
    }
}
