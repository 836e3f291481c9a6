//! Widths of the texts of a plot, and positions without overlap.

/// Estimates the width of a text, in units of its size. The estimate is rather too wide than too
/// narrow, since the font depends on the reader's system.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(advance).sum::<f64>() * size
}

/// Returns the text, or its two ends around an ellipsis if the text is too wide. Both ends stay,
/// since names often share their beginning or their end.
pub fn shortened(text: &str, size: f64, width_max: f64) -> String {
    if width(text, size) <= width_max {
        return text.to_string();
    }
    let half = (width_max - advance('…') * size) / 2.0;
    let beginning: String = fitting(text.chars(), size, half).collect();
    let end: Vec<char> = fitting(text.chars().rev(), size, half).collect();
    let end: String = end.into_iter().rev().collect();
    format!("{}…{}", beginning.trim_end(), end.trim_start())
}

/// Returns the first letters that fit into a width.
fn fitting(
    letters: impl Iterator<Item = char>,
    size: f64,
    mut width_left: f64,
) -> impl Iterator<Item = char> {
    letters.take_while(move |letter| {
        width_left -= advance(*letter) * size;
        width_left >= 0.0
    })
}

/// Returns the largest width of these texts.
pub fn widest<'a>(texts: impl Iterator<Item = &'a str>, size: f64) -> f64 {
    texts.map(|text| width(text, size)).fold(0.0, f64::max)
}

/// Moves positions apart until neighbours are at least `gap` apart and all lie between `low` and
/// `high`, if there is enough space. Keeps the order.
pub fn apart(wishes: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wishes.len()).collect();
    order.sort_by(|a, b| wishes[*a].total_cmp(&wishes[*b]));
    let mut places = wishes.to_vec();
    let mut free = low;
    for at in &order {
        places[*at] = places[*at].max(free);
        free = places[*at] + gap;
    }
    let mut free = high;
    for at in order.iter().rev() {
        places[*at] = places[*at].min(free);
        free = places[*at] - gap;
    }
    places
}

fn advance(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '|' | '\'' | ' ' => 0.34,
        't' | 'f' | 'r' | '(' | ')' | '-' | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 1.0,
        'A'..='Z' => 0.74,
        letter if letter.is_ascii() => 0.64,
        letter if u32::from(letter) < 0x2000 => 0.7,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_keep_their_ends() {
        assert_eq!(shortened("umbel", 12.0, 100.0), "umbel");
        let short = shortened("a setting with a very long name", 12.0, 100.0);
        assert!(short.starts_with("a set") && short.ends_with("ame"), "{short}");
        assert!(width(&short, 12.0) <= 100.0);
        assert_eq!(shortened("wide", 12.0, 0.0), "…");
    }

    #[test]
    fn labels_keep_distance_and_order() {
        assert_eq!(apart(&[10.0, 50.0], 15.0, 0.0, 100.0), [10.0, 50.0]);
        assert_eq!(apart(&[50.0, 49.0, 48.0], 15.0, 0.0, 100.0), [78.0, 63.0, 48.0]);
        assert_eq!(apart(&[99.0, 99.0, 99.0], 15.0, 0.0, 100.0), [70.0, 85.0, 100.0]);
        assert_eq!(apart(&[], 15.0, 0.0, 100.0), Vec::<f64>::new());
    }
}
