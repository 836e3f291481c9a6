//! Pages of events as JSON, in the form of KurrentDB's feeds.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;
use umbel_events::{Direction, RecordedEvent, ResolvedEvent, StreamState};

use crate::http::api::api_request::encode_segment;
use crate::limits::API_DATA_BYTES_MAX;
use crate::protocol::proto_convert;
use crate::services::read_permission::ALL_STREAM;

/// Form of the entries of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Embed {
    /// Titles and links.
    None,
    /// Also the properties of events.
    Rich,
    /// Also data and metadata, as text.
    Body,
    /// Also data and metadata, as JSON where they are JSON.
    Content,
}

/// A page of events.
#[derive(Debug)]
pub struct FeedPage {
    /// Stream, view or `$all`.
    pub stream: String,
    /// Direction of the read.
    pub direction: Direction,
    /// The first requested revision or position; `u64::MAX` is the head.
    pub from: u64,
    /// Requested number of events.
    pub count: u64,
    /// Events in the order of the read.
    pub events: Vec<ResolvedEvent>,
    /// Whether the read has ended.
    pub is_last: bool,
    /// State of the stream; `None` for `$all`.
    pub state: Option<StreamState>,
}

/// A page as it is sent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Feed<'a> {
    title: String,
    id: &'a str,
    updated: String,
    stream_id: &'a str,
    author: Author,
    head_of_stream: bool,
    self_url: &'a str,
    links: Vec<Link>,
    entries: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Author {
    name: &'static str,
}

#[derive(Serialize)]
struct Link {
    uri: String,
    relation: &'static str,
}

/// An event as it is sent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    title: String,
    id: String,
    updated: String,
    author: Author,
    summary: &'a str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    properties: Option<Properties<'a>>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    body: Option<Body<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Content<'a>>,
    links: [Link; 2],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Properties<'a> {
    event_id: String,
    event_type: &'a str,
    event_number: u64,
    stream_id: &'a str,
    is_json: bool,
    is_meta_data: bool,
    is_link_meta_data: bool,
    position_event_number: u64,
    position_stream_id: &'a str,
    /// Position in the log, as text.
    position: String,
    /// Bytes of the data.
    data_bytes: usize,
}

/// Data and metadata as text. Bytes that are not UTF-8 are in base64; long ones are left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta_data: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta_data_base64: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Content<'a> {
    event_stream_id: &'a str,
    event_number: u64,
    event_type: &'a str,
    event_id: String,
    data: Option<Payload<'a>>,
    metadata: Option<Payload<'a>>,
}

/// Data in an entry's content. JSON is copied byte for byte, so every number stays exact.
#[derive(Serialize)]
#[serde(untagged)]
enum Payload<'a> {
    Json(&'a RawValue),
    Text(&'a str),
    Base64(String),
}

impl<'a> Payload<'a> {
    /// `None` for empty bytes, and for bytes that are too long for a page.
    fn new(bytes: &'a [u8], is_json: bool) -> Option<Payload<'a>> {
        if bytes.is_empty() || bytes.len() > API_DATA_BYTES_MAX {
            return None;
        }
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Some(Payload::Base64(STANDARD.encode(bytes)));
        };
        let json = is_json.then(|| serde_json::from_str::<&RawValue>(text).ok()).flatten();
        Some(json.map_or(Payload::Text(text), Payload::Json))
    }
}

impl<'a> Body<'a> {
    fn new(event: &'a RecordedEvent) -> Body<'a> {
        let shown = |bytes: &'a [u8]| match std::str::from_utf8(bytes) {
            _ if bytes.len() > API_DATA_BYTES_MAX => (None, None),
            Ok(text) => (Some(text), None),
            Err(_) => (None, Some(STANDARD.encode(bytes))),
        };
        let (data, data_base64) = shown(&event.data);
        let (meta_data, meta_data_base64) = shown(&event.metadata);
        Body { data, data_base64, meta_data, meta_data_base64 }
    }
}

/// The event that an entry shows, and the event at the entry's place, which may be a link.
fn shown_and_original(resolved: &ResolvedEvent) -> Option<(&RecordedEvent, &RecordedEvent)> {
    let original = resolved.link.as_ref().or(resolved.event.as_ref())?;
    Some((resolved.event.as_ref().unwrap_or(original), original))
}

fn stream_path(stream: &str) -> String {
    format!("/streams/{}", encode_segment(stream))
}

fn entry(resolved: &ResolvedEvent, embed: Embed) -> Option<Entry<'_>> {
    let (event, original) = shown_and_original(resolved)?;
    let path = format!("{}/{}", stream_path(&event.stream), event.revision);
    let properties = (embed != Embed::None).then(|| Properties {
        event_id: event.id.to_string(),
        event_type: &event.kind,
        event_number: event.revision,
        stream_id: &event.stream,
        is_json: event.is_json,
        is_meta_data: !event.metadata.is_empty(),
        is_link_meta_data: resolved
            .link
            .as_ref()
            .is_some_and(|link| resolved.event.is_some() && !link.metadata.is_empty()),
        position_event_number: original.revision,
        position_stream_id: &original.stream,
        position: original.position.to_string(),
        data_bytes: event.data.len(),
    });
    let content = (embed == Embed::Content).then(|| Content {
        event_stream_id: &event.stream,
        event_number: event.revision,
        event_type: &event.kind,
        event_id: event.id.to_string(),
        data: Payload::new(&event.data, event.is_json),
        metadata: Payload::new(&event.metadata, true),
    });
    Some(Entry {
        title: format!("{}@{}", event.revision, event.stream),
        id: path.clone(),
        updated: proto_convert::to_timestamp(event.created / 10).to_string(),
        author: Author { name: "Umbel" },
        summary: &event.kind,
        properties,
        body: (embed == Embed::Body).then(|| Body::new(event)),
        content,
        links: [
            Link { uri: path.clone(), relation: "edit" },
            Link { uri: path, relation: "alternate" },
        ],
    })
}

