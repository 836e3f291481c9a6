//! Cases with filters and links.

use kurrentdb::{
    AppendToStreamOptions, Client, EventData, Position, ReadStreamOptions, StreamPosition,
    SubscribeToAllOptions, SubscriptionEvent, SubscriptionFilter,
};

use crate::basic_cases::{Case, Counted, Failure, Outcome, append, expect, new_stream, number};

/// Returns the cases of the first run.
pub fn all<'a>(client: &'a Client, kept: &'a str) -> Vec<Case<'a>> {
    vec![
        ("subscribe with filters by prefix and expression", Box::pin(subscribe(client))),
        ("subscribe with a filter and keep a checkpoint", Box::pin(keep(client, kept))),
        ("reject a broken expression", Box::pin(broken(client))),
        ("resolve links", Box::pin(resolve(client))),
    ]
}

/// Returns the cases that run after a restart of the server.
pub fn again<'a>(client: &'a Client, kept: &'a str) -> Vec<Case<'a>> {
    vec![("resume at a checkpoint after a restart", Box::pin(go_on(client, kept)))]
}

/// Appends numbers alternately to two streams and returns the position of the first event.
async fn mixed(
    client: &Client,
    name: &str,
    numbers: std::ops::Range<u64>,
) -> Result<Position, Failure> {
    let mut first = None;
    for n in numbers {
        let stream = format!("{name}-{}", if n % 2 == 1 { "cart" } else { "order" });
        let position = append(client, &stream, n..n + 1).await?;
        first.get_or_insert(position);
    }
    first.ok_or_else(|| "no numbers".into())
}

fn from(position: Position, filter: SubscriptionFilter) -> SubscribeToAllOptions {
    SubscribeToAllOptions::default().position(StreamPosition::Position(position)).filter(filter)
}

async fn subscribe(client: &Client) -> Outcome {
    let name = new_stream();
    let first = mixed(client, &name, 0..20).await?;
    let by_stream = SubscriptionFilter::on_stream_name;
    for (filter, step) in [
        (by_stream().add_prefix(format!("{name}-cart")).add_prefix("absent"), 2),
        (by_stream().regex(format!("^{name}-(?!order)")), 2),
        (SubscriptionFilter::on_event_type().regex("^Count"), 1),
        (SubscriptionFilter::on_event_type().exclude_system_events(), 1),
    ] {
        let mut subscription = client.subscribe_to_all(&from(first, filter)).await;
        for wanted in (1..20).step_by(step) {
            expect(number(&subscription.next().await?)?, wanted)?;
        }
    }
    Ok(())
}

async fn keep(client: &Client, kept: &str) -> Outcome {
    let name = new_stream();
    let first = mixed(client, &name, 0..20).await?;
    let filter = SubscriptionFilter::on_stream_name().add_prefix(format!("{name}-cart")).max(3);
    let mut subscription = client.subscribe_to_all(&from(first, filter)).await;
    let (mut seen, mut places) = (Vec::new(), Vec::new());
    loop {
        match subscription.next_subscription_event().await? {
            SubscriptionEvent::EventAppeared(event) => seen.push(number(&event)?),
            SubscriptionEvent::Checkpoint(place) => places.push(place.commit),
            SubscriptionEvent::CaughtUp(_) => break,
            _ => {}
        }
    }
    expect(seen, (1..20).step_by(2).collect())?;
    expect(places.len() >= 6 && places.is_sorted(), true)?;
    let place = places.last().ok_or("no checkpoint")?;
    std::fs::write(kept, format!("{name} {place}"))?;
    Ok(())
}

async fn go_on(client: &Client, kept: &str) -> Outcome {
    let kept = std::fs::read_to_string(kept)?;
    let (name, place) = kept.split_once(' ').ok_or("nothing was kept")?;
    mixed(client, name, 20..26).await?;
    let filter = SubscriptionFilter::on_stream_name().add_prefix(format!("{name}-cart"));
    let (commit, prepare) = (place.parse()?, place.parse()?);
    let mut subscription =
        client.subscribe_to_all(&from(Position { commit, prepare }, filter)).await;
    for wanted in [21, 23, 25] {
        expect(number(&subscription.next().await?)?, wanted)?;
    }
    Ok(())
}

async fn broken(client: &Client) -> Outcome {
    let filter = SubscriptionFilter::on_event_type().regex("a(b");
    let options = SubscribeToAllOptions::default().filter(filter);
    let mut subscription = client.subscribe_to_all(&options).await;
    match subscription.next().await {
        Err(error) => expect(error.to_string().contains("broken at character"), true),
        Ok(event) => Err(format!("{event:?}").into()),
    }
}

async fn resolve(client: &Client) -> Outcome {
    let (stream, links) = (new_stream(), new_stream());
    append(client, &stream, 7..9).await?;
    for revision in [1, 0] {
        let data = format!("{revision}@{stream}").into_bytes();
        let link = EventData::binary("$>", data.into());
        client.append_to_stream(&*links, &AppendToStreamOptions::default(), link).await?;
    }
    let options = ReadStreamOptions::default().resolve_link_tos();
    let mut events = client.read_stream(&*links, &options).await?;
    for (wanted, revision) in [(8, 0), (7, 1)] {
        let read = events.next().await?.ok_or("too few events")?;
        let target = read.event.as_ref().ok_or("a link to nothing")?;
        expect(target.as_json::<Counted>()?.n, wanted)?;
        expect(read.link.as_ref().map(|link| link.revision), Some(revision))?;
        expect(target.stream_id(), &*stream)?;
    }
    Ok(())
}
