//! Tests of the metrics of consumer groups.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;
use umbel_proto::persistent::NackAction;

use super::client::{ANY, Client, events, id};
use super::monitoring::{http_request, metric};
use super::persistent_subscriptions::{
    Consumer, by_stream, create, delete, of_all, of_stream, settings,
};
use super::test_server::TestServer;

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

async fn page(address: SocketAddr) -> String {
    let request = move || http_request(address, "GET", "/metrics");
    tokio::task::spawn_blocking(request).await.unwrap().1
}

/// Waits until the page meets a condition: the numbers of groups are some seconds old.
async fn page_until(address: SocketAddr, what: &str, is_met: impl Fn(&str) -> bool) -> String {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        let text = page(address).await;
        if is_met(&text) {
            return text;
        }
        assert!(Instant::now() < end, "never: {what}: {text}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

const CART: [&str; 2] = ["stream=\"cart\"", "group=\"group\""];
const KURRENT_CART: [&str; 2] = ["event_stream_id=\"cart\"", "group_name=\"group\""];

async fn append(client: &Client, stream: &str, numbers: std::ops::Range<u64>) {
    client.append(stream, ANY, &events(numbers)).await.unwrap();
}

/// A group without consumers falls behind, too. Its numbers are read without starting it.
#[test]
fn group_without_consumers_has_its_lag() {
    TestServer::new().run(async |client, server| {
        let address = server.address();
        append(&client, "cart", 0..7).await;
        create(&client, of_stream("cart", settings())).await.unwrap();
        create(&client, of_all(by_stream("", &["cart"]))).await.unwrap();
        let text = page(address).await;
        assert_eq!(metric(&text, "umbel_groups", &[]), 2.0);
        assert_eq!(metric(&text, "umbel_groups_omitted", &[]), 0.0);
        assert_eq!(metric(&text, "umbel_group_lag_events", &CART), 7.0);
        assert_eq!(metric(&text, "umbel_group_parked_events", &CART), 0.0);
        assert!(metric(&text, "umbel_group_lag_bytes", &["stream=\"$all\""]) > 0.0);
        assert!(!text.contains("umbel_group_oldest_parked_seconds{"), "nothing is parked");
        let known = "kurrentdb_persistent_sub_last_known_event_number";
        assert_eq!(metric(&text, known, &KURRENT_CART), 6.0);
        append(&client, "cart", 7..9).await;
        let is_met = |text: &str| metric(text, "umbel_group_lag_events", &CART) == 9.0;
        page_until(address, "a greater lag", is_met).await;
        delete(&client, "cart").await.unwrap();
        page_until(address, "no group", |text| !text.contains("{stream=\"cart\"")).await;
    });
}

#[test]
fn numbers_of_running_groups_follow_their_consumers() {
    TestServer::new().run(async |client, server| {
        let address = server.address();
        append(&client, "cart", 0..5).await;
        create(&client, of_stream("cart", settings())).await.unwrap();
        let mut consumer = Consumer::of(&client, "cart", 3).await;
        for wanted in 0..3 {
            assert_eq!(consumer.number().await, (wanted, 0));
        }
        let is_met = |text: &str| metric(text, "umbel_group_in_flight_events", &CART) == 3.0;
        let text = page_until(address, "events in flight", is_met).await;
        assert_eq!(metric(&text, "umbel_group_lag_events", &CART), 5.0);
        assert_eq!(metric(&text, "umbel_group_consumers", &CART), 1.0);
        consumer.nack(0, NackAction::Park);
        consumer.ack(vec![id(1), id(2)]);
        for wanted in 3..5 {
            assert_eq!(consumer.number().await, (wanted, 0));
        }
        let is_met = |text: &str| metric(text, "umbel_group_parked_events", &CART) == 1.0;
        let text = page_until(address, "a parked event", is_met).await;
        assert_eq!(metric(&text, "umbel_group_lag_events", &CART), 2.0);
        let age = metric(&text, "umbel_group_oldest_parked_seconds", &CART);
        assert!((0.0..30.0).contains(&age), "{age}");
        for (name, wanted) in [
            ("connections", 1.0),
            ("parked_messages", 1.0),
            ("in_flight_messages", 2.0),
            ("items_processed_total", 5.0),
        ] {
            let name = format!("kurrentdb_persistent_sub_{name}");
            assert_eq!(metric(&text, &name, &KURRENT_CART), wanted, "{name}");
        }
        drop(consumer);
    });
}

/// Names that need escapes in the text format.
#[test]
fn names_of_every_kind_are_escaped() {
    TestServer::new().run(async |client, server| {
        let stream = "a\"b\\c\nd\re} 1\u{1f980}é{x=\"y\"";
        append(&client, stream, 0..2).await;
        create(&client, of_stream(stream, settings())).await.unwrap();
        let text = page(server.address()).await;
        let escaped = "stream=\"a\\\"b\\\\c\\nd\re} 1\u{1f980}é{x=\\\"y\\\"\"";
        assert_eq!(metric(&text, "umbel_group_lag_events", &[escaped]), 2.0);
    });
}