/// An entry as JSON; `None` for an event that is gone.
pub fn entry_text(resolved: &ResolvedEvent, embed: Embed) -> Option<String> {
    serde_json::to_string(&entry(resolved, embed)?).ok()
}

impl FeedPage {
    /// The page as JSON.
    pub fn to_text(&self, embed: Embed) -> String {
        let path = stream_path(&self.stream);
        let places = || {
            let originals = self.events.iter().filter_map(shown_and_original);
            originals.map(|(_, original)| self.place(original))
        };
        let (oldest, newest) = (places().min(), places().max());
        let updated = self.events.iter().filter_map(shown_and_original);
        let updated = updated.map(|(_, original)| original.created).max().unwrap_or(0);
        let feed = Feed {
            title: format!("Event stream '{}'", self.stream),
            id: &path,
            updated: proto_convert::to_timestamp(updated / 10).to_string(),
            stream_id: &self.stream,
            author: Author { name: "Umbel" },
            head_of_stream: self.is_head(newest),
            self_url: &path,
            links: self.links(&path, oldest, newest),
            entries: self.events.iter().filter_map(|event| entry(event, embed)).collect(),
        };
        // Strings, numbers and checked JSON can always be written.
        serde_json::to_string(&feed).unwrap_or_default()
    }

    fn is_all(&self) -> bool {
        self.stream == ALL_STREAM
    }

    /// Revision of an event, or its position among all events.
    fn place(&self, event: &RecordedEvent) -> u64 {
        if self.is_all() { event.position } else { event.revision }
    }

    fn is_head(&self, newest: Option<u64>) -> bool {
        match (self.direction, self.state) {
            (_, Some(StreamState::Live { last, .. })) => newest.is_none_or(|place| place >= last),
            (Direction::Forwards, _) => self.is_last,
            (Direction::Backwards, _) => self.from == u64::MAX,
        }
    }

    /// Links to other pages: `next` has older events, `previous` newer ones.
    fn links(&self, path: &str, oldest: Option<u64>, newest: Option<u64>) -> Vec<Link> {
        let count = self.count;
        let page = |from: &str, direction: &str, relation| Link {
            uri: format!("{path}/{from}/{direction}/{count}"),
            relation,
        };
        let mut links = vec![
            Link { uri: path.to_string(), relation: "self" },
            page("head", "backward", "first"),
            page("0", "forward", "last"),
        ];
        let is_backwards = self.direction == Direction::Backwards;
        let first = match self.state {
            Some(StreamState::Live { first, .. }) => first,
            _ => 0,
        };
        // A read of all events backwards begins before its position, one of a stream at it.
        let older = oldest.or((!is_backwards && self.from != u64::MAX).then_some(self.from));
        let older = match older {
            _ if is_backwards && self.is_last => None,
            Some(place) if self.is_all() => Some(place),
            Some(place) if place > first => place.checked_sub(1),
            _ => None,
        };
        if let Some(place) = older {
            links.push(page(&place.to_string(), "backward", "next"));
        }
        let newer = match newest {
            Some(place) => place.saturating_add(1),
            None if !is_backwards => self.from,
            None if self.from == u64::MAX => 0,
            None => self.from.saturating_add(1),
        };
        let newer = if newer == u64::MAX { "head".to_string() } else { newer.to_string() };
        links.push(page(&newer, "forward", "previous"));
        links
    }
}
