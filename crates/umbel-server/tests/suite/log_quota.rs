//! Tests of the quota of the event log: every call that appends is refused with a reason.

use tonic::Code;
use umbel_proto::streams::BatchAppendReq;
use umbel_proto::streams::batch_append_req::Options;
use umbel_proto::streams::batch_append_resp::Outcome;
use umbel_proto::streams::read_req::RevisionOption;

use futures_util::stream;

use super::client::{ANY, Client, events, id, name, numbers, of_stream};
use super::http_client::send;
use super::monitoring::{http_request, metric};
use super::test_server::TestServer;
use super::v2_client::{blob, of, part, records, session};

const QUOTA_BYTES: u64 = 256 << 10;

/// Appends events of 10 KB until the quota is reached; returns the number of them.
async fn fill(client: &Client) -> u64 {
    for number in 0.. {
        let mut event = super::client::event(number);
        event.data = vec![b'1'; 10_000].into();
        match client.append("full", ANY, &[event]).await {
            Ok(_) => {}
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                assert!(status.message().contains("--log-quota"), "{status:?}");
                return number;
            }
        }
    }
    unreachable!("the quota ends the appends")
}

/// Story: no option limited the log, so one client could fill the disk of the server.
#[test]
fn every_append_over_the_quota_is_refused() {
    TestServer::with_log_quota(QUOTA_BYTES).run(async |client, server| {
        let address = server.address();
        let written = fill(&client).await;
        assert!(written > 15 && written < 26, "{written}");
        let large = |number| blob(number, 100_000);
        let in_session = part("full", None, vec![large(900)]);
        let refused = session(&client, address, vec![in_session]).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        let mut record = large(901);
        record.stream = "full".to_string();
        let refused = records(&client, vec![record, of("other", 902)], &[]).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        assert!(refused.message().contains("quota"), "{refused:?}");
        let mut proposed = events(903..904);
        proposed[0].data = vec![b'1'; 100_000].into();
        let batch = BatchAppendReq {
            correlation_id: Some(id(1)),
            options: Some(Options {
                stream_identifier: Some(name("full")),
                expected_stream_position: Some(ANY.into()),
                deadline_option: None,
            }),
            proposed_messages: proposed,
            is_final: true,
        };
        let mut answers = client.batches(stream::iter([batch])).await.unwrap();
        let answer = answers.message().await.unwrap().unwrap();
        match answer.result.unwrap() {
            Outcome::Error(status) => assert_eq!(status.code, 8, "{status:?}"),
            other => panic!("{other:?}"),
        }
        let body = format!("\"{}\"", "1".repeat(100_000)).into_bytes();
        let headers = ["content-type: application/json", "kurrent-eventtype: Large"];
        let answer = send(address, "POST", "/streams/full", &headers, &body);
        // Story: the status was 429, after which clients try again without end.
        assert_eq!(answer.status, 507, "{answer:?}");
        assert!(answer.text().contains("InsufficientStorage"), "{answer:?}");
        assert!(answer.text().contains("quota"), "{answer:?}");
        // Reads go on, and the metrics show the reason.
        let read = client.read(of_stream("full", RevisionOption::Start(()))).await.unwrap();
        assert_eq!(read.len() as u64, written);
        let metrics = http_request(address, "GET", "/metrics").1;
        assert_eq!(metric(&metrics, "umbel_log_quota_bytes", &[]), QUOTA_BYTES as f64);
        // A delete and a scavenge make space.
        client.delete("Delete", "full", ANY).await.unwrap();
        let every = umbel_events::ScavengeOptions { removes_all: true, ..Default::default() };
        server.store.scavenge(&every).unwrap();
        client.append("other", ANY, &events(910..912)).await.unwrap();
        let read = client.read(of_stream("other", RevisionOption::Start(()))).await.unwrap();
        assert_eq!(numbers(read), [910, 911]);
    });
}
