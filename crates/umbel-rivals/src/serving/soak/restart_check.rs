//! What must be there when the server was stopped and started again.

use umbel_proto::reading::{at_most, backwards, of_all, of_stream};
use umbel_proto::streams::read_req::{AllOption, RevisionOption};

use super::changes::{is_left, logins};
use super::consumer::groups;
use super::ground::{Answers, Done, Ground};
use super::ledger::{Ledger, stream_name};
use super::order::Order;
use super::plan::WRITERS;
use crate::serving::connection::Connection;

/// What was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// Events of the soak.
    pub events: u64,
    /// Those of them that were never acknowledged: they were under way when the server stopped.
    pub unacknowledged: u64,
    /// Other events: users, metadata, links, checkpoints.
    pub others: u64,
}

/// Reads everything there is and compares it with what was acknowledged on `ground`; what is wrong
/// goes to its ledger. `stays` are the groups that must be there, and no others.
pub(super) async fn verify(
    ground: &Ground,
    connection: &Connection,
    stays: &[String],
) -> Done<Found> {
    let found = all(&ground.ledger, connection).await?;
    for stream in 0..ground.ledger.streams() {
        let name = stream_name(stream);
        let options = backwards(of_stream(&name, RevisionOption::End(())));
        let mut answers = Answers::open(connection, at_most(1, options)).await?;
        let last = answers.event().await?.map(|event| event.stream_revision + 1);
        let wanted = ground.ledger.in_stream(stream);
        if last.unwrap_or_default() != wanted {
            ground.ledger.wrong(format!("{name} has {last:?} events in place of {wanted}"));
        }
    }
    for (stream, left) in ground.ledger.all_deleted() {
        if let Err(text) = is_left(connection, &stream, left).await {
            ground.ledger.wrong(text);
        }
    }
    let there = logins(connection, "").await?;
    for (login, is_there) in ground.ledger.users() {
        if there.contains(&login) != is_there {
            ground.ledger.wrong(format!("{login} should be there: {is_there}; {there:?}"));
        }
    }
    let groups = groups(connection).await?;
    if groups != stays {
        ground.ledger.wrong(format!("there are the groups {groups:?}"));
    }
    Ok(found)
}

async fn all(ledger: &Ledger, connection: &Connection) -> Done<Found> {
    let mut answers = Answers::open(connection, of_all(AllOption::Start(()))).await?;
    let mut order = Order::from_start();
    let mut found = Found::default();
    while let Some(event) = answers.event().await? {
        match order.see(&event)? {
            Some(_) => found.events += 1,
            None => found.others += 1,
        }
    }
    for writer in 0..WRITERS {
        let (there, (acknowledged, begun)) = (order.count(writer), ledger.of(writer));
        if let Some(what) = complaint(there, acknowledged, begun) {
            ledger.wrong(format!("writer {writer}: {what}"));
        }
        found.unacknowledged += there.saturating_sub(acknowledged);
    }
    Ok(found)
}

/// What is wrong with so many events of a writer being there.
fn complaint(there: u64, acknowledged: u64, begun: u64) -> Option<String> {
    let lost =
        (there < acknowledged).then(|| format!("{there} of {acknowledged} events are there"));
    lost.or_else(|| (there > begun).then(|| format!("{there} events are there of {begun} begun")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_acknowledged_must_be_there_and_what_was_under_way_may() {
        assert_eq!(complaint(10, 10, 10), None);
        assert_eq!(complaint(11, 10, 12), None);
        assert!(complaint(9, 10, 10).unwrap().contains("9 of 10"));
        assert!(complaint(11, 10, 10).unwrap().contains("of 10 begun"));
    }
}
