//! [`ReadingCall`]: each call that reads, over a class of hidden events.

use std::net::SocketAddr;
use std::time::Duration;

use tonic::Status;
use umbel_proto::persistent::{
    CreateOptions, CreateReq, GroupOrigin, ReadStreamOption, SERVICE, Settings,
};
use umbel_proto::read_options::{
    at_most, at_position, backwards, filtered, of_all, of_stream, prefixes, resolving_links,
    subscription,
};
use umbel_proto::streams::read_req::{AllOption, Filter, Options, RevisionOption, StreamOptions};
use umbel_proto::streams::read_resp::Content;
use umbel_testing::server_connection::Connection;

use crate::attack;
use crate::client::{self, MALLORY};
use crate::hidden_events::HiddenClass;

/// Events of one read.
const COUNT: u64 = 10;
/// Longest time of a subscription or a consumer.
const LIVE_TIME: Duration = Duration::from_millis(500);

/// A call that reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadingCall {
    Stream,
    StreamBackwards,
    Category,
    CategoryBackwards,
    Type,
    All,
    AllBackwards,
    AllFiltered,
    CategoryIndex,
    Streams,
    Subscription,
    CategorySubscription,
    FilteredSubscription,
    Consumer,
}

impl ReadingCall {
    /// All calls.
    pub const ALL: [ReadingCall; 14] = [
        ReadingCall::Stream,
        ReadingCall::StreamBackwards,
        ReadingCall::Category,
        ReadingCall::CategoryBackwards,
        ReadingCall::Type,
        ReadingCall::All,
        ReadingCall::AllBackwards,
        ReadingCall::AllFiltered,
        ReadingCall::CategoryIndex,
        ReadingCall::Streams,
        ReadingCall::Subscription,
        ReadingCall::CategorySubscription,
        ReadingCall::FilteredSubscription,
        ReadingCall::Consumer,
    ];

    /// Name of the call.
    pub fn name(self) -> &'static str {
        match self {
            ReadingCall::Stream => "stream",
            ReadingCall::StreamBackwards => "stream-backwards",
            ReadingCall::Category => "category",
            ReadingCall::CategoryBackwards => "category-backwards",
            ReadingCall::Type => "type",
            ReadingCall::All => "all",
            ReadingCall::AllBackwards => "all-backwards",
            ReadingCall::AllFiltered => "all-filtered",
            ReadingCall::CategoryIndex => "category-index",
            ReadingCall::Streams => "streams",
            ReadingCall::Subscription => "subscription",
            ReadingCall::CategorySubscription => "category-subscription",
            ReadingCall::FilteredSubscription => "filtered-subscription",
            ReadingCall::Consumer => "consumer",
        }
    }

    /// The work of background clients.
    pub fn work(self, class: &HiddenClass) -> String {
        format!("read:{}:{}:{}", self.name(), class.name, class.position)
    }

    /// Reads the work of background clients.
    pub fn parse(work: &str) -> Option<(ReadingCall, Target)> {
        let mut words = work.strip_prefix("read:")?.split(':');
        let name = words.next()?;
        let call = ReadingCall::ALL.into_iter().find(|call| call.name() == name)?;
        let target =
            Target { class: words.next()?.to_string(), position: words.next()?.parse().ok()? };
        Some((call, target))
    }

    /// Calls until the process ends.
    pub async fn run(
        self,
        address: SocketAddr,
        number: usize,
        target: &Target,
        counted: &(impl Fn(u64) + Sync),
    ) -> Result<(), String> {
        // Only administrators may read each event of all; the others must not see the events.
        let connection = client::connect(address, MALLORY).await?;
        let admin = client::connect(address, "admin").await?;
        let mut is_reported = false;
        loop {
            let ended = match self {
                ReadingCall::Consumer => {
                    let group = format!("group-{number}");
                    let stream =
                        ReadStreamOption::StreamIdentifier(target.category().as_str().into());
                    attack::join_group(&connection, stream, &group, LIVE_TIME, &|_| ()).await
                }
                _ if target.class == "unreadable" || self == ReadingCall::Streams => {
                    self.read(&connection, target).await
                }
                _ => self.read(&admin, target).await,
            };
            counted(1);
            if let Err(status) = ended {
                if !std::mem::replace(&mut is_reported, true) && number == 0 {
                    eprintln!("{} of {}: {}", self.name(), target.class, status.message());
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    fn options(self, target: &Target) -> Options {
        let (start, end) = (RevisionOption::Start(()), RevisionOption::End(()));
        let stream = format!("{}-1", target.class);
        let category = target.category();
        let from = || of_all(at_position(target.position));
        let none = Filter::EventType(prefixes(&["no-event"]));
        let read = match self {
            ReadingCall::Stream => of_stream(&stream, start),
            ReadingCall::StreamBackwards => backwards(of_stream(&stream, end)),
            ReadingCall::Category => resolving_links(of_stream(&category, start)),
            ReadingCall::CategoryBackwards => backwards(resolving_links(of_stream(&category, end))),
            ReadingCall::Type => {
                resolving_links(of_stream(&format!("$et-{}", target.class), start))
            }
            ReadingCall::All => from(),
            ReadingCall::AllBackwards => backwards(of_all(AllOption::End(()))),
            ReadingCall::AllFiltered => filtered(none, 32, from()),
            ReadingCall::CategoryIndex => {
                let index = format!("$idx-ce-{}", target.class);
                let filter = Filter::StreamIdentifier(prefixes(&[index]));
                filtered(filter, 32, of_all(AllOption::Start(())))
            }
            ReadingCall::Streams => resolving_links(of_stream("$streams", start)),
            ReadingCall::Subscription => return subscription(of_stream(&stream, start)),
            ReadingCall::CategorySubscription | ReadingCall::Consumer => {
                return subscription(resolving_links(of_stream(&category, start)));
            }
            ReadingCall::FilteredSubscription => return subscription(filtered(none, 32, from())),
        };
        at_most(COUNT, read)
    }

    /// Reads once; a subscription until it has caught up.
    async fn read(self, connection: &Connection, target: &Target) -> Result<(), Status> {
        let until = tokio::time::Instant::now() + LIVE_TIME;
        let mut answers = connection.subscribe(self.options(target)).await?;
        while let Ok(answer) = tokio::time::timeout_at(until, answers.message()).await {
            match answer?.and_then(|answer| answer.content) {
                None | Some(Content::CaughtUp(_)) => break,
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// The events that a client reads.
#[derive(Debug)]
pub struct Target {
    class: String,
    position: u64,
}

impl Target {
    fn category(&self) -> String {
        format!("$ce-{}", self.class)
    }
}

/// Creates a group on the category of a class for each client.
pub async fn create_groups(
    admin: &Connection,
    class: &str,
    settings: Settings,
) -> Result<(), String> {
    for number in 0..crate::READERS {
        let options = CreateOptions {
            stream_identifier: None,
            group_name: format!("group-{number}"),
            settings: Some(Settings {
                consumer_strategy: "RoundRobin".to_string(),
                ..settings.clone()
            }),
            stream_option: Some(GroupOrigin::Stream(StreamOptions {
                stream_identifier: Some(format!("$ce-{class}").as_str().into()),
                revision_option: Some(RevisionOption::Start(())),
            })),
        };
        let request = CreateReq { options: Some(options) };
        let created = admin.unary::<_, ()>(SERVICE, "Create", request).await;
        created.map_err(|status| format!("creating a group: {status}"))?;
    }
    Ok(())
}
