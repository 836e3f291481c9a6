//! The calls about projections: what is built in is stopped, started, reset and described.

use std::net::SocketAddr;

use hyper::http::uri::Uri;
use tonic::client::Grpc;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use umbel_events::{Expected, NewEvent};
use umbel_proto::projections::{
    CreateMode, CreateOptions, CreateReq, Details, Named, NamedReq, StatisticsMode,
    StatisticsOptions, StatisticsReq, StatisticsResp, ValueResp,
};
use umbel_server::{Config, Server};

use super::client::{ANY, Client, events};
use super::ground::{Ground, run};

/// The service, said anew so that another name is noticed.
const SERVICE: &str = "event_store.client.projections.Projections";
const ALL: [&str; 5] =
    ["$streams", "$stream_by_category", "$by_category", "$by_event_type", "$by_correlation_id"];

pub async fn call(client: &Client, method: &str, name: &str) -> Result<(), Status> {
    let options = Some(Named { name: name.to_string() });
    client.unary(SERVICE, method, NamedReq { options }).await
}

async fn statistics(
    client: &Client,
    address: SocketAddr,
    mode: Option<StatisticsMode>,
) -> Result<Vec<Details>, Status> {
    let origin: Uri = format!("http://{address}").parse().unwrap();
    let mut grpc = Grpc::with_origin(client.clone(), origin);
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
fn what_is_built_in_is_listed_with_what_it_does() {
    Ground::new().run(async |client, ground| {
        let address = ground.address();
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
        let visible = ground.store.visible().0;
        let details = of(&client, address, "$by_category").await;
        assert_eq!(details.position, format!("C:{visible}/P:{visible}"));
        assert_eq!(details.last_checkpoint, details.position);
    });
}

#[test]
fn a_view_is_stopped_started_and_reset_also_for_the_next_server() {
    let mut ground = Ground::new();
    let store = ground.store.clone();
    let stopped = ground.run(async |client, ground| {
        let address = ground.address();
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
    run(async { ground.stop().await.unwrap() });
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
fn what_is_not_there_or_not_served_is_told_so() {
    Ground::new().run(async |client, ground| {
        let address = ground.address();
        for method in ["Update", "Delete", "Enable", "Disable", "Reset", "State", "Result"] {
            for name in ["mine", "", "$by_category "] {
                let status = call(&client, method, name).await.unwrap_err();
                assert_eq!(status.code(), Code::NotFound, "{method}");
                assert_eq!(status.message(), format!("Projection '{name}' not found"));
            }
            let status = client
                .unary::<_, ()>(SERVICE, method, NamedReq { options: None })
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
        let named = || Named { name: "mine".to_string() };
        let built_in = || Named { name: "$by_category".to_string() };
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
            let asked = CreateReq { options };
            let status = client.unary::<_, ()>(SERVICE, "Create", asked).await.unwrap_err();
            assert_eq!(status.code(), code);
            let is_told = status.message().contains("JavaScript are not run");
            assert_eq!(is_told, code == Code::Unimplemented);
        }
        let status = call(&client, "Explain", "$streams").await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        let options = Some(Named { name: "$by_category".to_string() });
        let state: ValueResp = client.unary(SERVICE, "State", NamedReq { options }).await.unwrap();
        assert!(state.value.is_some_and(|value| value.kind.is_some()));
    });
}

#[test]
fn whoever_ended_the_stream_of_views_is_told_when_one_is_stopped() {
    Ground::new().run(async |client, ground| {
        let event = NewEvent::json(ground.store.new_id().unwrap(), "Other", b"{}");
        ground.store.append("$umbel-views", Expected::Any, &[event]).unwrap();
        call(&client, "Disable", "$streams").await.unwrap();
        ground.store.tombstone("$umbel-views", Expected::Any).unwrap();
        let status = call(&client, "Enable", "$streams").await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(of(&client, ground.address(), "$streams").await.status, "Stopped");
    });
}
