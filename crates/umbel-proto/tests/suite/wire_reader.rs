//! Reads the fields of an encoded message without its type, and compares encodings with golden
//! ones.

use std::fmt::Debug;

use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};

/// Field numbers of an encoded message, each once, in the order of their bytes.
pub fn numbers(mut bytes: &[u8]) -> Vec<u32> {
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        let (number, wire_type) = decode_key(&mut bytes).expect("a key");
        skip_field(wire_type, number, &mut bytes, DecodeContext::default()).expect("a value");
        if numbers.last() != Some(&number) {
            numbers.push(number);
        }
    }
    numbers
}

/// Wire type of the first field of an encoded message.
pub fn first_wire_type(mut bytes: &[u8]) -> WireType {
    decode_key(&mut bytes).expect("a key").1
}

/// Types of the messages in these tests and their encodings, in hexadecimal. The encodings never
/// change, since clients and servers of other versions exchange these bytes.
const GOLDEN: &str = include_str!("golden_encodings.txt");

/// Checks that an encoding is a golden one of its message type.
pub fn check_golden<M>(bytes: &[u8]) {
    let name = std::any::type_name::<M>().rsplit("::").next().unwrap_or_default();
    let encoding: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let line = format!("{name} {encoding}");
    let is_golden = encoding.is_empty() || GOLDEN.lines().any(|golden| golden == line);
    assert!(is_golden, "tests/suite/golden_encodings.txt does not have {line}");
}

/// Checks that a message is unchanged after encoding and decoding, has these field numbers, and has
/// golden bytes.
pub fn check<M: Message + Default + PartialEq + Debug>(message: M, expected: &[u32]) {
    let bytes = message.encode_to_vec();
    assert_eq!(M::decode(&bytes[..]).as_ref(), Ok(&message));
    assert_eq!(numbers(&bytes), expected, "{message:?}");
    assert_eq!(bytes.len(), message.encoded_len());
    check_golden::<M>(&bytes);
}
