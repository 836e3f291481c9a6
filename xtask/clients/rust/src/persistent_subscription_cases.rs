//! Cases of the Rust client for persistent subscriptions.

use kurrentdb::{
    AppendToStreamOptions, Client, Error as ClientError, EventData, NakAction,
    PersistentSubscriptionOptions, StreamPosition,
};
use uuid::Uuid;

use crate::basic_cases::{Case, Counted, Failure, Outcome, expect};

/// Returns all cases; a case runs only when it is awaited.
pub fn all(client: &Client) -> Vec<Case<'_>> {
    vec![
        ("share the events of a stream", Box::pin(share(client))),
        ("retry, park and replay", Box::pin(retry_park_replay(client))),
        ("create, list and delete a group", Box::pin(make_list_delete(client))),
    ]
}

async fn new_group(client: &Client, numbers: std::ops::Range<u64>) -> Result<String, Failure> {
    let stream = format!("groups-{}", Uuid::new_v4());
    let mut events = Vec::new();
    for n in numbers {
        events.push(EventData::json("Counted", &Counted { n })?);
    }
    client.append_to_stream(stream.as_str(), &AppendToStreamOptions::default(), events).await?;
    let options = PersistentSubscriptionOptions::default()
        .start_from(StreamPosition::Start)
        .checkpoint_lower_bound(1)
        .checkpoint_upper_bound(1);
    client.create_persistent_subscription(stream.as_str(), "group", &options).await?;
    Ok(stream)
}

async fn share(client: &Client) -> Outcome {
    let stream = new_group(client, 0..3).await?;
    let options = Default::default();
    let mut group =
        client.subscribe_to_persistent_subscription(stream.as_str(), "group", &options).await?;
    for n in 0..3 {
        let event = group.next().await?;
        expect(event.get_original_event().as_json::<Counted>()?, Counted { n })?;
        group.ack(&event).await?;
    }
    Ok(())
}

async fn retry_park_replay(client: &Client) -> Outcome {
    let stream = new_group(client, 0..1).await?;
    let options = Default::default();
    let mut group =
        client.subscribe_to_persistent_subscription(stream.as_str(), "group", &options).await?;
    for action in [NakAction::Retry, NakAction::Park] {
        let event = group.next().await?;
        group.nack(&event, action, "because").await?;
    }
    let options = Default::default();
    while client
        .get_persistent_subscription_info(&stream, "group", &options)
        .await?
        .stats
        .parked_message_count
        == 0
    {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    client.replay_parked_messages(&stream, "group", &Default::default()).await?;
    let event = group.next().await?;
    expect(event.event.as_ref().ok_or("no event")?.as_json::<Counted>()?, Counted { n: 0 })?;
    group.ack(&event).await?;
    Ok(())
}

async fn make_list_delete(client: &Client) -> Outcome {
    let stream = new_group(client, 0..1).await?;
    let options = Default::default();
    let again = client.create_persistent_subscription(stream.as_str(), "group", &options).await;
    expect(matches!(again, Err(ClientError::ResourceAlreadyExists)), true)?;
    let listed =
        client.list_persistent_subscriptions_for_stream(&stream, &Default::default()).await?;
    expect(listed.len(), 1)?;
    let options = Default::default();
    client.delete_persistent_subscription(stream.as_str(), "group", &options).await?;
    let again = client.delete_persistent_subscription(stream.as_str(), "group", &options).await;
    expect(matches!(again, Err(ClientError::ResourceNotFound)), true)
}
