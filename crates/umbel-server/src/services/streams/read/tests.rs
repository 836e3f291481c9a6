//! Tests of the work of one poll of a read or subscription, whatever events are hidden from it.

use std::future::poll_fn;

use futures_util::StreamExt;
use umbel_events::{EventId, ExpectedVersion, ImportedEvent, NewEvent, ScavengeOptions, Store};
use umbel_proto::streams::read_req::{
    AllOption, AllOptions, CountOption, Expression, Filter, FilterOption, FilterOptions, Options,
    RevisionOption, StreamOption, StreamOptions, UuidOption,
};

use super::*;
use crate::access_control::append_invalidated_cache::CacheEntry;
use crate::access_control::users::User;
use crate::test_support::test_service::{TestService, run_paused};

/// Number of hidden events.
const HIDDEN: usize = 2000;
const VIEWS: [&str; 3] = ["$ce-hidden", "$et-Hidden", "$streams"];
const READ_FORWARDS: i32 = 0;
const READ_BACKWARDS: i32 = 1;

fn append(store: &Store, stream: &str, kind: &str, count: usize) {
    let ids: Vec<EventId> = (0..count).map(|_| store.new_id().unwrap()).collect();
    let events: Vec<_> = ids.iter().map(|id| NewEvent::json(*id, kind, b"{}")).collect();
    store.append(stream, ExpectedVersion::Any, &events).unwrap();
}

/// Imports events that were created long ago.
fn import_old(store: &Store, stream: &str) {
    let mut import = store.import().unwrap();
    for _ in 0..HIDDEN {
        let event = NewEvent::json(store.new_id().unwrap(), "Hidden", b"{}");
        import.add(&ImportedEvent { stream, revision: None, created: Some(1), event }).unwrap();
    }
    import.finish().unwrap();
}

fn set_metadata(store: &Store, stream: &str, metadata: &str) {
    let event = NewEvent::json(store.new_id().unwrap(), "$metadata", metadata.as_bytes());
    store.append(&format!("$${stream}"), ExpectedVersion::Any, &[event]).unwrap();
}

