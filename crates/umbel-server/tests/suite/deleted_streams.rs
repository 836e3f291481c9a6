//! Tests of deleted and tombstoned streams in every form of append, and of their metadata.

use futures_util::stream;
use tonic::{Code, Status};
use umbel_proto::streams::append_resp::{CurrentRevision, Outcome};
use umbel_proto::streams::batch_append_req::Options as BatchOptions;
use umbel_proto::streams::batch_append_resp;
use umbel_proto::streams::read_req::RevisionOption;
use umbel_proto::streams::{AppendReq, AppendResp, BatchAppendReq, ExpectedRevision, append_req};
use umbel_proto::v2::errors::StreamRevisionConflictErrorDetails;
use umbel_testing::server_connection::STREAMS;

use super::client::{
    ANY, Client, EXISTS, NO_STREAM, event, events, fact, id, name, numbers, of_stream, part,
    subscription,
};
use super::test_server::TestServer;
use super::v2_client::{
    client_streaming_response, failure, of, part as session_part, record, records, session,
};

const START: RevisionOption = RevisionOption::Start(());
const NONE: [u64; 0] = [];

async fn read(client: &Client, stream: &str) -> Vec<u64> {
    let read = client.read(of_stream(stream, START)).await.unwrap();
    let is_missing = |content: &_| {
        matches!(content, umbel_proto::streams::read_resp::Content::StreamNotFound(_))
    };
    if read.iter().any(is_missing) { Vec::new() } else { numbers(read) }
}

async fn delete(client: &Client, stream: &str) {
    client.delete("Delete", stream, ANY).await.unwrap();
}

/// Appends a batch of its own; returns its response.
async fn batch(client: &Client, stream: &str, of: &[u64]) -> batch_append_resp::Outcome {
    let options = BatchOptions {
        stream_identifier: Some(name(stream)),
        expected_stream_position: Some(ANY.into()),
        deadline_option: None,
    };
    let request = BatchAppendReq {
        correlation_id: Some(id(77)),
        options: Some(options),
        proposed_messages: of.iter().copied().map(event).collect(),
        is_final: true,
    };
    let mut answers = client.batches(stream::iter([request])).await.unwrap();
    answers.message().await.unwrap().unwrap().result.unwrap()
}

fn is_deleted(status: &Status, stream: &str) {
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    assert_eq!(fact(status, "exception"), "stream-deleted");
    assert_eq!(fact(status, "stream-name"), stream);
}

#[test]
fn deleted_stream_that_is_expected_to_exist_is_reported_as_deleted() {
    TestServer::new().run(async |client, server| {
        client.append("cart", ANY, &events(0..2)).await.unwrap();
        delete(&client, "cart").await;
        let appended = client.append("cart", EXISTS, &events(2..3)).await;
        is_deleted(&appended.unwrap_err(), "cart");
        is_deleted(&client.append("cart", EXISTS, &[]).await.unwrap_err(), "cart");
        for method in ["Delete", "Tombstone"] {
            is_deleted(&client.delete(method, "cart", EXISTS).await.unwrap_err(), "cart");
        }
        // The second protocol reports the revision from which the next writer continues.
        let parts = vec![session_part("cart", -4, vec![record(2)])];
        let status = session(&client, server.address(), parts).await.unwrap_err();
        let (reason, facts) = failure::<StreamRevisionConflictErrorDetails>(&status);
        assert_eq!((&*reason, facts.unwrap().actual_revision), ("STREAM_REVISION_CONFLICT", 1));
        client.delete("Delete", "cart", ExpectedRevision::Revision(1)).await.unwrap();
    });
}

#[test]
fn stream_with_metadata_only_is_deleted() {
    TestServer::new().run(async |client, _| {
        for (number, expected) in [ANY, NO_STREAM, EXISTS].into_iter().enumerate() {
            let stream = format!("cart-{number}");
            let absent = client.delete("Delete", &stream, expected).await.unwrap_err();
            assert_eq!(fact(&absent, "exception"), "wrong-expected-version");
            let mut metadata = event(number as u64);
            metadata.data = b"{\"$maxCount\":9}".to_vec().into();
            client.append(&format!("$$${stream}")[1..], ANY, &[metadata]).await.unwrap();
            client.delete("Delete", &stream, expected).await.unwrap();
            delete(&client, &stream).await;
            client.append(&stream, ANY, &events(7..9)).await.unwrap();
            assert_eq!(read(&client, &stream).await, [7, 8]);
        }
    });
}

