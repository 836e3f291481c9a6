//! Text form of event ids.

use std::str::FromStr;

use crate::types::error::Error;
use crate::types::event::EventId;

impl FromStr for EventId {
    type Err = Error;

    /// Parses `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, in either case, or 32 hexadecimal digits
    /// without hyphens.
    fn from_str(text: &str) -> Result<EventId, Error> {
        let wrong = || {
            let shown: String = text.chars().take(48).flat_map(char::escape_debug).collect();
            Error::invalid(format!(
                "'{shown}' is no event id: write a UUID, such as \
                 0198f3c2-7a55-4b6e-9c1d-3e5f70819203"
            ))
        };
        let bytes = text.as_bytes();
        let hyphens = [8, 13, 18, 23];
        let is_hyphenated = bytes.len() == 36;
        if !is_hyphenated && bytes.len() != 32 {
            return Err(wrong());
        }
        let mut digits = Vec::with_capacity(32);
        for (index, byte) in bytes.iter().enumerate() {
            if is_hyphenated && hyphens.contains(&index) {
                if *byte != b'-' {
                    return Err(wrong());
                }
                continue;
            }
            let digit = (*byte as char).to_digit(16).ok_or_else(wrong)?;
            digits.push(digit as u8);
        }
        let mut id = [0; 16];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(EventId(id))
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
        for wrong in ["", "30313233-3435-4637-b839-61626364656", "3031323334354637b83961626364656g"]
        {
            let message = wrong.parse::<EventId>().expect_err("no UUID").to_string();
            assert!(message.contains("is no event id"), "{message}");
        }
        assert!("3031323-33435-4637-b839-6162636465667".parse::<EventId>().is_err());
    }
}