/// Each class of hidden events, and how it is made.
type Class = (&'static str, fn(&Store));
const CLASSES: [Class; 7] = [
    ("expired", |store| {
        import_old(store, "hidden-1");
        for stream in ["hidden-1"].into_iter().chain(VIEWS) {
            set_metadata(store, stream, r#"{"$maxAge":60}"#);
        }
    }),
    ("truncated", |store| {
        append(store, "hidden-1", "Hidden", HIDDEN);
        set_metadata(store, "hidden-1", &format!(r#"{{"$tb":{HIDDEN}}}"#));
    }),
    ("counted", |store| {
        append(store, "hidden-1", "Hidden", HIDDEN);
        set_metadata(store, "hidden-1", r#"{"$maxCount":1}"#);
    }),
    ("deleted streams", |store| {
        for number in 0..HIDDEN / 10 {
            let stream = format!("hidden-{number}");
            append(store, &stream, "Hidden", 10);
            store.delete(&stream, ExpectedVersion::Any).unwrap();
        }
    }),
    ("scavenged", |store| {
        append(store, "hidden-1", "Hidden", HIDDEN);
        store.delete("hidden-1", ExpectedVersion::Any).unwrap();
        store.scavenge(&ScavengeOptions::default()).unwrap();
    }),
    ("filtered out", |store| append(store, "other", "Other", HIDDEN)),
    ("unreadable", |store| {
        append(store, "hidden-1", "Hidden", HIDDEN);
        set_metadata(store, "hidden-1", r#"{"$acl":{"$r":"$admins"}}"#);
    }),
];

/// The options of every kind of read, without count and direction.
fn sources() -> Vec<(Option<StreamOption>, Option<FilterOption>)> {
    let no_filter = || Some(FilterOption::NoFilter(()));
    let all = || Some(StreamOption::All(AllOptions { all_option: Some(AllOption::Start(())) }));
    let streams = VIEWS.into_iter().chain(["hidden-1", "shown"]);
    let mut sources: Vec<_> = streams
        .map(|name| {
            let stream = StreamOptions {
                stream_identifier: Some(proto_convert::stream_identifier(name)),
                revision_option: Some(RevisionOption::Start(())),
            };
            (Some(StreamOption::Stream(stream)), no_filter())
        })
        .collect();
    sources.push((all(), no_filter()));
    for (regex, prefix) in [("own$", vec![]), ("", vec!["Shown".to_string()])] {
        let filter = Some(Filter::EventType(Expression { regex: regex.to_string(), prefix }));
        let options = FilterOptions { filter, window: None, checkpoint_interval_multiplier: 1 };
        sources.push((all(), Some(FilterOption::Filter(options))));
    }
    sources
}

/// From the other end.
fn reversed(source: Option<StreamOption>) -> Option<StreamOption> {
    match source? {
        StreamOption::Stream(stream) => Some(StreamOption::Stream(StreamOptions {
            revision_option: Some(RevisionOption::End(())),
            ..stream
        })),
        StreamOption::All(_) => {
            Some(StreamOption::All(AllOptions { all_option: Some(AllOption::End(())) }))
        }
    }
}

/// Takes all responses of a read or subscription, up to its end or until it has caught up. Checks
/// that each poll reads at most one page on the async worker.
async fn check_polls(fixture: &TestService, caller: &Caller, options: Options, class: &str) {
    let what = format!("{class}: {options:?}");
    let mut request = Request::new(ReadReq { options: Some(options) });
    request.extensions_mut().insert(caller.clone());
    let answers = read(Arc::clone(&fixture.service), Deadline::NEVER, request).await;
    let mut answers = match answers {
        Ok(answers) => answers.into_inner(),
        Err(status) => {
            assert_eq!((class, status.code()), ("unreadable", tonic::Code::PermissionDenied));
            return;
        }
    };
    let inline_reads = || fixture.service.store.inline_reads();
    let begun = inline_reads();
    loop {
        let answer = poll_fn(|context| {
            let before = inline_reads();
            let polled = answers.poll_next_unpin(context);
            assert!(inline_reads() - before <= 1, "{what}: several pages in one poll");
            polled
        });
        match answer.await {
            None => break,
            Some(Ok(ReadResp { content: Some(Content::CaughtUp(_)) })) => break,
            Some(answer) => drop(answer.unwrap()),
        }
    }
    // The first page, and pages with visible events.
    assert!(inline_reads() - begun <= 3, "{what}: hidden events were skipped inline");
}

/// Story: a read of ten expired events skipped 750,000 of them on the async worker without a yield.
/// Three such clients kept all others from their responses.
#[test]
fn poll_of_every_reading_call_is_bounded_whatever_events_are_hidden() {
    let user = Caller::User(Arc::new(CacheEntry::fresh(Some(User::with_login("ada")))));
    for (class, hide) in CLASSES {
        let fixture = TestService::new();
        hide(&fixture.store);
        append(&fixture.store, "shown", "Shown", 3);
        append(&fixture.store, "hidden-1000000", "Shown", 1);
        let caller = if class == "unreadable" { user.clone() } else { Caller::Trusted };
        run_paused(async {
            for (stream_option, filter_option) in sources() {
                let counts = [
                    (READ_FORWARDS, CountOption::Count(10)),
                    (READ_BACKWARDS, CountOption::Count(10)),
                    (READ_FORWARDS, CountOption::Count(u64::MAX)),
                    (READ_FORWARDS, CountOption::Subscription(())),
                ];
                for (read_direction, count) in counts {
                    let stream_option = match read_direction {
                        READ_BACKWARDS => reversed(stream_option.clone()),
                        _ => stream_option.clone(),
                    };
                    for resolve_links in [false, true] {
                        let options = Options {
                            stream_option: stream_option.clone(),
                            read_direction,
                            resolve_links,
                            count_option: Some(count),
                            filter_option: filter_option.clone(),
                            uuid_option: Some(UuidOption { content: Some(UuidForm::String(())) }),
                            control_option: None,
                        };
                        check_polls(&fixture, &caller, options, class).await;
                    }
                }
            }
        });
    }
}
