//! Finds the known name that is nearest to a mistyped one.

use strsim::damerau_levenshtein;

/// Returns the name nearest to `written`, if at most a third of its letters differ.
pub fn nearest<'a>(written: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let apart = names.map(|name| (damerau_levenshtein(written, name), name));
    let (differing, name) = apart.min()?;
    (differing * 3 <= name.len()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_suggested_up_to_a_third_of_its_letters() {
        let names = ["listen", "insecure", "sync"];
        for (written, meant) in [
            ("lisetn", Some("listen")),
            ("in-secure", Some("insecure")),
            ("sink", None),
            ("", None),
            ("sync", Some("sync")),
        ] {
            assert_eq!(nearest(written, names.into_iter()), meant, "{written}");
        }
    }
}
