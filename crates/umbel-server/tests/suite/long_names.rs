//! Tests of the longest stream names, in every call that names a stream.

use futures_util::stream;
use umbel_events::limits::STREAM_NAME_BYTES_MAX;
use umbel_proto::streams::BatchAppendReq;
use umbel_proto::streams::append_req::ProposedMessage;
use umbel_proto::streams::batch_append_req::Options;
use umbel_proto::streams::batch_append_resp::Outcome;
use umbel_proto::streams::read_req::RevisionOption;
use umbel_proto::v2::streams::AppendRecord;

use super::client::{ANY, Client, event, id, name, of_stream, recorded};
use super::test_server::TestServer;
use super::v2_client::{part, record, records, session};

/// Metadata of a stream.
const SAID: &[u8] = b"{}";

fn counted_record(number: u64) -> AppendRecord {
    AppendRecord { data: SAID.to_vec(), ..record(number) }
}

/// Whether a batch to this stream was written.
async fn batch(client: &Client, stream: &str) -> bool {
    let options = Options {
        stream_identifier: Some(name(stream)),
        expected_stream_position: Some(ANY.into()),
        deadline_option: None,
    };
    let part = BatchAppendReq {
        correlation_id: Some(id(1)),
        options: Some(options),
        proposed_messages: vec![ProposedMessage { data: SAID.into(), ..event(1) }],
        is_final: true,
    };
    let mut answers = client.batches(stream::iter([part])).await.unwrap();
    let answer = answers.message().await.unwrap().unwrap();
    matches!(answer.result, Some(Outcome::Success(_)))
}

/// Story: a stream with the longest name accepted appends, but no ACL could be set. The name of its
/// metadata stream was too long for every call except the console's.
#[test]
fn longest_stream_name_has_reachable_metadata() {
    TestServer::new().run(async |client, server| {
        for bytes in [STREAM_NAME_BYTES_MAX - 1, STREAM_NAME_BYTES_MAX, STREAM_NAME_BYTES_MAX + 1] {
            let metadata = format!("$${}", "s".repeat(bytes));
            let is_written = bytes <= STREAM_NAME_BYTES_MAX;
            assert_eq!(batch(&client, &metadata).await, is_written, "{bytes}");
            let sent = [ProposedMessage { data: SAID.into(), ..event(4) }];
            let sent = client.append(&metadata, ANY, &sent).await;
            assert_eq!(sent.is_ok(), is_written, "{bytes}: {sent:?}");
            let sent = vec![AppendRecord { stream: metadata.clone(), ..counted_record(2) }];
            let sent = records(&client, sent, &[]).await;
            assert_eq!(sent.is_ok(), is_written, "{bytes}: {sent:?}");
            let parts = vec![part(&metadata, None, vec![counted_record(3)])];
            let sent = session(&client, server.address(), parts).await;
            assert_eq!(sent.is_ok(), is_written, "{bytes}: {sent:?}");
            if is_written {
                let read = client.read(of_stream(&metadata, RevisionOption::Start(()))).await;
                let last = recorded(read.unwrap().remove(0));
                assert_eq!(last.stream_revision, 3, "of metadata the last one counts");
                let kept = client.delete("Delete", &metadata, ANY).await.unwrap_err();
                assert!(kept.message().contains("cannot be deleted without its stream"), "{kept}");
            }
        }
    });
}
