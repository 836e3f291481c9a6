//! Peak memory and time of every parser of client bytes, for inputs that swell most.
//!
//! The allocator counts the whole process, so these measurements are a program of their own. With
//! `UMBEL_BLESS=1` the program writes the table in `docs/reference/parsers.md`.

use std::fmt::Write as _;
use std::time::Duration;

use peak_alloc::PeakAlloc;
use umbel_env::{Clock, Env};
use umbel_server::fuzz_entry_points::{CLIENT_PARSERS, ClientParser};
use umbel_server::limits::DECODED_OVERHEAD_BYTES_MAX;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const PAGE: &str = include_str!("../../../docs/reference/parsers.md");
const PAGE_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/parsers.md");
/// Peak memory of a JSON parser beside its input, in percent of the input.
const JSON_PERCENT_MAX: usize = 300;
/// Peak memory of a message, whatever its size. A vector that grows takes twice its elements.
const MESSAGE_PEAK_MAX: usize = 2 * DECODED_OVERHEAD_BYTES_MAX;

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

/// Messages of empty elements under each tag, and of elements with one small field.
fn message_inputs(bytes_max: usize) -> Vec<Vec<u8>> {
    let mut inputs = Vec::new();
    for tag in 1..8_u8 {
        let key = tag << 3 | 2;
        for element in [&[key, 0][..], &[key, 2, 10, 0], &[key, 4, 10, 0, 18, 0]] {
            // Few enough to pass the count of elements, and as many as may be.
            for bytes in [bytes_max, bytes_max / 8, bytes_max / 32, 64 << 10] {
                inputs.push(element.repeat(bytes / element.len()));
            }
        }
    }
    // A record with a schema and one property, a list of null values.
    for bytes in [bytes_max / 4, bytes_max / 16, 64 << 10] {
        let list = field(6, &[10, 0].repeat(bytes / 2));
        let property = [field(1, b"k"), field(2, &list)].concat();
        let schema = [8, 1, 18, 1, b't'];
        inputs
            .push(field(1, &[field(2, &property), field(3, &schema), field(4, &schema)].concat()));
    }
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
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let started = clock.now();
    (parser.parse)(input);
    let time = clock.now().saturating_sub(started);
    Measured { bytes: input.len(), peak: ALLOCATOR.peak_usage().saturating_sub(before), time }
}

fn main() {
    let clock = Env::system().clock;
    let mut table = String::new();
    for parser in &CLIENT_PARSERS {
        let is_message = parser.name.contains("message") || parser.name.contains("record");
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
        let kib = |bytes: usize| bytes.div_ceil(1024);
        let _ = writeln!(
            table,
            "| {} | {} KiB | {} KiB | {}.{:02} | {:.1} ms |",
            parser.name,
            kib(parser.bytes_max),
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
        let columns = "| parser | longest input | peak memory | peak / input | slowest |\n";
        let header = format!("{columns}|---|--:|--:|--:|--:|\n");
        let page = format!("{head}{begin}{header}{table}{end}{tail}");
        std::fs::write(PAGE_PATH, page).expect("the page is written");
    }
    for parser in &CLIENT_PARSERS {
        let row = format!("| {} |", parser.name);
        let is_blessed = std::env::var_os("UMBEL_BLESS").is_some();
        assert!(is_blessed || PAGE.contains(&row), "the page has no row of {}", parser.name);
    }
}
