//! Key shapes for the model test.

use umbel::limits::KEY_BYTES_MAX;
use umbel_sim::Random;

/// Shape of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Random bytes of several lengths.
    Random,
    /// Numbers with leading zeros.
    Decimal,
    /// File paths.
    Path,
    /// Addresses of web pages.
    Url,
    /// A category and a number.
    CategoryId,
    /// The empty key, runs of one byte, keys that are prefixes of each other, the longest keys.
    Adversarial,
}

/// Every shape.
pub const SHAPES: [Shape; 6] =
    [Shape::Random, Shape::Decimal, Shape::Path, Shape::Url, Shape::CategoryId, Shape::Adversarial];

/// A universe of keys.
#[derive(Debug, Clone)]
pub struct Keys {
    shape: Shape,
    count: usize,
}

impl Keys {
    /// `count` keys of one shape.
    pub fn new(shape: Shape, count: usize) -> Keys {
        Keys { shape, count }
    }

    /// Key number `index` of the universe.
    pub fn key(&self, index: usize) -> Vec<u8> {
        let mut random = Random::new(index as u64);
        match self.shape {
            Shape::Random => {
                let len = 3 + random.below_usize(20);
                random.bytes(len)
            }
            Shape::Decimal => format!("{:012}", index * 7).into_bytes(),
            Shape::Path => {
                let folder = ["usr/lib", "usr/share/doc", "etc", "home/ada/notes"];
                let (name, number) = (random.pick(&folder), index / 4);
                format!("/{name}/{:03}/{number}.txt", number % 37).into_bytes()
            }
            Shape::Url => {
                let host = random.pick(&["example.org", "example.com", "a.example.net"]);
                format!("https://{host}/articles/{}?page={}", index / 5, index % 5).into_bytes()
            }
            Shape::CategoryId => {
                let category = random.pick(&["book", "books", "film", "user", "z"]);
                format!("{category}-{index}").into_bytes()
            }
            Shape::Adversarial => adversarial(index, &mut random),
        }
    }

    /// Returns a key of the universe, or occasionally a key near one.
    pub fn any(&self, random: &mut Random) -> Vec<u8> {
        let mut key = self.key(random.below_usize(self.count));
        match random.below_usize(30) {
            0 => key.push(random.pick(&[0, 1, 0x7f, 0xff])),
            1 => {
                key.pop();
            }
            2 => key.truncate(random.below_usize(key.len() + 1)),
            3 => {
                if let Some(last) = key.last_mut() {
                    *last = last.wrapping_add(1);
                }
            }
            _ => {}
        }
        key.truncate(KEY_BYTES_MAX);
        key
    }
}

fn adversarial(index: usize, random: &mut Random) -> Vec<u8> {
    let run = 1 + random.below_usize(12);
    match index {
        0 => Vec::new(),
        1 => vec![0xff; KEY_BYTES_MAX],
        2 => vec![0; KEY_BYTES_MAX],
        3 => [vec![b'k'; KEY_BYTES_MAX - 1], vec![0]].concat(),
        4 => [vec![b'k'; KEY_BYTES_MAX - 1], vec![1]].concat(),
        5 => vec![b'k'; KEY_BYTES_MAX - 1],
        _ => match index % 5 {
            0 => vec![0; run + index / 16],
            1 => vec![0xff; run + index / 16],
            2 => [vec![0xff; run], vec![0; random.below_usize(4)]].concat(),
            3 => b"abcabcabcabcabcabcabcabcabcabcabcabc"[..index % 37].to_vec(),
            _ => [b"abcabc".to_vec(), random.bytes(2), vec![0; run / 4]].concat(),
        },
    }
}
