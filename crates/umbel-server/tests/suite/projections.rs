//! Tests of the projection calls: built-in projections are stopped, started, reset and described.

use std::net::SocketAddr;

use hyper::http::uri::Uri;
use tonic::client::Grpc;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use umbel_events::{ExpectedVersion, NewEvent};
use umbel_proto::projections::{
    CreateMode, CreateOptions, CreateReq, Details, ProjectionName, ProjectionReq, StateResp,
    StatisticsMode, StatisticsOptions, StatisticsReq, StatisticsResp,
};
use umbel_server::{Config, Server};

use super::client::{ANY, Client, events};
use super::test_server::{TestServer, run};

/// The service, repeated here so that a changed name is noticed.
const SERVICE: &str = "event_store.client.projections.Projections";
const ALL: [&str; 5] =
    ["$streams", "$stream_by_category", "$by_category", "$by_event_type", "$by_correlation_id"];

pub async fn call(client: &Client, method: &str, name: &str) -> Result<(), Status> {
    let options = Some(ProjectionName { name: name.to_string() });
    client.unary(SERVICE, method, ProjectionReq { options }).await
}

async fn statistics(
    client: &Client,
    address: SocketAddr,
    mode: Option<StatisticsMode>,
) -> Result<Vec<Details>, Status> {
    let origin: Uri = format!("http://{address}").parse().unwrap();
    let mut grpc = Grpc::with_origin(client.0.clone(), origin);
    grpc.ready().await.unwrap();
    let request = Request::new(StatisticsReq { options: Some(StatisticsOptions { mode }) });
    let path = format!("/{SERVICE}/Statistics").parse().unwrap();
    let codec = ProstCodec::<StatisticsReq, StatisticsResp>::default();
    let mut answers = grpc.server_streaming(request, path, codec).await?.into_inner();
    let mut all = Vec::new();
    while let Some(answer) = answers.message().await? {
        all.push(answer.details.unwrap());
    }
    Ok(all)
}

async fn of(client: &Client, address: SocketAddr, name: &str) -> Details {
    let mode = Some(StatisticsMode::Name(name.to_string()));
    statistics(client, address, mode).await.unwrap().pop().unwrap()
}

#[test]
fn built_in_projections_are_listed() {
    TestServer::new().run(async |client, server| {
        let address = server.address();
        for mode in [StatisticsMode::All(()), StatisticsMode::Continuous(())] {
            let all = statistics(&client, address, Some(mode)).await.unwrap();
            assert!(all.iter().map(|details| &*details.name).eq(ALL));
            for details in all {
                let is_kept =
                    !["$stream_by_category", "$by_correlation_id"].contains(&&*details.name);
                assert_eq!(details.status, if is_kept { "Running" } else { "Stopped" });
                assert_eq!(details.state_reason.is_empty(), is_kept);
                assert_eq!(
                    (&*details.mode, &details.effective_name),
                    ("Continuous", &details.name)
                );
                assert_eq!(details.progress, if is_kept { 100.0 } else { 0.0 });
            }
        }
        for mode in [StatisticsMode::Transient(()), StatisticsMode::OneTime(())] {
            assert_eq!(statistics(&client, address, Some(mode)).await.unwrap(), []);
        }
        let status = statistics(&client, address, None).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        client.append("cart-1", ANY, &events(0..3)).await.unwrap();
        let visible = server.store.visible_position().0;
        let details = of(&client, address, "$by_category").await;
        assert_eq!(details.position, format!("C:{visible}/P:{visible}"));
        assert_eq!(details.last_checkpoint, details.position);
    });
}

