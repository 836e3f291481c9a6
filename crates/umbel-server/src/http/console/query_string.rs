//! [`QueryString`]: the query parameters of a console request.

use tonic::Status;

/// The query parameters of a request.
#[derive(Debug)]
pub struct QueryString(Vec<(String, String)>);

impl QueryString {
    /// Parses a query; an error if it is not UTF-8, since replacement characters would change
    /// names.
    pub fn parse(text: &str) -> Result<QueryString, Status> {
        let parts = text.split('&').filter(|part| !part.is_empty());
        let pairs = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
        let read = pairs.map(|(name, value)| Some((percent_decode(name)?, percent_decode(value)?)));
        let read: Option<Vec<_>> = read.collect();
        let wrong = || Status::invalid_argument("the query string is not UTF-8");
        read.map(QueryString).ok_or_else(wrong)
    }

    /// The parameters with their values, in the order of the query. A parameter without `=` has an
    /// empty value.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value of a parameter; empty if the parameter is missing.
    pub fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// The choice that a parameter names; `None` if the parameter is missing.
    pub fn choice<T: Copy, const N: usize>(
        &self,
        name: &str,
        known: [(&str, T); N],
    ) -> Result<Option<T>, Status> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        let found = known.iter().find(|(known, _)| *known == text);
        let names = known.map(|(known, _)| known).join(" or ");
        let wrong = || Status::invalid_argument(format!("{name} is {text}, but must be {names}"));
        found.map(|(_, value)| Some(*value)).ok_or_else(wrong)
    }

    /// A parameter as a number; `None` if the parameter is missing.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        let wrong = |_| Status::invalid_argument(format!("{name} is {text}, but must be a number"));
        text.parse().map(Some).map_err(wrong)
    }
}

/// Decodes percent-encoded text, and `+` as a space; `None` if the result is not UTF-8. Malformed
/// escapes stay as they are.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let coded = (*first == b'%')
            .then(|| after.get(..2))
            .flatten()
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match coded {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => bytes.push(if *first == b'+' { b' ' } else { *first }),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_string_is_parsed() {
        let query =
            QueryString::parse("stream=%24ce-caf%C3%A9&from=7&empty=&plus=a+b&bad=%zz%4").unwrap();
        assert_eq!(query.text("stream"), "$ce-café");
        assert_eq!((query.text("plus"), query.text("bad")), ("a b", "%zz%4"));
        let bare = QueryString::parse("&removeAll&a=1&").unwrap();
        assert_eq!(bare.pairs().collect::<Vec<_>>(), [("removeAll", ""), ("a", "1")]);
        assert_eq!(query.number("from").unwrap(), Some(7));
        assert_eq!(query.number("empty").unwrap(), None);
        assert!(query.number("plus").is_err());
        assert!(
            QueryString::parse("stream=caf%E9").is_err() && QueryString::parse("%ff=a").is_err()
        );
        let known = [("yes", true), ("no", false)];
        let choice = |text: &str| QueryString::parse(text).unwrap().choice("is", known);
        assert_eq!((choice("is=no").unwrap(), choice("is=").unwrap()), (Some(false), None));
        assert_eq!(choice("is=maybe").unwrap_err().message(), "is is maybe, but must be yes or no");
    }
}
