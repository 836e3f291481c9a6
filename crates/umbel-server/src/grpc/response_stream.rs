//! Streamed responses, produced as the client takes them, and single responses that may be large.

use std::future::Future;
use std::pin::Pin;

use futures_util::{Stream, StreamExt, stream};
use prost::Message;
use tonic::{Response, Status};

use crate::limits::LIST_BYTES;
use crate::resources::outbound_call_share::OutboundShare;
use crate::resources::unsent_page::UnsentPage;

/// The messages of a response, in order; the first error ends the response.
pub type ResponseStream<A> = Pin<Box<dyn Stream<Item = Result<A, Status>> + Send>>;

/// Streams the messages of one step after another, until a step returns no next state. A step runs
/// only while the stream is polled. After a step without messages, the stream yields to other
/// tasks.
///
/// The messages of a step are built one by one as they are polled, so a step of many messages
/// returns an iterator that builds them.
pub fn stream_steps<A, S, I, F, T>(state: S, step: F) -> ResponseStream<A>
where
    A: Send + 'static,
    S: Send + 'static,
    I: IntoIterator<Item = Result<A, Status>> + 'static,
    I::IntoIter: Send,
    F: Fn(S) -> T + Send + 'static,
    T: Future<Output = (I, Option<S>)> + Send + 'static,
{
    let pages = stream::unfold(Some(state), move |state| {
        let next = state.map(&step);
        async move {
            let (answers, state) = next?.await;
            let mut answers = answers.into_iter().peekable();
            if answers.peek().is_none() && state.is_some() {
                // The next step follows in the same poll, and may find nothing as quickly.
                tokio::task::yield_now().await;
            }
            Some((answers, state))
        }
    });
    Box::pin(pages.flat_map(stream::iter))
}

/// Returns a response whose frames hold the page's quota until the frames are written.
pub fn with_pending_page<A>(answer: A, unsent: UnsentPage) -> Response<A> {
    let mut response = Response::new(answer);
    response.extensions_mut().insert(unsent);
    response
}

/// A single response that may be long. The response waits for quota, and holds the quota until it
/// is written.
pub async fn respond_within_quota<A: Message + 'static>(
    held: OutboundShare,
    work: impl Future<Output = Result<A, Status>> + Send + 'static,
) -> Result<Response<A>, Status> {
    let (answer, unsent) = held.produce(LIST_BYTES, work, A::encoded_len).await?;
    Ok(with_pending_page(answer, unsent))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn steps_run_on_demand_and_stop_at_the_end() {
        let steps = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&steps);
        let mut answers = stream_steps(0, move |step: u64| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match step {
                    0 => (vec![Ok(10), Ok(11)], Some(1)),
                    1 => (vec![], Some(2)),
                    _ => (vec![Ok(12), Err(Status::aborted("end"))], None),
                }
            }
        });
        let taken = || steps.load(Ordering::SeqCst);
        assert_eq!(taken(), 0);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            assert_eq!(answers.next().await.unwrap().unwrap(), 10);
            assert_eq!((answers.next().await.unwrap().unwrap(), taken()), (11, 1));
            assert_eq!((answers.next().await.unwrap().unwrap(), taken()), (12, 3));
            assert_eq!(answers.next().await.unwrap().unwrap_err().message(), "end");
            assert!(answers.next().await.is_none());
        });
        assert_eq!(taken(), 3);
    }
}
