//! Tests of views: read and subscribed to as streams, with and without resolved links, and stopped.

use umbel_events::{ExpectedVersion, NewEvent, Store};
use umbel_proto::streams::read_req::RevisionOption;
use umbel_proto::streams::read_resp::{Content, ReadEvent};

use super::client::{ANY, events as numbered, of_stream};
use super::projections::call;
use super::test_server::TestServer;

const START: RevisionOption = RevisionOption::Start(());

fn append(store: &Store, stream: &str, kind: &str) {
    let event = NewEvent::json(store.new_id().unwrap(), kind, b"{}");
    store.append(stream, ExpectedVersion::Any, &[event]).unwrap();
}

fn events(read: Vec<Content>) -> Vec<ReadEvent> {
    let event = |content| match content {
        Content::Event(event) => Some(event),
        _ => None,
    };
    read.into_iter().filter_map(event).collect()
}

#[test]
fn view_is_read_as_links_or_resolved_events() {
    TestServer::new().run(async |client, server| {
        for (stream, kind) in [("cart-1", "Added"), ("order-1", "Paid"), ("cart-2", "Paid")] {
            append(&server.store, stream, kind);
        }
        let mut request = of_stream("$ce-cart", START);
        request.resolve_links = false;
        let links = events(client.read(request).await.unwrap());
        let data: Vec<_> = links.iter().map(|link| link.event.clone().unwrap().data).collect();
        assert_eq!(data, ["0@cart-1", "0@cart-2"]);
        assert!(links.iter().all(|link| link.link.is_none()));
        let mut request = of_stream("$et-Paid", START);
        request.resolve_links = true;
        let resolved = events(client.read(request).await.unwrap());
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
        assert!(refused.is_err(), "a view accepts no appends");
    });
}

#[test]
fn stopped_view_keeps_its_events_until_restarted() {
    TestServer::new().run(async |client, server| {
        append(&server.store, "cart-1", "Added");
        call(&client, "Disable", "$by_category").await.unwrap();
        append(&server.store, "cart-1", "Added");
        let count = async || events(client.read(of_stream("$ce-cart", START)).await.unwrap()).len();
        assert_eq!(count().await, 1, "it is stopped");
        call(&client, "Enable", "$by_category").await.unwrap();
        assert_eq!(count().await, 2, "nothing was missed");
    });
}
