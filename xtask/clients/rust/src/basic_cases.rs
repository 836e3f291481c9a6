//! Basic cases of the Rust client: append, read, delete, subscribe, metadata, gossip.

use std::error::Error;
use std::fmt::Debug;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

use kurrentdb::{
    AppendToStreamOptions, BatchAppendOptions, Client, CurrentRevision, DeleteStreamOptions,
    Error as ClientError, EventData, Position, ReadAllOptions, ReadStreamOptions, ResolvedEvent,
    StreamMetadataBuilder, StreamMetadataResult, StreamPosition, StreamState,
    SubscribeToAllOptions, SubscribeToStreamOptions, SubscriptionEvent, TombstoneStreamOptions,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Reason why a case failed.
pub type Failure = Box<dyn Error + Send + Sync>;
/// Result of a case.
pub type Outcome = Result<(), Failure>;

/// A case: its name and its future.
pub type Case<'a> = (&'static str, Pin<Box<dyn Future<Output = Outcome> + 'a>>);

/// Returns all cases; a case runs only when it is awaited.
pub fn all<'a>(client: &'a Client, connection: &'a str) -> Vec<Case<'a>> {
    vec![
        ("append an event and read it back", Box::pin(append_and_read(client))),
        ("append batches", Box::pin(append_batches(client))),
        ("append the same events again", Box::pin(append_again(client))),
        ("see a wrong expected version", Box::pin(wrong_expected_version(client))),
        ("read a stream forwards and backwards", Box::pin(read_both_ways(client))),
        ("read all forwards and backwards", Box::pin(read_all_both_ways(client))),
        ("report a missing stream", Box::pin(find_no_stream(client))),
        ("delete a stream and create it again", Box::pin(delete_and_recreate(client))),
        ("tombstone a stream", Box::pin(tombstone(client))),
        ("subscribe to a stream, catch up and go live", Box::pin(subscribe(client))),
        ("subscribe after an event and from the end", Box::pin(subscribe_later(client))),
        ("subscribe to all", Box::pin(subscribe_to_all(client))),
        ("set and get the metadata of a stream", Box::pin(metadata(client))),
        ("get the server's version", Box::pin(server_version(client))),
        ("find the leader by gossip", Box::pin(gossip(connection))),
    ]
}

/// The data of the events.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// Number of the event.
    pub n: u64,
}

/// Returns a stream name that no other test uses.
pub fn new_stream() -> String {
    format!("rust-{}", Uuid::new_v4())
}

fn counted(numbers: Range<u64>) -> Result<Vec<EventData>, Failure> {
    Ok(numbers.map(|n| EventData::json("Counted", &Counted { n })).collect::<Result<_, _>>()?)
}

/// The number of an event.
pub fn number(event: &ResolvedEvent) -> Result<u64, Failure> {
    Ok(event.get_original_event().as_json::<Counted>()?.n)
}

/// Fails if the value `seen` differs from `wanted`.
pub fn expect<T: Debug + PartialEq>(seen: T, wanted: T) -> Outcome {
    if seen == wanted {
        return Ok(());
    }
    Err(format!("{seen:?} is not {wanted:?}").into())
}

/// Returns the error of a call that must fail.
pub fn refused<T: Debug>(result: Result<T, ClientError>) -> Result<ClientError, Failure> {
    match result {
        Ok(done) => Err(format!("{done:?} instead of an error").into()),
        Err(error) => Ok(error),
    }
}

fn at(state: StreamState) -> AppendToStreamOptions {
    AppendToStreamOptions::default().stream_state(state)
}

/// Appends an event for each of these numbers.
pub async fn append(
    client: &Client,
    stream: &str,
    numbers: Range<u64>,
) -> Result<Position, Failure> {
    let done = client.append_to_stream(stream, &at(StreamState::Any), counted(numbers)?).await?;
    Ok(done.position)
}

async fn numbers(
    client: &Client,
    stream: &str,
    options: &ReadStreamOptions,
) -> Result<Vec<u64>, Failure> {
    let mut events = client.read_stream(stream, options).await?;
    let mut numbers = Vec::new();
    while let Some(event) = events.next().await? {
        numbers.push(number(&event)?);
    }
    Ok(numbers)
}

/// Reads a stream that must be unreadable and returns the error.
async fn unreadable(client: &Client, stream: &str) -> Result<ClientError, Failure> {
    match client.read_stream(stream, &ReadStreamOptions::default()).await {
        Ok(mut events) => refused(events.next().await.map(|_| ())),
        Err(error) => Ok(error),
    }
}

