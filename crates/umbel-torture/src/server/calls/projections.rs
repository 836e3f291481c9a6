//! Projections and operations, most of whose answers are always the same; and views, which can be
//! stopped, started and reset.

use std::collections::BTreeMap;

use futures_util::stream;
use prost_types::value::Kind;
use tonic::{Code, Status};
use umbel_proto::operations::{
    self, ScavengeResp, SetNodePriorityReq, StartScavengeOptions, StartScavengeReq,
    StopScavengeOptions, StopScavengeReq,
};
use umbel_proto::projections::{
    CreateMode, CreateOptions, CreateReq, Details, Named, NamedReq, SERVICE, StatisticsMode,
    StatisticsOptions, StatisticsReq, StatisticsResp, ValueResp,
};

use super::Run;
use super::world::{End, WRONG, one_of};

/// What such servers have built in, and which of it is kept here.
const BUILT_IN: [(&str, bool); 5] = [
    ("$streams", true),
    ("$stream_by_category", false),
    ("$by_category", true),
    ("$by_event_type", true),
    ("$by_correlation_id", false),
];

/// A view that can be stopped.
#[derive(Debug, Clone, Copy, Default)]
struct View {
    is_stopped: bool,
    version: i64,
    epoch: i64,
}

/// The views by their names.
#[derive(Debug, Default)]
pub struct Views(BTreeMap<&'static str, View>);

/// One call.
pub async fn call(run: &mut Run<'_>) -> Result<(), String> {
    run.tally.add("calls with fixed answers judged", 1);
    match run.random.below(6) {
        0 => create(run).await,
        1 => change_what_is_fixed(run).await,
        2 => value(run).await,
        3 => statistics(run).await,
        4 => switch(run).await,
        _ => operate(run).await,
    }
}

fn name(run: &mut Run<'_>) -> (&'static str, Option<bool>) {
    let (name, is_kept) = one_of(&mut run.random, &BUILT_IN);
    let other = one_of(&mut run.random, &["", "mine", "$by_categorY", "$ce-cart"]);
    if run.random.once_in(4) { (other, None) } else { (name, Some(is_kept)) }
}

fn asked(run: &mut Run<'_>, name: &str) -> (NamedReq, bool) {
    let has_options = !run.random.once_in(8);
    let options = Some(Named { name: name.to_string() }).filter(|_| has_options);
    (NamedReq { options }, has_options)
}

async fn create(run: &mut Run<'_>) -> Result<(), String> {
    let (name, is_kept) = name(run);
    let named = Named { name: name.to_string() };
    let how = run.random.below(5);
    let mode = match how {
        0 => None,
        1 => Some(CreateMode::OneTime(())),
        2 => Some(CreateMode::Transient(named)),
        _ => Some(CreateMode::Continuous(named)),
    };
    let end = match (how, is_kept) {
        (0, _) => WRONG,
        (2.., Some(_)) => End::With(Code::AlreadyExists),
        _ => End::With(Code::Unimplemented),
    };
    let options = Some(CreateOptions { mode, ..CreateOptions::default() });
    let options = options.filter(|_| how != 0 || run.random.once_in(2));
    let answer = run.admin().unary::<_, ()>(SERVICE, "Create", CreateReq { options }).await;
    end.is(&format!("making the projection {name}"), answer).map(drop)
}

async fn change_what_is_fixed(run: &mut Run<'_>) -> Result<(), String> {
    let (name, is_kept) = name(run);
    let method = one_of(&mut run.random, &["Update", "Delete"]);
    let (asked, has_options) = asked(run, name);
    let end = match (has_options, is_kept) {
        (false, _) => WRONG,
        (true, None) => End::With(Code::NotFound),
        (true, Some(_)) => End::With(Code::FailedPrecondition),
    };
    let answer = run.admin().unary::<_, ()>(SERVICE, method, asked).await;
    end.is(&format!("{method} of the projection {name}"), answer).map(drop)
}

async fn value(run: &mut Run<'_>) -> Result<(), String> {
    let (name, is_kept) = name(run);
    let method = one_of(&mut run.random, &["State", "Result"]);
    let (asked, has_options) = asked(run, name);
    let end = match (has_options, is_kept) {
        (false, _) => WRONG,
        (true, None) => End::With(Code::NotFound),
        (true, Some(_)) => End::Well,
    };
    let answer = run.admin().unary::<_, ValueResp>(SERVICE, method, asked).await;
    let told = end.is(&format!("{method} of the projection {name}"), answer)?;
    let kind = told.as_ref().and_then(|told| told.value.as_ref()?.kind.as_ref());
    match (told.is_some(), kind) {
        (false, _) => Ok(()),
        (true, Some(Kind::StructValue(fields))) if fields.fields.is_empty() => Ok(()),
        (true, kind) => Err(format!("{method} of {name} is {kind:?}")),
    }
}

/// Stops, starts or resets a view.
async fn switch(run: &mut Run<'_>) -> Result<(), String> {
    let (name, is_kept) = name(run);
    let method = one_of(&mut run.random, &["Enable", "Disable", "Reset"]);
    let (asked, has_options) = asked(run, name);
    let end = match (has_options, is_kept, method) {
        (false, ..) => WRONG,
        (true, None, _) => End::With(Code::NotFound),
        (true, Some(false), "Enable") => End::With(Code::Unimplemented),
        (true, Some(_), _) => End::Well,
    };
    let answer = run.admin().unary::<_, ()>(SERVICE, method, asked).await;
    end.is(&format!("{method} of the projection {name}"), answer)?;
    if end == End::Well && is_kept == Some(true) {
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

async fn statistics(run: &mut Run<'_>) -> Result<(), String> {
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
        (0, None) => (End::With(Code::NotFound), Vec::new()),
        (0, Some(is_kept)) => (End::Well, vec![(name, is_kept)]),
        (1 | 2, _) => (End::Well, BUILT_IN.to_vec()),
        (3 | 4, _) => (End::Well, Vec::new()),
        _ => (WRONG, Vec::new()),
    };
    let what = format!("statistics, {mode:?},");
    let asked = StatisticsReq { options: Some(StatisticsOptions { mode }) };
    let told = end.is(&what, details(run, asked).await)?.unwrap_or_default();
    let names: Vec<&str> = told.iter().map(|details| &*details.name).collect();
    let wanted_names: Vec<&str> = wanted.iter().map(|(name, _)| *name).collect();
    if names != wanted_names {
        return Err(format!("{what} are of {names:?}"));
    }
    for (details, (name, is_kept)) in told.iter().zip(wanted) {
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

async fn details(run: &Run<'_>, asked: StatisticsReq) -> Result<Vec<Details>, Status> {
    let client = run.admin();
    let asked = stream::iter([asked]);
    let mut answers =
        client.streaming::<_, StatisticsResp, _>(SERVICE, "Statistics", asked).await?;
    let mut told = Vec::new();
    while let Some(answer) = answers.message().await? {
        told.extend(answer.details);
    }
    Ok(told)
}

async fn operate(run: &mut Run<'_>) -> Result<(), String> {
    const SERVICE: &str = operations::SERVICE;
    let client = run.admin();
    match run.random.below(6) {
        0 => {
            let (threads, chunk) = one_of(&mut run.random, &[(0, 0), (-1, 0), (1, -1), (0, -7)]);
            let options = StartScavengeOptions { thread_count: threads, start_from_chunk: chunk };
            let options = Some(options).filter(|_| !run.random.once_in(4));
            let asked = StartScavengeReq { options };
            let answer = client.unary::<_, ScavengeResp>(SERVICE, "StartScavenge", asked).await;
            WRONG.is("starting a scavenge with wrong numbers", answer).map(drop)
        }
        1 => {
            let options = StopScavengeOptions { scavenge_id: "none".to_string() };
            let options = Some(options).filter(|_| !run.random.once_in(4));
            let end = match &options {
                Some(_) => End::Named(Code::NotFound, "scavenge-not-found"),
                None => WRONG,
            };
            let asked = StopScavengeReq { options };
            let answer = client.unary::<_, ScavengeResp>(SERVICE, "StopScavenge", asked).await;
            end.is("stopping a scavenge that is none", answer).map(drop)
        }
        2 => {
            let answer = client.unary::<_, ()>(SERVICE, "MergeIndexes", ()).await;
            End::Well.is("merging indexes", answer).map(drop)
        }
        3 => {
            let asked = SetNodePriorityReq { priority: run.random.next() as i32 };
            let answer = client.unary::<_, ()>(SERVICE, "SetNodePriority", asked).await;
            End::Well.is("setting a priority", answer).map(drop)
        }
        4 => {
            let answer = client.unary::<_, ()>(SERVICE, "ResignNode", ()).await;
            End::With(Code::Unimplemented).is("resigning", answer).map(drop)
        }
        _ => {
            let answer = client.unary::<_, ()>(SERVICE, "Defragment", ()).await;
            End::With(Code::Unimplemented).is("a call that is not served", answer).map(drop)
        }
    }
}
