//! Views read and followed as streams, with and without what their links point to, and stopped.

use umbel_events::{Expected, NewEvent, Store};
use umbel_proto::streams::read_req::RevisionOption;
use umbel_proto::streams::read_resp::{Content, ReadEvent};

use super::client::{ANY, events as numbered, of_stream};
use super::ground::Ground;
use super::projections::call;

const START: RevisionOption = RevisionOption::Start(());

fn append(store: &Store, stream: &str, kind: &str) {
    let event = NewEvent::json(store.new_id().unwrap(), kind, b"{}");
    store.append(stream, Expected::Any, &[event]).unwrap();
}

fn events(read: Vec<Content>) -> Vec<ReadEvent> {
    let event = |content| match content {
        Content::Event(event) => Some(event),
        _ => None,
    };
    read.into_iter().filter_map(event).collect()
}

#[test]
fn a_view_is_read_as_links_or_as_what_they_point_to() {
    Ground::new().run(async |client, ground| {
        for (stream, kind) in [("cart-1", "Added"), ("order-1", "Paid"), ("cart-2", "Paid")] {
            append(&ground.store, stream, kind);
        }
        let mut asked = of_stream("$ce-cart", START);
        asked.resolve_links = false;
        let links = events(client.read(asked).await.unwrap());
        let data: Vec<_> = links.iter().map(|link| link.event.clone().unwrap().data).collect();
        assert_eq!(data, ["0@cart-1", "0@cart-2"]);
        assert!(links.iter().all(|link| link.link.is_none()));
        let mut asked = of_stream("$et-Paid", START);
        asked.resolve_links = true;
        let resolved = events(client.read(asked).await.unwrap());
        let streams: Vec<_> = resolved
            .iter()
            .map(|one| one.event.clone().unwrap().stream_identifier.unwrap().stream_name)
            .collect();
        assert_eq!(streams, ["order-1", "cart-2"]);
        let numbers: Vec<_> =
            resolved.iter().map(|one| one.link.clone().unwrap().stream_revision).collect();
        assert_eq!(numbers, [0, 1]);
        let missing = client.read(of_stream("$ce-nothing", START)).await.unwrap();
        assert!(matches!(missing[..], [Content::StreamNotFound(_)]), "{missing:?}");
        let proposed = numbered(0..1);
        let refused = client.append("$ce-cart", ANY, &proposed).await;
        assert!(refused.is_err(), "nobody appends to a view");
    });
}

#[test]
fn a_view_that_is_stopped_shows_what_was_there_until_it_goes_on() {
    Ground::new().run(async |client, ground| {
        append(&ground.store, "cart-1", "Added");
        call(&client, "Disable", "$by_category").await.unwrap();
        append(&ground.store, "cart-1", "Added");
        let count = async || events(client.read(of_stream("$ce-cart", START)).await.unwrap()).len();
        assert_eq!(count().await, 1, "it is stopped");
        call(&client, "Enable", "$by_category").await.unwrap();
        assert_eq!(count().await, 2, "nothing was missed");
    });
}
