//! Projections and operations, mostly with fixed answers; and views, which can be stopped, started
//! and reset.

use std::collections::BTreeMap;

use futures_util::stream;
use prost_types::value::Kind;
use tonic::{Code, Status};
use umbel_proto::operations::{
    self, ScavengeResp, SetNodePriorityReq, StartScavengeOptions, StartScavengeReq,
    StopScavengeOptions, StopScavengeReq,
};
use umbel_proto::projections::{
    CreateMode, CreateOptions, CreateReq, Details, ProjectionName, ProjectionReq, SERVICE,
    StateResp, StatisticsMode, StatisticsOptions, StatisticsReq, StatisticsResp,
};

use super::CallRun;
use crate::server::calls::call_server::{ExpectedEnd, WRONG, one_of};

/// Built-in projections, and whether Umbel has them.
const BUILT_IN: [(&str, bool); 5] = [
    ("$streams", true),
    ("$stream_by_category", false),
    ("$by_category", true),
    ("$by_event_type", true),
    ("$by_correlation_id", false),
];

/// State of a view.
#[derive(Debug, Clone, Copy, Default)]
struct ViewState {
    is_stopped: bool,
    version: i64,
    epoch: i64,
}

/// The views by their names.
#[derive(Debug, Default)]
pub struct ViewStates(BTreeMap<&'static str, ViewState>);

/// Makes one call.
pub async fn call(run: &mut CallRun<'_>) -> Result<(), String> {
    run.tally.add("calls with fixed answers judged", 1);
    match run.random.below(6) {
        0 => create(run).await,
        1 => change_built_in(run).await,
        2 => value(run).await,
        3 => statistics(run).await,
        4 => switch(run).await,
        _ => operate(run).await,
    }
}

fn name(run: &mut CallRun<'_>) -> (&'static str, Option<bool>) {
    let (name, is_kept) = one_of(&mut run.random, &BUILT_IN);
    let other = one_of(&mut run.random, &["", "mine", "$by_categorY", "$ce-cart"]);
    if run.random.once_in(4) { (other, None) } else { (name, Some(is_kept)) }
}

fn random_request(run: &mut CallRun<'_>, name: &str) -> (ProjectionReq, bool) {
    let has_options = !run.random.once_in(8);
    let options = Some(ProjectionName { name: name.to_string() }).filter(|_| has_options);
    (ProjectionReq { options }, has_options)
}

async fn create(run: &mut CallRun<'_>) -> Result<(), String> {
    let (name, is_kept) = name(run);
    let named = ProjectionName { name: name.to_string() };
    let how = run.random.below(5);
    let mode = match how {
        0 => None,
        1 => Some(CreateMode::OneTime(())),
        2 => Some(CreateMode::Transient(named)),
        _ => Some(CreateMode::Continuous(named)),
    };
    let end = match (how, is_kept) {
        (0, _) => WRONG,
        (2.., Some(_)) => ExpectedEnd::WithCode(Code::AlreadyExists),
        _ => ExpectedEnd::WithCode(Code::Unimplemented),
    };
    let options = Some(CreateOptions { mode, ..CreateOptions::default() });
    let options = options.filter(|_| how != 0 || run.random.once_in(2));
    let answer = run.admin().unary::<_, ()>(SERVICE, "Create", CreateReq { options }).await;
    end.check(&format!("making the projection {name}"), answer).map(drop)
}

async fn change_built_in(run: &mut CallRun<'_>) -> Result<(), String> {
    let (name, is_kept) = name(run);
    let method = one_of(&mut run.random, &["Update", "Delete"]);
    let (request, has_options) = random_request(run, name);
    let end = match (has_options, is_kept) {
        (false, _) => WRONG,
        (true, None) => ExpectedEnd::WithCode(Code::NotFound),
        (true, Some(_)) => ExpectedEnd::WithCode(Code::FailedPrecondition),
    };
    let answer = run.admin().unary::<_, ()>(SERVICE, method, request).await;
    end.check(&format!("{method} of the projection {name}"), answer).map(drop)
}

async fn value(run: &mut CallRun<'_>) -> Result<(), String> {
    let (name, is_kept) = name(run);
    let method = one_of(&mut run.random, &["State", "Result"]);
    let (request, has_options) = random_request(run, name);
    let end = match (has_options, is_kept) {
        (false, _) => WRONG,
        (true, None) => ExpectedEnd::WithCode(Code::NotFound),
        (true, Some(_)) => ExpectedEnd::Success,
    };
    let answer = run.admin().unary::<_, StateResp>(SERVICE, method, request).await;
    let response = end.check(&format!("{method} of the projection {name}"), answer)?;
    let kind = response.as_ref().and_then(|response| response.state.as_ref()?.kind.as_ref());
    match (response.is_some(), kind) {
        (false, _) => Ok(()),
        (true, Some(Kind::StructValue(fields))) if fields.fields.is_empty() => Ok(()),
        (true, kind) => Err(format!("{method} of {name} is {kind:?}")),
    }
}

/// Stops, starts or resets a view.
async fn switch(run: &mut CallRun<'_>) -> Result<(), String> {
    let (name, is_kept) = name(run);
    let method = one_of(&mut run.random, &["Enable", "Disable", "Reset"]);
    let (request, has_options) = random_request(run, name);
    let end = match (has_options, is_kept, method) {
        (false, ..) => WRONG,
        (true, None, _) => ExpectedEnd::WithCode(Code::NotFound),
        (true, Some(false), "Enable") => ExpectedEnd::WithCode(Code::Unimplemented),
        (true, Some(_), _) => ExpectedEnd::Success,
    };
    let answer = run.admin().unary::<_, ()>(SERVICE, method, request).await;
    end.check(&format!("{method} of the projection {name}"), answer)?;
    if end == ExpectedEnd::Success && is_kept == Some(true) {
        let view = run.views.0.entry(name).or_default();
        let changes = match method {
            "Enable" => std::mem::replace(&mut view.is_stopped, false),
            "Disable" => !std::mem::replace(&mut view.is_stopped, true),
            _ => {
                view.epoch += 1;
                true
            }
        };
        view.version += i64::from(changes);
    }
    Ok(())
}

async fn statistics(run: &mut CallRun<'_>) -> Result<(), String> {
    let (name, is_kept) = name(run);
    let how = run.random.below(6);
    let mode = match how {
        0 => Some(StatisticsMode::Name(name.to_string())),
        1 => Some(StatisticsMode::All(())),
        2 => Some(StatisticsMode::Continuous(())),
        3 => Some(StatisticsMode::Transient(())),
        4 => Some(StatisticsMode::OneTime(())),
        _ => None,
    };
    let (end, wanted) = match (how, is_kept) {
        (0, None) => (ExpectedEnd::WithCode(Code::NotFound), Vec::new()),
        (0, Some(is_kept)) => (ExpectedEnd::Success, vec![(name, is_kept)]),
        (1 | 2, _) => (ExpectedEnd::Success, BUILT_IN.to_vec()),
        (3 | 4, _) => (ExpectedEnd::Success, Vec::new()),
        _ => (WRONG, Vec::new()),
    };
    let what = format!("statistics, {mode:?},");
    let request = StatisticsReq { options: Some(StatisticsOptions { mode }) };
    let response = end.check(&what, details(run, request).await)?.unwrap_or_default();
    let names: Vec<&str> = response.iter().map(|details| &*details.name).collect();
    let wanted_names: Vec<&str> = wanted.iter().map(|(name, _)| *name).collect();
    if names != wanted_names {
        return Err(format!("{what} are of {names:?}"));
    }
    for (details, (name, is_kept)) in response.iter().zip(wanted) {
        let view = run.views.0.get(name).copied().unwrap_or_default();
        let status = if is_kept && !view.is_stopped { "Running" } else { "Stopped" };
        let is_right = details.status == status
            && details.mode == "Continuous"
            && details.effective_name == name
            && details.state_reason.is_empty() == is_kept
            && (details.version, details.epoch) == (view.version, view.epoch);
        if !is_right {
            return Err(format!("{what} say {details:?} of {view:?}, which is {status}"));
        }
    }
    Ok(())
}

async fn details(run: &CallRun<'_>, request: StatisticsReq) -> Result<Vec<Details>, Status> {
    let client = run.admin();
    let request = stream::iter([request]);
    let mut answers =
        client.streaming::<_, StatisticsResp, _>(SERVICE, "Statistics", request).await?;
    let mut response = Vec::new();
    while let Some(answer) = answers.message().await? {
        response.extend(answer.details);
    }
    Ok(response)
}

async fn operate(run: &mut CallRun<'_>) -> Result<(), String> {
    const SERVICE: &str = operations::SERVICE;
    let client = run.admin();
    match run.random.below(6) {
        0 => {
            let (threads, chunk) = one_of(&mut run.random, &[(0, 0), (-1, 0), (1, -1), (0, -7)]);
            let remove_all = run.random.once_in(2);
            let options =
                StartScavengeOptions { thread_count: threads, start_from_chunk: chunk, remove_all };
            let options = Some(options).filter(|_| !run.random.once_in(4));
            let request = StartScavengeReq { options };
            let answer = client.unary::<_, ScavengeResp>(SERVICE, "StartScavenge", request).await;
            WRONG.check("starting a scavenge with wrong numbers", answer).map(drop)
        }
        1 => {
            let options = StopScavengeOptions { scavenge_id: "none".to_string() };
            let options = Some(options).filter(|_| !run.random.once_in(4));
            let end = match &options {
                Some(_) => ExpectedEnd::Named(Code::NotFound, "scavenge-not-found"),
                None => WRONG,
            };
            let request = StopScavengeReq { options };
            let answer = client.unary::<_, ScavengeResp>(SERVICE, "StopScavenge", request).await;
            end.check("stopping a scavenge that is none", answer).map(drop)
        }
        2 => {
            let answer = client.unary::<_, ()>(SERVICE, "MergeIndexes", ()).await;
            ExpectedEnd::Success.check("merging indexes", answer).map(drop)
        }
        3 => {
            let request = SetNodePriorityReq { priority: run.random.next() as i32 };
            let answer = client.unary::<_, ()>(SERVICE, "SetNodePriority", request).await;
            ExpectedEnd::Success.check("setting a priority", answer).map(drop)
        }
        4 => {
            let answer = client.unary::<_, ()>(SERVICE, "ResignNode", ()).await;
            ExpectedEnd::Success.check("resigning", answer).map(drop)
        }
        _ => {
            let answer = client.unary::<_, ()>(SERVICE, "Defragment", ()).await;
            ExpectedEnd::WithCode(Code::Unimplemented)
                .check("a call that is not served", answer)
                .map(drop)
        }
    }
}