#[test]
fn metadata_of_a_tombstoned_stream_cannot_be_read() {
    TestServer::new().run(async |client, _| {
        let mut metadata = event(5);
        metadata.data = b"{\"x\":1}".to_vec().into();
        client.append("cart", ANY, &events(0..2)).await.unwrap();
        client.append("$$cart", ANY, &[metadata.clone()]).await.unwrap();
        client.delete("Tombstone", "cart", ANY).await.unwrap();
        is_deleted(&client.read(of_stream("$$cart", START)).await.unwrap_err(), "$$cart");
        is_deleted(&client.append("$$cart", ANY, &[metadata]).await.unwrap_err(), "$$cart");
        let following = subscription(of_stream("$$cart", START));
        is_deleted(&client.read(following).await.unwrap_err(), "$$cart");
    });
}

#[test]
fn event_is_written_again_after_a_delete_in_every_form_of_append() {
    TestServer::new().run(async |client, server| {
        let address = server.address();
        let appended = client.append("cart", ANY, &events(0..1)).await.unwrap();
        assert!(matches!(appended, Outcome::Success(_)));
        for form in 0..5 {
            delete(&client, "cart").await;
            assert_eq!(read(&client, "cart").await, NONE);
            match form {
                0 => drop(client.append("cart", ANY, &events(0..1)).await.unwrap()),
                1 => drop(batch(&client, "cart", &[0]).await),
                2 => {
                    let parts = vec![session_part("cart", None, vec![record(0)])];
                    session(&client, address, parts).await.unwrap();
                }
                3 => drop(records(&client, vec![of("cart", 0)], &[]).await.unwrap()),
                _ => drop(client.append("cart", ANY, &[event(0), event(1)]).await.unwrap()),
            }
            let wanted = if form < 4 { &[0][..] } else { &[0, 1] };
            assert_eq!(read(&client, "cart").await, wanted, "{form}");
        }
        let again = client.append("cart", ANY, &[event(0), event(1)]).await.unwrap();
        let Outcome::Success(again) = again else { panic!("{again:?}") };
        let last = Some(CurrentRevision::CurrentRevision(6));
        assert_eq!(again.current_revision_option, last, "a retry");
    });
}

#[test]
fn append_with_a_part_of_its_events_present_is_refused_with_the_cause() {
    TestServer::new().run(async |client, server| {
        let address = server.address();
        client.append("cart", ANY, &events(0..2)).await.unwrap();
        let cause = "the stream already has the first 1 of the 2 events, from revision 1 on";
        let options = append_req::Options {
            stream_identifier: Some(name("cart")),
            expected_stream_revision: Some(ANY),
        };
        let content = [
            append_req::Content::Options(options),
            append_req::Content::ProposedMessage(event(1)),
            append_req::Content::ProposedMessage(event(9)),
        ];
        let parts: Vec<AppendReq> = content.into_iter().map(part).collect();
        let path = format!("/{STREAMS}/Append");
        let response = client_streaming_response::<_, AppendResp>(&client, address, path, parts);
        let response = response.await.unwrap();
        let reason = response.metadata().get("reason").expect("a reason").to_str().unwrap();
        assert!(reason.starts_with(cause), "{reason}");
        let result = response.into_inner().result;
        assert!(matches!(result, Some(Outcome::WrongExpectedVersion(_))), "{result:?}");
        let batch_append_resp::Outcome::Error(status) = batch(&client, "cart", &[1, 9]).await
        else {
            panic!("a part is present");
        };
        assert!(status.message.contains(cause), "{status:?}");
        let wanted = ". Stream: cart, Expected version: -2, Actual version: 1";
        assert!(status.message.ends_with(wanted), "{status:?}");
        let parts = vec![session_part("cart", None, vec![record(1), record(9)])];
        let status = session(&client, address, parts).await.unwrap_err();
        assert!(status.message().contains(cause), "{status:?}");
        for checks in [&[][..], &[("cart", -4)]] {
            let both = vec![of("cart", 1), of("cart", 9)];
            let status = records(&client, both, checks).await.unwrap_err();
            assert!(status.message().contains(cause), "{status:?}");
        }
        let parts = vec![
            session_part("till", None, vec![record(20)]),
            session_part("cart", None, vec![record(1)]),
        ];
        let status = session(&client, address, parts).await.unwrap_err();
        assert!(status.message().contains("another stream of the append lacks"), "{status:?}");
        assert_eq!(read(&client, "cart").await, [0, 1]);
    });
}
