//! `$schema` members of event metadata, which the server writes for clients of the second protocol.

/// Members of the schema, in any order.
const KEYS: [&[u8]; 3] = [b"$schema.format", b"$schema.id", b"$schema.name"];

/// Bytes of the `$schema` members with which metadata begins; of all the metadata if it has no
/// other members. Members behind others count as the client's.
pub fn member_bytes(metadata: &[u8]) -> usize {
    let Some(mut rest) = metadata.strip_prefix(b"{") else { return 0 };
    let members = rest.len();
    loop {
        let Some(after) = skip_member(rest) else { return members - rest.len() };
        match after {
            b"}" => return metadata.len(),
            [b',', next @ ..] => rest = next,
            _ => return members - rest.len(),
        }
    }
}

/// Returns what follows a `$schema` member whose value is a text.
fn skip_member(members: &[u8]) -> Option<&[u8]> {
    let (key, rest) = split_text(members)?;
    let value = rest.strip_prefix(b":")?;
    KEYS.contains(&key).then_some(split_text(value)?.1)
}

/// Splits JSON into the text with which it begins, without quotes, and the rest.
fn split_text(json: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = json.strip_prefix(b"\"")?;
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some((&text[..at], &text[at + 1..])),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leading_schema_members_are_counted() {
        let cases = [
            (r#""#, 0),
            (r#"{}"#, 0),
            (r#"[]"#, 0),
            (r#"{"a":"b"}"#, 0),
            (r#"{"$schema.name":"T"}"#, 20),
            (r#"{"$schema.format":"Json","$schema.name":"T"}"#, 44),
            (r#"{"$schema.name":"T","a":1}"#, 19),
            (r#"{"$schema.name":"T\"\\","a":1}"#, 23),
            (r#"{"a":1,"$schema.name":"T"}"#, 0),
            (r#"{"$schema.name":7}"#, 0),
            (r#"{"$schema.name":"T"#, 0),
            (r#"{"$schema.name":"T\"#, 0),
            (r#"{"$schema.name":"T"}x"#, 0),
        ];
        for (metadata, bytes) in cases {
            assert_eq!(member_bytes(metadata.as_bytes()), bytes, "{metadata}");
        }
    }
}
