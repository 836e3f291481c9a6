//! Answers of a call that go on for long, made while they are taken, and single ones that may be
//! large.

use std::future::Future;
use std::pin::Pin;

use futures_util::{Stream, StreamExt, stream};
use prost::Message;
use tonic::{Response, Status};

use crate::limits::LIST_BYTES;
use crate::unread::{Held, Unsent};

/// The answers of a call, in order; the first error ends them.
pub type Answers<A> = Pin<Box<dyn Stream<Item = Result<A, Status>> + Send>>;

/// Answers with what one step after the other brings, until a step brings no state for the next
/// one. Nothing is done unless somebody takes the answers, and nothing once he went away.
pub fn in_steps<A, S, F, T>(state: S, step: F) -> Answers<A>
where
    A: Send + 'static,
    S: Send + 'static,
    F: Fn(S) -> T + Send + 'static,
    T: Future<Output = (Vec<Result<A, Status>>, Option<S>)> + Send + 'static,
{
    let pages = stream::unfold(Some(state), move |state| {
        let next = state.map(&step);
        async move {
            match next {
                Some(next) => Some(next.await),
                None => None,
            }
        }
    });
    Box::pin(pages.flat_map(stream::iter))
}

/// A response of this, whose frames hold what was counted until they are written.
pub fn counted<A>(answer: A, unsent: Unsent) -> Response<A> {
    let mut response = Response::new(answer);
    response.extensions_mut().insert(unsent);
    response
}

/// The one answer that `work` comes to, which may be long: it waits for room, and counts until it
/// is written.
pub async fn one_counted<A: Message + 'static>(
    held: Held,
    work: impl Future<Output = Result<A, Status>> + Send + 'static,
) -> Result<Response<A>, Status> {
    let (answer, unsent) = held.made(LIST_BYTES, work, A::encoded_len).await?;
    Ok(counted(answer, unsent))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn steps_are_taken_when_their_answers_are_and_an_end_ends_them() {
        let steps = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&steps);
        let mut answers = in_steps(0, move |step: u64| {
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
