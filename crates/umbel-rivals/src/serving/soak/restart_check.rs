//! Checks the state of the server after it was stopped and started again.

use umbel_proto::read_options::{at_most, backwards, of_all, of_stream};
use umbel_proto::streams::read_req::{AllOption, RevisionOption};

use crate::serving::soak::admin_workers::{check_left, logins};
use crate::serving::soak::group_consumer::groups;
use crate::serving::soak::soak_context::{AnswerStream, SoakContext, WorkResult};
use crate::serving::soak::soak_oracle::{SoakOracle, stream_name};
use crate::serving::soak::soak_plan::WRITERS;
use crate::serving::soak::writer_order_check::WriterOrder;
use umbel_testing::server_connection::Connection;

/// Events that the server has after its restart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestartResult {
    /// Events of the soak.
    pub events: u64,
    /// Events of the soak that were not acknowledged: they were in flight when the server stopped.
    pub unacknowledged: u64,
    /// Other events: users, metadata, links, checkpoints.
    pub others: u64,
}

/// Reads everything and compares it with what the soak recorded in `context`; errors are recorded
/// in `context`, too. `stays` names the groups that must exist; no others may.
pub(super) async fn verify(
    context: &SoakContext,
    connection: &Connection,
    stays: &[String],
) -> WorkResult<RestartResult> {
    let found = read_all_events(&context.oracle, connection).await?;
    for stream in 0..context.oracle.streams() {
        let name = stream_name(stream);
        let options = backwards(of_stream(&name, RevisionOption::End(())));
        let mut answers = AnswerStream::open(connection, at_most(1, options)).await?;
        let last = answers.event().await?.map(|event| event.stream_revision + 1);
        let wanted = context.oracle.in_stream(stream);
        if last.unwrap_or_default() != wanted {
            context.oracle.wrong(format!("{name} has {last:?} events in place of {wanted}"));
        }
    }
    for (stream, left) in context.oracle.all_deleted() {
        if let Err(text) = check_left(connection, &stream, left).await {
            context.oracle.wrong(text);
        }
    }
    let there = logins(connection, "").await?;
    for (login, is_there) in context.oracle.users() {
        if there.contains(&login) != is_there {
            context.oracle.wrong(format!("{login} should exist: {is_there}; users are {there:?}"));
        }
    }
    let groups = groups(connection).await?;
    if groups != stays {
        context.oracle.wrong(format!("groups are {groups:?} in place of {stays:?}"));
    }
    Ok(found)
}

async fn read_all_events(
    oracle: &SoakOracle,
    connection: &Connection,
) -> WorkResult<RestartResult> {
    let mut answers = AnswerStream::open(connection, of_all(AllOption::Start(()))).await?;
    let mut order = WriterOrder::from_start();
    let mut found = RestartResult::default();
    while let Some(event) = answers.event().await? {
        match order.note_event(&event)? {
            Some(_) => found.events += 1,
            None => found.others += 1,
        }
    }
    for writer in 0..WRITERS {
        let (there, (acknowledged, begun)) = (order.count(writer), oracle.of(writer));
        if let Some(what) = mismatch(there, acknowledged, begun) {
            oracle.wrong(format!("writer {writer}: {what}"));
        }
        found.unacknowledged += there.saturating_sub(acknowledged);
    }
    Ok(found)
}

/// Returns the error in the number of a writer's events, if there is one.
fn mismatch(there: u64, acknowledged: u64, begun: u64) -> Option<String> {
    let lost = (there < acknowledged)
        .then(|| format!("{there} of {acknowledged} acknowledged events exist"));
    lost.or_else(|| (there > begun).then(|| format!("{there} events exist of {begun} begun")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_events_are_required_and_in_flight_allowed() {
        assert_eq!(mismatch(10, 10, 10), None);
        assert_eq!(mismatch(11, 10, 12), None);
        assert!(mismatch(9, 10, 10).unwrap().contains("9 of 10"));
        assert!(mismatch(11, 10, 10).unwrap().contains("of 10 begun"));
    }
}