#[test]
fn view_state_survives_restart() {
    let mut server = TestServer::new();
    let store = server.store.clone();
    let stopped = server.run(async |client, server| {
        let address = server.address();
        client.append("cart-1", ANY, &events(0..3)).await.unwrap();
        call(&client, "Enable", "$by_category").await.unwrap();
        assert_eq!(of(&client, address, "$by_category").await.version, 0, "it ran already");
        call(&client, "Disable", "$by_category").await.unwrap();
        let details = of(&client, address, "$by_category").await;
        assert_eq!((&*details.status, details.version, details.epoch), ("Stopped", 1, 0));
        client.append("cart-2", ANY, &events(3..90)).await.unwrap();
        let later = of(&client, address, "$by_category").await;
        assert_eq!(later.position, details.position, "it shows no more");
        assert!(later.progress < 100.0 && later.progress > 0.0, "{later:?}");
        call(&client, "Disable", "$by_category").await.unwrap();
        assert_eq!(of(&client, address, "$by_category").await.version, 1);
        assert_eq!(of(&client, address, "$streams").await.status, "Running");
        details
    });
    run(async { server.stop().await.unwrap() });
    let config = Config { listen: "127.0.0.1:0".parse().unwrap(), ..Config::default() };
    let next = Server::start(store.clone(), config).unwrap();
    run(async {
        let (client, address) = (Client::connect(next.address()).await, next.address());
        let again = of(&client, address, "$by_category").await;
        assert_eq!((again.status, again.position), (stopped.status, stopped.position));
        call(&client, "Reset", "$by_category").await.unwrap();
        let reset = of(&client, address, "$by_category").await;
        assert_eq!((&*reset.status, &*reset.position), ("Stopped", "C:0/P:0"));
        assert_eq!((reset.version, reset.epoch, reset.progress), (2, 1, 0.0));
        call(&client, "Enable", "$by_category").await.unwrap();
        let running = of(&client, address, "$by_category").await;
        assert_eq!((&*running.status, running.version, running.progress), ("Running", 3, 100.0));
        call(&client, "RestartSubsystem", "").await.unwrap();
    });
    run(async { tokio::task::spawn_blocking(move || next.shutdown()).await.unwrap() });
}

#[test]
fn unknown_or_unsupported_projections_are_rejected() {
    TestServer::new().run(async |client, server| {
        let address = server.address();
        for method in ["Update", "Delete", "Enable", "Disable", "Reset", "State", "Result"] {
            for name in ["mine", "", "$by_category "] {
                let status = call(&client, method, name).await.unwrap_err();
                assert_eq!(status.code(), Code::NotFound, "{method}");
                assert_eq!(status.message(), format!("Projection '{name}' not found"));
            }
            let status = client
                .unary::<_, ()>(SERVICE, method, ProjectionReq { options: None })
                .await
                .unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{method}");
        }
        let mode = Some(StatisticsMode::Name("mine".to_string()));
        let status = statistics(&client, address, mode).await.unwrap_err();
        assert_eq!(status.message(), "Projection 'mine' not found");
        for name in ["$stream_by_category", "$by_correlation_id"] {
            let status = call(&client, "Enable", name).await.unwrap_err();
            assert_eq!(status.code(), Code::Unimplemented);
            assert!(status.message().contains("$by_category"), "{status:?}");
            call(&client, "Disable", name).await.unwrap();
        }
        for method in ["Update", "Delete"] {
            let status = call(&client, method, "$streams").await.unwrap_err();
            assert_eq!(status.code(), Code::FailedPrecondition);
        }
        let named = || ProjectionName { name: "mine".to_string() };
        let built_in = || ProjectionName { name: "$by_category".to_string() };
        let cases = [
            (Some(CreateMode::Continuous(named())), Code::Unimplemented),
            (Some(CreateMode::Transient(named())), Code::Unimplemented),
            (Some(CreateMode::OneTime(())), Code::Unimplemented),
            (Some(CreateMode::Continuous(built_in())), Code::AlreadyExists),
            (None, Code::InvalidArgument),
        ];
        for (mode, code) in cases {
            let query = "fromAll()".to_string();
            let options = Some(CreateOptions { mode, query, engine_version: 1 });
            let request = CreateReq { options };
            let status = client.unary::<_, ()>(SERVICE, "Create", request).await.unwrap_err();
            assert_eq!(status.code(), code);
            let is_unsupported = status.message().contains("JavaScript are not run");
            assert_eq!(is_unsupported, code == Code::Unimplemented);
        }
        let status = call(&client, "Explain", "$streams").await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        let options = Some(ProjectionName { name: "$by_category".to_string() });
        let state: StateResp =
            client.unary(SERVICE, "State", ProjectionReq { options }).await.unwrap();
        assert!(state.state.is_some_and(|value| value.kind.is_some()));
    });
}

#[test]
fn stopping_a_view_with_a_tombstoned_stream_is_an_error() {
    TestServer::new().run(async |client, server| {
        let event = NewEvent::json(server.store.new_id().unwrap(), "Other", b"{}");
        server.store.append("$umbel-views", ExpectedVersion::Any, &[event]).unwrap();
        call(&client, "Disable", "$streams").await.unwrap();
        server.store.tombstone("$umbel-views", ExpectedVersion::Any).unwrap();
        // Another stream replaces it.
        call(&client, "Enable", "$streams").await.unwrap();
        call(&client, "Disable", "$streams").await.unwrap();
        for number in 2..10 {
            let replacement = format!("$umbel-views.{number}");
            server.store.tombstone(&replacement, ExpectedVersion::Any).unwrap();
        }
        let status = call(&client, "Enable", "$streams").await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(of(&client, server.address(), "$streams").await.status, "Stopped");
    });
}
