//! A picture of a filter's fill for a terminal.

/// Characters for the fill of a slice, from empty to full.
const FILL_CHARACTERS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Number of characters in a line.
const COLUMNS: usize = 64;
/// Maximum number of lines.
const ROWS: usize = 8;

/// Draws the share of one bits in each slice of `bytes`: one character for each slice, 64 in a
/// line.
pub fn draw(bytes: &[u8]) -> Vec<String> {
    let slices = bytes.len().min(COLUMNS * ROWS);
    let slice = |number: usize| {
        let (from, to) = (bytes.len() * number / slices, bytes.len() * (number + 1) / slices);
        let ones: u64 = bytes[from..to].iter().map(|byte| u64::from(byte.count_ones())).sum();
        ones as f64 / ((to - from) * 8) as f64
    };
    let signs: Vec<char> = (0..slices).map(|number| fill_character(slice(number))).collect();
    signs.chunks(COLUMNS).map(|line| line.iter().collect()).collect()
}

fn fill_character(share: f64) -> char {
    let steps = (FILL_CHARACTERS.len() - 1) as f64;
    // Only a slice without ones is empty, and only one without zeros is full.
    let step = (share * steps).round().clamp(0.0, steps) as usize;
    let step = if share > 0.0 { step.max(1) } else { 0 };
    FILL_CHARACTERS[if share < 1.0 { step.min(FILL_CHARACTERS.len() - 2) } else { step }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_chart_shows_set_bits() {
        assert_eq!(draw(&[0, 0xff, 0x0f, 1]), [" █▄▁"]);
        assert_eq!(draw(&[]), Vec::<String>::new());
        let lines = draw(&vec![0x55; 100_000]);
        assert_eq!((lines.len(), lines[0].chars().count()), (ROWS, COLUMNS));
        assert!(lines.iter().all(|line| line.chars().all(|sign| sign == '▄')));
    }
}
