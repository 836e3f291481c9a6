//! Tests of reflection, for clients without definition files.

use futures_util::stream;
use prost::Message;
use prost_types::FileDescriptorProto;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use super::client::Client;
use super::test_server::TestServer;

/// Both versions have the same messages.
const SERVICES: [&str; 2] =
    ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];

async fn ask(client: &Client, service: &str, question: MessageRequest) -> MessageResponse {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
    let requests = stream::iter([request]);
    let mut answers = client
        .streaming::<_, ServerReflectionResponse, _>(service, "ServerReflectionInfo", requests)
        .await
        .unwrap();
    answers.message().await.unwrap().unwrap().message_response.unwrap()
}

async fn services(client: &Client, service: &str) -> Vec<String> {
    match ask(client, service, MessageRequest::ListServices(String::new())).await {
        MessageResponse::ListServicesResponse(list) => {
            list.service.into_iter().map(|service| service.name).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn reflection_describes_the_messages() {
    TestServer::with_kv().run(async |client, _| {
        for service in SERVICES {
            let listed = services(&client, service).await;
            assert!(listed.contains(&"umbel.kv.v1.KeyValue".to_string()), "{listed:?}");
            assert!(listed.contains(&service.to_string()), "{listed:?}");
            let symbol = MessageRequest::FileContainingSymbol("umbel.kv.v1.KeyValue".to_string());
            let MessageResponse::FileDescriptorResponse(files) =
                ask(&client, service, symbol).await
            else {
                panic!("a file");
            };
            let file = FileDescriptorProto::decode(&files.file_descriptor_proto[0][..]).unwrap();
            let methods = &file.service[0].method;
            assert_eq!(methods.len(), 9);
            assert!(file.message_type.iter().any(|message| message.name() == "ScanRequest"));
        }
    });
}

#[test]
fn reflection_omits_unserved_services() {
    TestServer::new().run(async |client, _| {
        for service in SERVICES {
            let listed = services(&client, service).await;
            assert_eq!(listed, [service.to_string()]);
        }
    });
}

#[test]
fn malformed_message_ends_only_its_call() {
    TestServer::with_kv().run(async |client, _| {
        let wrong = stream::iter([umbel_proto::kv::KeyRange {
            start: vec![0xff].into(),
            end: vec![0xff; 3].into(),
        }]);
        let answers = client
            .streaming::<_, ServerReflectionResponse, _>(SERVICES[0], "ServerReflectionInfo", wrong)
            .await;
        if let Ok(mut answers) = answers {
            assert!(!matches!(answers.message().await, Ok(Some(_))), "it ends");
        }
        assert_eq!(services(&client, SERVICES[0]).await.len(), 2);
    });
}
