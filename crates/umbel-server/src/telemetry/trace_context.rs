//! [`TraceId`]: the number by which a call is found again: in the log, in the client's own log, and
//! wherever else its trace goes.

use std::fmt;

use hyper::HeaderMap;
use hyper::http::HeaderValue;
use umbel_env::Entropy;

/// The header by which clients that trace say of which trace a call is. The World Wide Web
/// Consortium's form: a version, the trace, the part of it that calls, flags.
const HEADER: &str = "traceparent";
/// The header, or trailer, by which a client is told under which number its call was logged.
pub const TOLD: &str = "umbel-trace-id";

/// The number of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(u128);

impl TraceId {
    /// What the client says, where it says it once and in its form.
    pub fn of(headers: &HeaderMap) -> Option<TraceId> {
        let mut said = headers.get_all(HEADER).iter();
        let value = said.next()?;
        if said.next().is_some() { None } else { TraceId::parse(value.as_bytes()) }
    }

    /// A new one. Where the system has no random bytes it is one that no trace has.
    pub fn make(entropy: &dyn Entropy) -> TraceId {
        let mut random = [0; 16];
        match entropy.fill(&mut random) {
            Ok(()) => TraceId(u128::from_le_bytes(random)),
            Err(_) => TraceId(0),
        }
    }

    fn parse(value: &[u8]) -> Option<TraceId> {
        let (version, rest) = (hex(value.get(..2)?)?, value.get(2..)?);
        let (trace, part) = (hex(rest.get(1..33)?)?, hex(rest.get(34..50)?)?);
        hex(rest.get(51..53)?)?;
        let is_parted = rest[0] == b'-' && rest[33] == b'-' && rest[50] == b'-';
        // Versions to come may say more behind it; the first one may not.
        let is_whole = match version {
            0 => rest.len() == 53,
            0xff => false,
            _ => rest.len() == 53 || rest[53] == b'-',
        };
        (is_parted && is_whole && trace != 0 && part != 0).then_some(TraceId(trace))
    }

    /// As the value of a header.
    pub fn header(self) -> HeaderValue {
        HeaderValue::try_from(self.to_string()).expect("hex digits are a value")
    }
}

/// A number in small hex digits.
fn hex(digits: &[u8]) -> Option<u128> {
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
    fn a_trace_is_taken_where_it_is_well_formed_and_nowhere_else() {
        let parsed = |text: &str| TraceId::parse(text.as_bytes()).map(|trace| trace.to_string());
        let wanted = Some("4bf92f3577b34da6a3ce929d0e0e4736".to_string());
        assert_eq!(parsed(GOOD), wanted);
        assert_eq!(parsed(&GOOD.replacen("00", "01", 1)), wanted);
        assert_eq!(parsed(&format!("{}-more", GOOD.replacen("00", "cc", 1))), wanted);
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
    fn who_says_two_traces_says_none() {
        let mut headers = HeaderMap::new();
        assert_eq!(TraceId::of(&headers), None);
        headers.append(HEADER, HeaderValue::from_static(GOOD));
        assert!(TraceId::of(&headers).is_some());
        headers.append(HEADER, HeaderValue::from_static(GOOD));
        assert_eq!(TraceId::of(&headers), None);
    }
}
