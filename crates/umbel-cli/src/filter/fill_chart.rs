//! A picture of a filter's fill for a terminal.

/// Signs from empty to full.
const SIGNS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Signs in a line.
const COLUMNS: usize = 64;
/// The most lines.
const ROWS: usize = 8;

/// The share of ones in each slice of `bytes`, a sign for each slice, in lines of 64.
pub fn of(bytes: &[u8]) -> Vec<String> {
    let slices = bytes.len().min(COLUMNS * ROWS);
    let slice = |number: usize| {
        let (from, to) = (bytes.len() * number / slices, bytes.len() * (number + 1) / slices);
        let ones: u64 = bytes[from..to].iter().map(|byte| u64::from(byte.count_ones())).sum();
        ones as f64 / ((to - from) * 8) as f64
    };
    let signs: Vec<char> = (0..slices).map(|number| sign(slice(number))).collect();
    signs.chunks(COLUMNS).map(|line| line.iter().collect()).collect()
}

fn sign(share: f64) -> char {
    let steps = (SIGNS.len() - 1) as f64;
    // Only a slice without ones is empty, and only one without zeros is full.
    let step = (share * steps).round().clamp(0.0, steps) as usize;
    let step = if share > 0.0 { step.max(1) } else { 0 };
    SIGNS[if share < 1.0 { step.min(SIGNS.len() - 2) } else { step }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_show_their_ones() {
        assert_eq!(of(&[0, 0xff, 0x0f, 1]), [" █▄▁"]);
        assert_eq!(of(&[]), Vec::<String>::new());
        let lines = of(&vec![0x55; 100_000]);
        assert_eq!((lines.len(), lines[0].chars().count()), (ROWS, COLUMNS));
        assert!(lines.iter().all(|line| line.chars().all(|sign| sign == '▄')));
    }
}
