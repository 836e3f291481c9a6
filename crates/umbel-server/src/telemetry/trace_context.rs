//! [`TraceId`]: the number that identifies a call in the server's log, the client's log, and
//! traces. [`TraceParent`]: the span of the client that a call belongs to.

use std::fmt;

use hyper::HeaderMap;
use hyper::http::HeaderValue;
use umbel_env::Entropy;

/// The header with the trace of a call, in W3C Trace Context format: version, trace, parent span,
/// flags.
const TRACEPARENT: &str = "traceparent";
/// The response header or trailer with the trace id under which the call was logged.
pub const TRACE_ID_HEADER: &str = "umbel-trace-id";

/// The number of a trace.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub u128);

/// The number of a span.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SpanId(pub u64);

/// The span of the client that a call belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: TraceId,
    /// The client's span.
    pub span: SpanId,
    /// Whether the client records the trace.
    pub is_sampled: bool,
}

impl TraceParent {
    /// The parent that the client sent, if the header occurs once and is valid.
    pub fn from_headers(headers: &HeaderMap) -> Option<TraceParent> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let value = values.next()?;
        if values.next().is_some() { None } else { TraceParent::parse(value.as_bytes()) }
    }

    fn parse(value: &[u8]) -> Option<TraceParent> {
        let (version, rest) = (parse_hex(value.get(..2)?)?, value.get(2..)?);
        let (trace, part) = (parse_hex(rest.get(1..33)?)?, parse_hex(rest.get(34..50)?)?);
        let flags = parse_hex(rest.get(51..53)?)?;
        let is_parted = rest[0] == b'-' && rest[33] == b'-' && rest[50] == b'-';
        // Future versions may append fields; version 0 may not.
        let is_valid_length = match version {
            0 => rest.len() == 53,
            0xff => false,
            _ => rest.len() == 53 || rest[53] == b'-',
        };
        let is_valid = is_parted && is_valid_length && trace != 0 && part != 0;
        let span = SpanId(u64::try_from(part).ok()?);
        is_valid.then_some(TraceParent { trace: TraceId(trace), span, is_sampled: flags & 1 == 1 })
    }
}

impl TraceId {
    /// The trace id that the client sent, if the header occurs once and is valid.
    pub fn from_headers(headers: &HeaderMap) -> Option<TraceId> {
        TraceParent::from_headers(headers).map(|parent| parent.trace)
    }

    /// Generates a random trace id; 0, which is no valid trace id, if the system has no random
    /// bytes.
    pub fn generate(entropy: &dyn Entropy) -> TraceId {
        let mut random = [0; 16];
        match entropy.fill(&mut random) {
            Ok(()) => TraceId(u128::from_le_bytes(random)),
            Err(_) => TraceId(0),
        }
    }

    /// Parses 32 lower-case hex digits.
    pub fn from_hex(text: &str) -> Option<TraceId> {
        let digits = Some(text.as_bytes()).filter(|digits| digits.len() == 32)?;
        parse_hex(digits).filter(|trace| *trace != 0).map(TraceId)
    }

    /// The trace id as a header value.
    pub fn header(self) -> HeaderValue {
        HeaderValue::try_from(self.to_string()).expect("hex digits are a valid header value")
    }
}

/// Parses lower-case hex digits.
fn parse_hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| match digit {
        b'0'..=b'9' => Some(number << 4 | u128::from(digit - b'0')),
        b'a'..=b'f' => Some(number << 4 | u128::from(digit - b'a' + 10)),
        _ => None,
    })
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_well_formed_traceparent_is_accepted() {
        let parsed = |text: &str| {
            let parent = TraceParent::parse(text.as_bytes());
            parent.map(|parent| parent.trace.to_string())
        };
        let wanted = Some("4bf92f3577b34da6a3ce929d0e0e4736".to_string());
        assert_eq!(parsed(GOOD), wanted);
        assert_eq!(parsed(&GOOD.replacen("00", "01", 1)), wanted);
        assert_eq!(parsed(&format!("{}-more", GOOD.replacen("00", "cc", 1))), wanted);
        let parent = TraceParent::parse(GOOD.as_bytes()).unwrap();
        assert_eq!((parent.span, parent.is_sampled), (SpanId(0x00f0_67aa_0ba9_02b7), true));
        let unsampled = TraceParent::parse(GOOD.replace("-01", "-02").as_bytes()).unwrap();
        assert!(!unsampled.is_sampled, "only the lowest flag says that a trace is sampled");
        let wrong = [
            "",
            "00",
            &GOOD[..GOOD.len() - 1],
            &format!("{GOOD}-more"),
            &format!("{}more", GOOD.replacen("00", "cc", 1)),
            &GOOD.replacen("00", "ff", 1),
            &GOOD.replacen("00", "0G", 1),
            &GOOD.replace("4bf", "4BF"),
            &GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &GOOD.replace('-', "_"),
            &GOOD.replace("-01", "-0x"),
            &GOOD.replace("4bf", "é"),
        ];
        for wrong in wrong {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
        for cut in 0..GOOD.len() {
            assert_eq!(parsed(&GOOD[..cut]), None);
        }
    }

    #[test]
    fn duplicate_traceparent_headers_are_ignored() {
        let mut headers = HeaderMap::new();
        assert_eq!(TraceId::from_headers(&headers), None);
        headers.append(TRACEPARENT, HeaderValue::from_static(GOOD));
        assert!(TraceId::from_headers(&headers).is_some());
        headers.append(TRACEPARENT, HeaderValue::from_static(GOOD));
        assert_eq!(TraceId::from_headers(&headers), None);
    }
}
