//! [`OutboundShare`]: the quota that one call holds for its last page.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::task::JoinSet;
use tonic::{Extensions, Status};

use crate::limits::PAGE_BYTES_MAX;
use crate::protocol::grpc_status;
use crate::resources::connection_registry::Connection;
use crate::resources::outbound_quota::{OutboundQuota, PageReservation, UNIT_BYTES};
use crate::resources::unsent_page::UnsentPage;

/// Quota that one call holds for its last page.
#[derive(Debug)]
pub struct OutboundShare {
    quota: Arc<OutboundQuota>,
    connection: Option<Arc<Connection>>,
    unsent_page: UnsentPage,
}

impl OutboundQuota {
    /// Creates an empty share for a call on this connection.
    pub fn new_share(self: &Arc<OutboundQuota>, peer: Option<Arc<Connection>>) -> OutboundShare {
        OutboundShare {
            quota: Arc::clone(self),
            connection: peer,
            unsent_page: UnsentPage::default(),
        }
    }

    /// Creates an empty share for a call with these extensions.
    pub fn held_for(self: &Arc<OutboundQuota>, extensions: &Extensions) -> OutboundShare {
        self.new_share(extensions.get::<Arc<Connection>>().cloned())
    }
}

impl OutboundShare {
    /// Releases the last page, except for frames that are not yet written. Bytes of the page that
    /// are not in a frame yet are put into one first.
    pub async fn release(&self) {
        if self.unsent_page.is_held() {
            let mut has_paused = false;
            // The encoder makes a frame of the available bytes once nothing more is pending.
            poll_fn(|context| {
                if std::mem::replace(&mut has_paused, true) {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        }
        self.unsent_page.release();
    }

    /// Releases the last page and waits for quota for the next one.
    ///
    /// # Errors
    /// The quota is closed, because the server stops.
    pub async fn reserve_page(&self) -> Result<PageReservation, Status> {
        self.reserve(PAGE_BYTES_MAX).await
    }

    /// Releases the last page and waits for quota for `bytes` bytes.
    ///
    /// # Errors
    /// The errors of [`OutboundShare::reserve_page`].
    pub async fn reserve(&self, bytes: usize) -> Result<PageReservation, Status> {
        self.release().await;
        let reservation = self.quota.reserve(self.connection.clone(), bytes.div_ceil(UNIT_BYTES));
        reservation.await.ok_or_else(grpc_status::shutting_down)
    }

    /// Waits for quota for `bytes` bytes, and charges the result of `work`, whose size `measure`
    /// returns. The time of `work` does not count as a delay by the client.
    ///
    /// # Errors
    /// The errors of [`OutboundShare::reserve_page`] and of `work`.
    pub async fn produce<A: Send + 'static>(
        self,
        bytes: usize,
        work: impl Future<Output = Result<A, Status>> + Send + 'static,
        measure: impl FnOnce(&A) -> usize + Send + 'static,
    ) -> Result<(A, UnsentPage), Status> {
        let mut making = JoinSet::new();
        making.spawn(async move {
            let reservation = self.reserve(bytes).await?;
            reservation.pause_clock();
            let made = work.await?;
            self.charge(reservation, measure(&made));
            Ok((made, self.unsent_page()))
        });
        // A panic of the task was reported; the call ends as at a shutdown.
        making
            .join_next()
            .await
            .and_then(Result::ok)
            .unwrap_or_else(|| Err(grpc_status::shutting_down()))
    }

    /// Charges a page of `bytes` bytes. Bytes beyond the reservation count like bytes without a
    /// reservation.
    pub fn charge(&self, reserved: PageReservation, bytes: usize) {
        if let Some((page, more)) = reserved.into_charges(bytes) {
            self.unsent_page.hold(page, more);
        }
    }

    /// Handle of the pending page for the encoder. It outlives the share, because the last page
    /// becomes frames after the last read.
    pub fn unsent_page(&self) -> UnsentPage {
        self.unsent_page.clone()
    }
}
