//! Tests of the messages as bytes.
#![forbid(unsafe_code)]

#[cfg(test)]
mod suite {
    mod definitions;
    mod kv_definition;
    mod message_fields;
    mod persistent;
    mod users;
    mod v2_and_admin;
    mod wire_reader;
}
