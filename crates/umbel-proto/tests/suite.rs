//! Tests of the messages as bytes.
#![forbid(unsafe_code)]

#[cfg(test)]
mod suite {
    mod definition;
    mod fields;
    mod persistent;
    mod second;
    mod users;
    mod wire;
}
