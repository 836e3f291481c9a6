//! Tests of reflection, for clients without definition files.

use std::collections::BTreeSet;

use futures_util::stream;
use prost::Message;
use prost_types::FileDescriptorProto;
use tonic::Code;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use umbel_proto::{
    gossip, kv, monitoring, operations, persistent, projections, server_features, streams, users,
    v2,
};

use super::client::Client;
use super::test_server::TestServer;

/// Service names of both versions of reflection, which have the same messages.
const SERVICES: [&str; 2] =
    ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];

/// Services that every server has.
const EVENT_SERVICES: [&str; 9] = [
    gossip::SERVICE,
    monitoring::SERVICE,
    operations::SERVICE,
    persistent::SERVICE,
    projections::SERVICE,
    server_features::SERVICE,
    streams::SERVICE,
    users::SERVICE,
    v2::streams::SERVICE,
];

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

/// Returns the file that defines a symbol, or the file with a name.
async fn file(client: &Client, service: &str, question: MessageRequest) -> FileDescriptorProto {
    match ask(client, service, question.clone()).await {
        MessageResponse::FileDescriptorResponse(files) => {
            FileDescriptorProto::decode(&files.file_descriptor_proto[0][..]).unwrap()
        }
        other => panic!("{question:?}: {other:?}"),
    }
}

fn symbol(name: &str) -> MessageRequest {
    MessageRequest::FileContainingSymbol(name.trim_start_matches('.').to_string())
}

/// Names of all services, in alphabetical order.
fn expected_services(reflection: &str, served: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = served.iter().map(|name| name.to_string()).collect();
    names.push(reflection.to_string());
    names.sort();
    names
}

#[test]
fn reflection_lists_every_service() {
    TestServer::with_kv().run(async |client, _| {
        for service in SERVICES {
            let mut listed = services(&client, service).await;
            listed.sort();
            let served = [&EVENT_SERVICES[..], &[kv::SERVICE]].concat();
            assert_eq!(listed, expected_services(service, &served));
        }
    });
}

#[test]
fn reflection_describes_methods_and_messages() {
    TestServer::with_kv().run(async |client, _| {
        for reflection in SERVICES {
            let mut imports = BTreeSet::new();
            for served in [&EVENT_SERVICES[..], &[kv::SERVICE]].concat() {
                let defined = file(&client, reflection, symbol(served)).await;
                let (package, name) = served.rsplit_once('.').unwrap();
                assert_eq!(defined.package(), package);
                let service = defined.service.iter().find(|s| s.name() == name).unwrap();
                assert!(!service.method.is_empty(), "{served}");
                for method in &service.method {
                    for message in [method.input_type(), method.output_type()] {
                        let defined = file(&client, reflection, symbol(message)).await;
                        let (_, name) = message.rsplit_once('.').unwrap();
                        let is_defined = defined.message_type.iter().any(|m| m.name() == name);
                        assert!(is_defined, "{message} of {served}");
                    }
                }
                imports.extend(defined.dependency);
            }
            while let Some(import) = imports.pop_first() {
                let by_name = MessageRequest::FileByFilename(import.clone());
                let imported = file(&client, reflection, by_name).await;
                assert_eq!(imported.name(), import);
                imports.extend(imported.dependency);
            }
        }
    });
}

#[test]
fn reflection_omits_unserved_services() {
    TestServer::new().run(async |client, _| {
        for service in SERVICES {
            let mut listed = services(&client, service).await;
            listed.sort();
            assert_eq!(listed, expected_services(service, &EVENT_SERVICES));
            let requests = stream::iter([ServerReflectionRequest {
                host: String::new(),
                message_request: Some(symbol("umbel.kv.v1.ScanRequest")),
            }]);
            let mut answers = client
                .streaming::<_, ServerReflectionResponse, _>(
                    service,
                    "ServerReflectionInfo",
                    requests,
                )
                .await
                .unwrap();
            assert_eq!(answers.message().await.unwrap_err().code(), Code::NotFound);
        }
    });
}

#[test]
fn malformed_message_ends_only_its_call() {
    TestServer::with_kv().run(async |client, _| {
        let wrong =
            stream::iter([kv::KeyRange { start: vec![0xff].into(), end: vec![0xff; 3].into() }]);
        let answers = client
            .streaming::<_, ServerReflectionResponse, _>(SERVICES[0], "ServerReflectionInfo", wrong)
            .await;
        if let Ok(mut answers) = answers {
            assert!(!matches!(answers.message().await, Ok(Some(_))), "it ends");
        }
        assert_eq!(services(&client, SERVICES[0]).await.len(), EVENT_SERVICES.len() + 2);
    });
}
