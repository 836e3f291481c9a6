//! Text form of event ids.

use std::str::FromStr;

use uuid::Uuid;

use crate::types::error::Error;
use crate::types::event::EventId;

impl FromStr for EventId {
    type Err = Error;

    /// Parses `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, in either case, or 32 hexadecimal digits
    /// without hyphens.
    fn from_str(text: &str) -> Result<EventId, Error> {
        // The crate also reads braces and `urn:uuid:`, which are longer.
        let id = match text.len() {
            32 | 36 => Uuid::try_parse(text).ok(),
            _ => None,
        };
        id.map(|id| EventId(id.into_bytes())).ok_or_else(|| {
            let shown: String = text.chars().take(48).flat_map(char::escape_debug).collect();
            Error::invalid(format!(
                "'{shown}' is not an event id: write a UUID, such as \
                 0198f3c2-7a55-4b6e-9c1d-3e5f70819203"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_id_round_trips_as_uuid() {
        let id = EventId::from_random(*b"0123456789abcdef");
        assert_eq!(id.to_string(), "30313233-3435-4637-b839-616263646566");
        assert_eq!(id.to_string().parse::<EventId>().expect("a UUID"), id);
        assert_eq!("3031323334354637B839616263646566".parse::<EventId>().expect("digits"), id);
        for wrong in [
            "",
            "30313233-3435-4637-b839-61626364656",
            "3031323334354637b83961626364656g",
            "{30313233-3435-4637-b839-616263646566}",
            "urn:uuid:30313233-3435-4637-b839-616263646566",
            "{3031323334354637b839616263646566}",
            "30313233-3435-4637-b839-6162636465\u{e9}",
        ] {
            let message = wrong.parse::<EventId>().expect_err("no UUID").to_string();
            assert!(message.contains("is not an event id"), "{message}");
        }
        assert!("3031323-33435-4637-b839-6162636465667".parse::<EventId>().is_err());
    }
}
