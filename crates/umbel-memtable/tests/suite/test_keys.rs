//! Keys of realistic shapes, made from a number.

use std::fmt::Write;

use umbel_sim::Random;

/// Shapes of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Sixteen random bytes.
    Random,
    /// Sixteen decimal digits, ascending.
    Ascending,
    /// Sixteen decimal digits, descending.
    Descending,
    /// Paths of files.
    Path,
    /// Addresses of web pages.
    Url,
    /// A category, a dash and a number.
    CategoryId,
    /// Zero to four bytes of few values, so that keys are prefixes of others and end in zeros.
    Tiny,
    /// Keys with a common prefix of a kilobyte, and more bytes.
    Long,
    /// Only four keys, each with thousands of versions.
    Hot,
}

/// Every shape.
pub const SHAPES: [Shape; 9] = [
    Shape::Random,
    Shape::Ascending,
    Shape::Descending,
    Shape::Path,
    Shape::Url,
    Shape::CategoryId,
    Shape::Tiny,
    Shape::Long,
    Shape::Hot,
];

/// Returns key number `n` of this shape; different numbers can give the same key.
pub fn key(shape: Shape, n: u64) -> Vec<u8> {
    let mixed = Random::new(n).next();
    let mut text = String::new();
    let written = match shape {
        Shape::Random => {
            let pair = [mixed.to_be_bytes(), Random::new(mixed).next().to_be_bytes()];
            return pair.concat();
        }
        Shape::Ascending => write!(text, "{n:016}"),
        Shape::Descending => write!(text, "{:016}", 9_999_999_999 - n),
        Shape::Path => {
            let (user, folder) = (mixed % 17, mixed / 17 % 211);
            write!(text, "/home/user{user}/projects/folder-{folder}/src/module_{n}.rs")
        }
        Shape::Url => {
            let (host, section) = (mixed % 5, mixed / 5 % 97);
            write!(text, "https://www.example{host}.org/en/articles/{section}/page-{n}.html")
        }
        Shape::CategoryId => {
            let category =
                ["account", "cart", "customer", "invoice", "order"][(mixed % 5) as usize];
            write!(text, "{category}-{:016x}", Random::new(mixed).next())
        }
        Shape::Tiny => {
            let len = mixed % 5;
            let byte = |i: u64| [0, 1, b'a', 255][(mixed >> (8 + 2 * i) & 3) as usize];
            return (0..len).map(byte).collect();
        }
        Shape::Long => {
            text = "x".repeat(1000);
            write!(text, "{:08}{}", mixed % 5000, "y".repeat(n as usize % 300))
        }
        Shape::Hot => write!(text, "counter-{}", mixed % 4),
    };
    written.expect("writing to a string never fails");
    text.into_bytes()
}
