//! Golden files in `tests/golden`: every version reads them and writes the
//! same bytes. `UMBEL_GOLDEN=write` writes them again.

use std::path::Path;

/// The bytes of the golden file `name`, which `built` must be equal to.
pub fn check(name: &str, built: &[u8]) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UMBEL_GOLDEN").is_some_and(|what| what == "write") {
        std::fs::write(&path, built).expect("the folder is there");
    }
    let kept = std::fs::read(&path).expect("every golden file is committed");
    assert!(kept == built, "{name} is not written as it was");
    kept
}

/// The bytes that pages write as hexadecimal digits.
pub fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.bytes().filter_map(|digit| char::from(digit).to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