async fn append_and_read(client: &Client) -> Outcome {
    let (stream, id) = (new_stream(), Uuid::new_v4());
    let event = EventData::json("Counted", &Counted { n: 7 })?
        .id(id)
        .metadata_as_json(&Counted { n: 8 })?;
    let done = client.append_to_stream(&*stream, &at(StreamState::NoStream), event).await?;
    expect(done.next_expected_version, 0)?;
    expect(done.position.commit, done.position.prepare)?;
    let mut events = client.read_stream(&*stream, &ReadStreamOptions::default()).await?;
    let read = events.next().await?.ok_or("nothing to read")?;
    let read = read.get_original_event();
    expect((read.id, read.revision, read.is_json), (id, 0, true))?;
    expect((&*read.event_type, read.stream_id()), ("Counted", &*stream))?;
    expect(read.position, done.position)?;
    expect(&read.custom_metadata[..], br#"{"n":8}"#)?;
    expect(events.next().await?.is_none(), true)
}

async fn append_batches(client: &Client) -> Outcome {
    let batches = client.batch_append(&BatchAppendOptions::default()).await?;
    let stream = new_stream();
    for turn in 0..20 {
        let state = if turn == 0 {
            StreamState::NoStream
        } else {
            StreamState::StreamRevision(turn * 5 - 1)
        };
        let events = counted(turn * 5..turn * 5 + 5)?;
        let done = batches.append_to_stream(&stream, state, events).await?;
        expect(done.current_revision(), Some(turn * 5 + 4))?;
        expect(done.stream_name(), &*stream)?;
    }
    let all = numbers(client, &stream, &ReadStreamOptions::default()).await?;
    expect(all, (0..100).collect())?;
    let wrong = batches.append_to_stream(&stream, StreamState::NoStream, counted(0..1)?).await;
    // This client does not look at the details of a batch.
    match refused(wrong)? {
        ClientError::Grpc { message, .. } => {
            expect(message.contains("WrongExpectedVersion") && message.contains("99"), true)
        }
        error => Err(error.into()),
    }
}

async fn append_again(client: &Client) -> Outcome {
    let stream = new_stream();
    let events: Vec<_> = counted(0..3)?.into_iter().map(|event| event.id(Uuid::new_v4())).collect();
    let options = at(StreamState::NoStream);
    let first = client.append_to_stream(&*stream, &options, events.clone()).await?;
    let again = client.append_to_stream(&*stream, &options, events).await?;
    expect(again.position, first.position)?;
    expect(numbers(client, &stream, &ReadStreamOptions::default()).await?, vec![0, 1, 2])
}

async fn wrong_expected_version(client: &Client) -> Outcome {
    let stream = new_stream();
    append(client, &stream, 0..2).await?;
    for state in [StreamState::NoStream, StreamState::StreamRevision(7)] {
        let done = client.append_to_stream(&*stream, &at(state), counted(9..10)?).await;
        match refused(done)? {
            ClientError::WrongExpectedVersion { expected, current } => {
                expect(expected, state)?;
                expect(current, CurrentRevision::Current(1))?;
            }
            error => return Err(error.into()),
        }
    }
    let missing = new_stream();
    let done =
        client.append_to_stream(&*missing, &at(StreamState::StreamExists), counted(0..1)?).await;
    match refused(done)? {
        ClientError::WrongExpectedVersion { current, .. } => {
            expect(current, CurrentRevision::NoStream)
        }
        error => Err(error.into()),
    }
}

async fn read_both_ways(client: &Client) -> Outcome {
    let stream = new_stream();
    append(client, &stream, 0..100).await?;
    let options = ReadStreamOptions::default;
    let from = |revision| options().position(StreamPosition::Position(revision));
    expect(numbers(client, &stream, &from(40).max_count(3)).await?, vec![40, 41, 42])?;
    let last = options().position(StreamPosition::End).backwards().max_count(2);
    expect(numbers(client, &stream, &last).await?, vec![99, 98])?;
    expect(numbers(client, &stream, &from(2).backwards()).await?, vec![2, 1, 0])?;
    expect(numbers(client, &stream, &options()).await?, (0..100).collect())
}

async fn read_all_both_ways(client: &Client) -> Outcome {
    let stream = new_stream();
    let first = append(client, &stream, 0..1).await?;
    append(client, &stream, 1..5).await?;
    let forwards = ReadAllOptions::default().position(StreamPosition::Position(first)).max_count(5);
    let backwards =
        ReadAllOptions::default().position(StreamPosition::End).backwards().max_count(5);
    for (options, wanted) in [(forwards, [0, 1, 2, 3, 4]), (backwards, [4, 3, 2, 1, 0])] {
        let mut events = client.read_all(&options).await?;
        let mut seen = Vec::new();
        while let Some(event) = events.next().await? {
            seen.push(number(&event)?);
        }
        expect(seen, wanted.to_vec())?;
    }
    Ok(())
}

async fn find_no_stream(client: &Client) -> Outcome {
    let missing = new_stream();
    match unreadable(client, &missing).await? {
        ClientError::ResourceNotFound => {}
        error => return Err(error.into()),
    }
    refused(client.delete_stream(&*missing, &DeleteStreamOptions::default()).await)?;
    Ok(())
}

async fn delete_and_recreate(client: &Client) -> Outcome {
    let stream = new_stream();
    append(client, &stream, 0..2).await?;
    let options = |revision| {
        DeleteStreamOptions::default().stream_state(StreamState::StreamRevision(revision))
    };
    refused(client.delete_stream(&*stream, &options(5)).await)?;
    let position = client.delete_stream(&*stream, &options(1)).await?;
    expect(position.is_some(), true)?;
    match unreadable(client, &stream).await? {
        ClientError::ResourceNotFound => {}
        error => return Err(error.into()),
    }
    let done =
        client.append_to_stream(&*stream, &at(StreamState::NoStream), counted(2..3)?).await?;
    expect(done.next_expected_version, 2)?;
    expect(numbers(client, &stream, &ReadStreamOptions::default()).await?, vec![2])
}

async fn tombstone(client: &Client) -> Outcome {
    let stream = new_stream();
    append(client, &stream, 0..1).await?;
    client.tombstone_stream(&*stream, &TombstoneStreamOptions::default()).await?;
    let append = client.append_to_stream(&*stream, &at(StreamState::Any), counted(1..2)?).await;
    let delete = client.delete_stream(&*stream, &DeleteStreamOptions::default()).await;
    for error in [unreadable(client, &stream).await?, refused(append)?, refused(delete)?] {
        match error {
            ClientError::ResourceDeleted => {}
            error => return Err(error.into()),
        }
    }
    Ok(())
}

async fn subscribe(client: &Client) -> Outcome {
    let stream = new_stream();
    append(client, &stream, 0..120).await?;
    let options = SubscribeToStreamOptions::default().start_from(StreamPosition::Start);
    let mut subscription = client.subscribe_to_stream(&*stream, &options).await;
    let writer = {
        let (client, stream) = (client.clone(), stream.clone());
        tokio::spawn(async move {
            for n in 120..170 {
                append(&client, &stream, n..n + 1).await?;
            }
            Ok::<_, Failure>(())
        })
    };
    let (mut seen, mut confirmed, mut caught_up) = (Vec::new(), 0, 0);
    while seen.len() < 170 || caught_up == 0 {
        match subscription.next_subscription_event().await? {
            SubscriptionEvent::Confirmed(_) => confirmed += 1,
            SubscriptionEvent::EventAppeared(event) => seen.push(number(&event)?),
            SubscriptionEvent::CaughtUp(_) => caught_up += 1,
            _ => {}
        }
    }
    writer.await??;
    expect((confirmed, caught_up), (1, 1))?;
    expect(seen, (0..170).collect())
}

async fn subscribe_later(client: &Client) -> Outcome {
    let stream = new_stream();
    append(client, &stream, 0..5).await?;
    let from = |position| SubscribeToStreamOptions::default().start_from(position);
    let mut behind = client.subscribe_to_stream(&*stream, &from(StreamPosition::Position(2))).await;
    let mut live = client.subscribe_to_stream(&*stream, &from(StreamPosition::End)).await;
    while !matches!(live.next_subscription_event().await?, SubscriptionEvent::CaughtUp(_)) {}
    append(client, &stream, 5..6).await?;
    for wanted in 3..6 {
        expect(number(&behind.next().await?)?, wanted)?;
    }
    expect(number(&live.next().await?)?, 5)
}

async fn subscribe_to_all(client: &Client) -> Outcome {
    let stream = new_stream();
    let first = append(client, &stream, 0..1).await?;
    let options = SubscribeToAllOptions::default().position(StreamPosition::Position(first));
    let mut subscription = client.subscribe_to_all(&options).await;
    for n in 1..21 {
        append(client, &stream, n..n + 1).await?;
    }
    for wanted in 1..21 {
        expect(number(&subscription.next().await?)?, wanted)?;
    }
    Ok(())
}

async fn metadata(client: &Client) -> Outcome {
    let stream = new_stream();
    append(client, &stream, 0..5).await?;
    let metadata = StreamMetadataBuilder::new().max_count(2).build();
    client.set_stream_metadata(&*stream, &at(StreamState::NoStream), &metadata).await?;
    match client.get_stream_metadata(&*stream, &ReadStreamOptions::default()).await? {
        StreamMetadataResult::Success(known) => {
            expect((known.version(), known.metadata().max_count), (0, Some(2)))?;
        }
        other => return Err(format!("{other:?}").into()),
    }
    expect(numbers(client, &stream, &ReadStreamOptions::default()).await?, vec![3, 4])
}

async fn server_version(client: &Client) -> Outcome {
    let version = client.server_info().await?.version();
    expect((version.major(), version.minor(), version.patch()), (26, 1, 0))
}

async fn gossip(connection: &str) -> Outcome {
    let discover = connection.replace("kurrentdb://", "kurrentdb+discover://");
    let client = Client::new(discover.parse()?)?;
    let stream = new_stream();
    append(&client, &stream, 0..2).await?;
    expect(numbers(&client, &stream, &ReadStreamOptions::default()).await?, vec![0, 1])
}
