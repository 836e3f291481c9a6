//! Peak memory and time of every parser of client bytes, for inputs that swell most.
//!
//! The allocator counts the whole process, so these measurements are a program of their own. With
//! `UMBEL_BLESS=1` the program writes the table in `docs/reference/parsers.md`.

use std::fmt::Write as _;
use std::time::Duration;

use hyper::body::Bytes;
use peak_alloc::PeakAlloc;
use umbel_env::{Clock, Env};
use umbel_events::limits::APPEND_EVENTS_MAX;
use umbel_server::fuzz_entry_points::{CLIENT_PARSERS, ClientParser};
use umbel_server::limits::{INLINE_MESSAGE_BYTES_MAX, PROPERTY_VALUES_MAX};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const PAGE: &str = include_str!("../../../docs/reference/parsers.md");
const PAGE_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/parsers.md");
/// Peak memory of a JSON parser beside its input, in percent of the input.
const JSON_PERCENT_MAX: usize = 300;
/// Peak memory of a message beside its bytes: the content of an append, and the properties of a
/// record.
const MESSAGE_PEAK_MAX: usize = 20 << 20;
/// Maximum number of events, records or writes of one message.
const ELEMENTS: usize = APPEND_EVENTS_MAX;
/// Number of properties of a record, a little less than it may have.
const VALUES: u32 = PROPERTY_VALUES_MAX as u32 - 100;

/// JSON that consists of repetitions of one part.
fn repeated(begin: &str, part: &str, end: &str, bytes_max: usize) -> Vec<u8> {
    let room = bytes_max - begin.len() - end.len();
    let parts = part.repeat(room / part.len());
    format!("{begin}{}{end}", parts.trim_end_matches(',')).into_bytes()
}

