//! Evaluates the constant integer expressions of `limits.rs`: numbers, `+ - * <<`, parentheses
//! and ranges.

/// Returns the value as text: a number, or `first..=last`. `None` for other expressions.
pub fn evaluate(text: &str) -> Option<String> {
    if let Some((first, last)) = text.split_once("..=") {
        return Some(format!("{}..={}", number(first)?, number(last)?));
    }
    Some(number(text)?.to_string())
}

fn number(text: &str) -> Option<i128> {
    let bytes: Vec<u8> =
        text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'_').collect();
    let mut at = 0;
    let value = shift(&bytes, &mut at)?;
    (at == bytes.len()).then_some(value)
}

fn shift(bytes: &[u8], at: &mut usize) -> Option<i128> {
    let mut value = sum(bytes, at)?;
    while bytes[*at..].starts_with(b"<<") {
        *at += 2;
        value = value.checked_shl(u32::try_from(sum(bytes, at)?).ok()?)?;
    }
    Some(value)
}

fn sum(bytes: &[u8], at: &mut usize) -> Option<i128> {
    let mut value = product(bytes, at)?;
    while let Some(sign @ (b'+' | b'-')) = bytes.get(*at) {
        *at += 1;
        let other = product(bytes, at)?;
        value = if *sign == b'+' { value.checked_add(other)? } else { value.checked_sub(other)? };
    }
    Some(value)
}

fn product(bytes: &[u8], at: &mut usize) -> Option<i128> {
    let mut value = atom(bytes, at)?;
    while bytes.get(*at) == Some(&b'*') {
        *at += 1;
        value = value.checked_mul(atom(bytes, at)?)?;
    }
    Some(value)
}

fn atom(bytes: &[u8], at: &mut usize) -> Option<i128> {
    match bytes.get(*at)? {
        b'-' => {
            *at += 1;
            atom(bytes, at)?.checked_neg()
        }
        b'(' => {
            *at += 1;
            let value = shift(bytes, at)?;
            (bytes.get(*at) == Some(&b')')).then_some(())?;
            *at += 1;
            Some(value)
        }
        _ => {
            let start = *at;
            while bytes.get(*at).is_some_and(u8::is_ascii_digit) {
                *at += 1;
            }
            std::str::from_utf8(&bytes[start..*at]).ok()?.parse().ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::evaluate;

    #[test]
    fn limit_expressions_are_evaluated() {
        assert_eq!(evaluate("64 * 1024").as_deref(), Some("65536"));
        assert_eq!(evaluate("(1 << 56) - 1").as_deref(), Some("72057594037927935"));
        assert_eq!(evaluate("-1..=1_000").as_deref(), Some("-1..=1000"));
        assert_eq!(evaluate("usize::MAX"), None);
    }
}
