//! [`Query`]: what a page of the console asks for, behind the question mark.

use tonic::Status;

/// What stands behind the question mark.
#[derive(Debug)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads it; an error where it is no UTF-8: what it names would be something else.
    pub fn parse(text: &str) -> Result<Query, Status> {
        let parts = text.split('&').filter_map(|part| part.split_once('='));
        let read = parts.map(|(name, value)| Some((decoded(name)?, decoded(value)?)));
        let read: Option<Vec<_>> = read.collect();
        let wrong = || Status::invalid_argument("what is behind the question mark is no UTF-8");
        read.map(Query).ok_or_else(wrong)
    }

    /// What it says of this; empty where nothing.
    pub fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// Which of these it says, by their names; `None` where none.
    pub fn one_of<T: Copy, const N: usize>(
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

    /// The same as a number.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        let wrong = |_| Status::invalid_argument(format!("{name} is {text}, but must be a number"));
        text.parse().map(Some).map_err(wrong)
    }
}

/// A text whose bytes may be written as `%` and two digits; `None` where it is no UTF-8.
fn decoded(text: &str) -> Option<String> {
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
    fn what_stands_behind_the_question_mark_is_read() {
        let query =
            Query::parse("stream=%24ce-caf%C3%A9&from=7&empty=&plus=a+b&bad=%zz%4").unwrap();
        assert_eq!(query.text("stream"), "$ce-café");
        assert_eq!((query.text("plus"), query.text("bad")), ("a b", "%zz%4"));
        assert_eq!(query.number("from").unwrap(), Some(7));
        assert_eq!(query.number("empty").unwrap(), None);
        assert!(query.number("plus").is_err());
        assert!(Query::parse("stream=caf%E9").is_err() && Query::parse("%ff=a").is_err());
        let known = [("yes", true), ("no", false)];
        let said = |text: &str| Query::parse(text).unwrap().one_of("is", known);
        assert_eq!((said("is=no").unwrap(), said("is=").unwrap()), (Some(false), None));
        assert_eq!(said("is=maybe").unwrap_err().message(), "is is maybe, but must be yes or no");
    }
}
