//! Whole numbers in command lines.

/// Parses whole numbers of this range, which may have `_` between digits.
pub fn whole_number<T: TryFrom<i64> + 'static>(
    min: i64,
    max: i64,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number: Option<i64> = text.replace('_', "").parse().ok();
        number
            .filter(|number| (min..=max).contains(number))
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| format!("must be a whole number from {min} to {max}"))
    }
}