/// Objects whose other values swell in a tree, and values of known keys that do.
fn json_inputs(bytes_max: usize) -> Vec<Vec<u8>> {
    let entry = concat!(
        r#"{"stream":"s","group":"g","resolveLinkTos":true,"extraStatistics":true,"startFrom":0,"#,
        r#""after":null,"messageTimeout":1,"maxRetryCount":1,"checkPointAfter":1,"#,
        r#""minCheckPointCount":1,"maxCheckPointCount":1,"maxSubscriberCount":1,"#,
        r#""liveBufferSize":1,"readBatchSize":1,"historyBufferSize":1,"#,
        r#""namedConsumerStrategy":"Pinned","filter":{"by":"type","regex":"","prefixes":["#
    );
    let user = r#"{"loginName":"ada","hash":"","groups":["#;
    let record = r#"{"scavengeId":"1","startedMicros":1,"result":"Success","#;
    let settings = r#"{"thresholdPercent":30,"throttlePercent":25,"isPaused":false,"#;
    let console = r#"{"stream":"s","type":"t","data":"["#;
    let cases = [
        (r#"{"x":["#, r#"{"":0},"#, "]}"),
        ("{", r#""a":0,"#, "}"),
        (r#"{"x":"#, "[", ""),
        (r#"{"$acl":{"$r":["#, r#""a","#, "]}}"),
        (r#"{"$acl":{"$r":["#, r#""","#, "]}}"),
        (r#"{"$userStreamAcl":{"$r":["#, r#""a","#, "]}}"),
        (r#"{"$acl":"#, r#""#, r#"{"$r":[]}}"#),
        (user, r#""a","#, "]}"),
        (r#"{"entries":["#, r#"{"":0},"#, "]}"),
        (&format!(r#"{{"entries":[{entry}"#), r#""","#, "]}}]}"),
        (&format!(r#"{{"entry":{entry}"#), r#""","#, "]}}}"),
        (r#"{"deleted":{"group":"g","stream":""#, "\\u00e4", r#""}}"#),
        (&format!(r#"{record}"details":{{"#), r#""a":0,"#, "}}"),
        (&format!(r#"{record}"details":{{"a":["#), r#"{"":0},"#, "]}}"),
        (&format!(r#"{record}"details":{{"a":""#), "\\u00e4", r#""}}"#),
        (&format!(r#"{record}"error":""#), "\\u00e4", r#""}"#),
        (&format!(r#"{settings}"x":["#), r#"{"":0},"#, "]}"),
        (&format!(r#"{settings}"schedule":""#), "\\u002a", r#""}"#),
        (r#"{"$correlationId":""#, "\\u00e4", r#""}"#),
        (console, "{},", r#"]"}"#),
        (console, "\\u0020", r#"]"}"#),
        (r#"""#, "\\n", r#"""#),
        ("[", r#"{"eventType":"a"},"#, "]"),
        (r#"[{"eventType":"a","data":["#, "{},", "]}]"),
        (r#"[{"eventType":""#, "\\u00e4", r#""}]"#),
        (r#"{"loginName":"a","password":"b","groups":["#, r#""","#, "]}"),
        (r#"{"startPosition":""#, "\\u0031", r#""}"#),
    ];
    let build = |(begin, part, end): (&str, &str, &str)| match part {
        "" => format!("{begin}{end}").into_bytes(),
        part => repeated(begin, part, end, bytes_max),
    };
    cases.map(build).into()
}

/// Messages of empty elements under each tag, and the smallest valid messages of each call.
fn message_inputs(bytes_max: usize) -> Vec<Vec<u8>> {
    let mut inputs = Vec::new();
    // Elements of one kind, as many as a call accepts.
    let repeat = |element: Vec<u8>| element.repeat(ELEMENTS.min(bytes_max / element.len()));
    for tag in 1..8_u8 {
        let key = tag << 3 | 2;
        for element in [&[key, 0][..], &[key, 2, 10, 0], &[key, 4, 10, 0, 18, 0]] {
            for bytes in [bytes_max, bytes_max / 32] {
                inputs.push(element.repeat(bytes / element.len()));
            }
        }
    }
    let pair = |key: &[u8], value: &[u8]| [field(1, key), field(2, value)].concat();
    // As many of the smallest events as an append may have, in a batch.
    let id = field(1, &field(1, &[]));
    let event = [id, field(2, &pair(b"type", b"t")), field(2, &field(1, b"content-type"))].concat();
    inputs.push(repeat(field(3, &event)));
    // An event with many entries of metadata that nothing reads.
    let entries: Vec<u8> = (0..(bytes_max as u32 - 256) / 8)
        .flat_map(|number| field(2, &field(1, &number.to_le_bytes().map(|byte| byte & 0x7f))))
        .collect();
    inputs.push(field(2, &[&event[..], &entries].concat()));
    inputs.push(field(3, &[&event[..], &entries].concat()));
    // The smallest writes and acknowledgements, and as many keys as there may be.
    inputs.push(repeat(field(1, &field(3, b"k"))));
    inputs.push(field(2, b"k").repeat(1000));
    inputs.push(field(2, &field(2, &[]).repeat(10_000)));
    inputs.extend(nested_inputs(bytes_max));
    // The smallest records, and those with properties that swell.
    let schema = field(3, &[8, 1, 18, 1, b't']);
    let property = |value: &[u8]| field(2, &pair(b"k", value));
    // JSON of them fills the longest metadata, or they fill the message.
    let within = bytes_max.min(INLINE_MESSAGE_BYTES_MAX) - 256;
    let of_metadata = (bytes_max / 10).max(within);
    let list = field(6, &[10, 0].repeat(of_metadata / 2));
    let text = field(3, &[1].repeat((bytes_max / 14).max(within)));
    let keys: Vec<u8> = (0..of_metadata as u32 / 10)
        .flat_map(|number| field(1, &field(1, &number.to_le_bytes().map(|byte| byte & 0x7f))))
        .collect();
    // As many properties as a record may have, with keys in no order, and the same in an object.
    let key = |number: u32| {
        let number = number.wrapping_mul(2_654_435_761) >> 11;
        [number >> 14, number >> 7, number].map(|part| part as u8 & 0x7f)
    };
    let pairs = |tag: u8| -> Vec<u8> {
        let pair_of = |number: u32| field(tag, &pair(&key(number), &[]));
        (0..VALUES.min(bytes_max as u32 / 12)).flat_map(pair_of).collect()
    };
    let (properties, object) = (pairs(2), property(&field(5, &pairs(1))));
    for many in [&[&schema[..], &properties].concat(), &[&schema[..], &object].concat()] {
        let records = bytes_max / (many.len() + 16);
        inputs.push(field(1, &[&field(5, b"s"), &many[..]].concat()).repeat(records));
        inputs.push([field(1, b"s"), field(2, many).repeat(records)].concat());
    }
    let records = [
        schema.repeat(1),
        [&schema[..], &property(&list)].concat(),
        [&schema[..], &property(&text)].concat(),
        [&schema[..], &property(&field(5, &keys))].concat(),
    ];
    for (number, record) in records.iter().enumerate() {
        // In a message of records, and in a session.
        let in_message = field(1, &[&field(5, b"s"), &record[..]].concat());
        let in_session = field(2, record);
        let repeat_first = |part: Vec<u8>| if number == 0 { repeat(part) } else { part };
        inputs.push(repeat_first(in_message));
        inputs.push([field(1, b"s"), repeat_first(in_session)].concat());
    }
    inputs
}

/// Reads with many prefixes, and records with lists in lists.
fn nested_inputs(bytes_max: usize) -> Vec<Vec<u8>> {
    // As many prefixes as the message has space for, and as many as there may be.
    let mut inputs = Vec::new();
    for prefixes in [(bytes_max - 32) / 3, 2000] {
        let expression = field(2, b"p").repeat(prefixes);
        inputs.push(field(1, &field(7, &field(2, &expression))));
    }
    let deep = (0..40).fold(Vec::new(), |inner, _| field(6, &field(1, &inner)));
    let lists_bytes = 190_000.min(bytes_max - 256);
    let lists = field(6, &field(1, &deep).repeat(lists_bytes / (deep.len() + 4)));
    let property = field(2, &[field(1, b"k"), field(2, &lists)].concat());
    let record = [&field(3, &[8, 1, 18, 1, b't'])[..], &property].concat();
    let records = bytes_max / (record.len() + 16);
    inputs.push(field(1, &[&field(5, b"s"), &record[..]].concat()).repeat(records));
    inputs.push([field(1, b"s"), field(2, &record).repeat(records)].concat());
    inputs
}

/// A field of this tag with these bytes.
fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(content);
    out
}

struct Measured {
    bytes: usize,
    peak: usize,
    time: Duration,
}

fn measure(clock: &dyn Clock, parser: &ClientParser, input: &[u8]) -> Measured {
    let message = Bytes::copy_from_slice(input);
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let started = clock.now();
    (parser.parse)(message);
    let time = clock.now().saturating_sub(started);
    Measured { bytes: input.len(), peak: ALLOCATOR.peak_usage().saturating_sub(before), time }
}

/// Longest time of the messages that an asynchronous worker decodes. Each is parsed several times,
/// and its fastest time counts, since the machine may do other work, too.
fn slowest_inline(clock: &dyn Clock, parser: &ClientParser) -> Duration {
    let mut inputs = message_inputs(INLINE_MESSAGE_BYTES_MAX);
    inputs.retain(|input| input.len() <= INLINE_MESSAGE_BYTES_MAX);
    let fastest = |input: &Vec<u8>| {
        let times = (0..5).map(|_| measure(clock, parser, input).time);
        times.min().unwrap_or_default()
    };
    inputs.iter().map(fastest).max().unwrap_or_default()
}

fn main() {
    let clock = Env::system().clock;
    let mut table = String::new();
    for parser in &CLIENT_PARSERS {
        let is_message = parser.name.contains("message");
        let inputs = match is_message {
            true => message_inputs(parser.bytes_max),
            false => json_inputs(parser.bytes_max),
        };
        let measured: Vec<Measured> =
            inputs.iter().map(|input| measure(&*clock, parser, input)).collect();
        let percent = |it: &Measured| it.peak * 100 / it.bytes.max(1);
        // A short input has the fixed memory of an error message.
        let long = || measured.iter().filter(|it| it.bytes >= 1 << 12);
        let worst = long().max_by_key(|it| it.peak).expect("an input");
        let swell = long().map(percent).max().unwrap_or(0);
        let slowest = measured.iter().map(|it| it.time).max().unwrap_or_default();
        match is_message {
            true => assert!(worst.peak <= MESSAGE_PEAK_MAX, "{}: {}", parser.name, worst.peak),
            false => assert!(swell <= JSON_PERCENT_MAX, "{}: {swell} %", parser.name),
        }
        let inline = match is_message {
            true => format!("{:.1} ms", slowest_inline(&*clock, parser).as_secs_f64() * 1e3),
            false => String::new(),
        };
        let kib = |bytes: usize| bytes.div_ceil(1024);
        let _ = writeln!(
            table,
            "| {} | {} KiB | {} KiB | {}.{:02} | {:.1} ms | {inline} |",
            parser.name,
            kib(worst.bytes),
            kib(worst.peak),
            swell / 100,
            swell % 100,
            slowest.as_secs_f64() * 1e3
        );
    }
    println!("{table}");
    let (begin, end) = ("<!-- measured -->\n", "<!-- end -->");
    if std::env::var_os("UMBEL_BLESS").is_some() {
        let (head, rest) = PAGE.split_once(begin).expect("the page has the table");
        let (_, tail) = rest.split_once(end).expect("the table ends");
        let columns = "| parser | input | peak memory | highest peak / input | slowest";
        let kib = INLINE_MESSAGE_BYTES_MAX >> 10;
        let header = format!("{columns} | slowest of {kib} KiB |\n|---|--:|--:|--:|--:|--:|\n");
        let page = format!("{head}{begin}{header}{table}{end}{tail}");
        std::fs::write(PAGE_PATH, page).expect("the page is written");
    }
    for parser in &CLIENT_PARSERS {
        let row = format!("| {} |", parser.name);
        let is_blessed = std::env::var_os("UMBEL_BLESS").is_some();
        assert!(is_blessed || PAGE.contains(&row), "the page has no row of {}", parser.name);
    }
}
