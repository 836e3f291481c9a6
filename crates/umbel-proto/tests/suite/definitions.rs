//! Checks that the definitions have the services of the protocol, and comments.

use std::collections::BTreeSet;

use prost::Message;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet};
use umbel_proto::{
    DESCRIPTORS, gossip, kv, monitoring, operations, persistent, projections, server_features,
    streams, users, v2,
};

/// The project's definition files, without the files that they import from protocol buffers.
fn files() -> Vec<FileDescriptorProto> {
    let set = FileDescriptorSet::decode(DESCRIPTORS).unwrap();
    set.file.into_iter().filter(|file| file.package() != "google.protobuf").collect()
}

#[test]
fn the_services_have_the_names_of_the_paths() {
    let files = files();
    let defined: BTreeSet<String> = files
        .iter()
        .flat_map(|file| file.service.iter().map(|s| format!("{}.{}", file.package(), s.name())))
        .collect();
    let served = [
        gossip::SERVICE,
        kv::SERVICE,
        monitoring::SERVICE,
        operations::SERVICE,
        persistent::SERVICE,
        projections::SERVICE,
        server_features::SERVICE,
        streams::SERVICE,
        users::SERVICE,
        v2::streams::SERVICE,
    ];
    assert_eq!(defined, served.map(str::to_string).into());
}

#[test]
fn an_import_comes_before_its_importer() {
    let mut defined = BTreeSet::new();
    for file in FileDescriptorSet::decode(DESCRIPTORS).unwrap().file {
        for import in &file.dependency {
            assert!(defined.contains(import), "{} imports {import}", file.name());
        }
        defined.insert(file.name().to_string());
    }
}

/// Paths of all definitions in a file, as `google.protobuf.SourceCodeInfo` writes them.
#[derive(Default)]
struct Paths(Vec<(Vec<i32>, String)>);

impl Paths {
    fn of(file: &FileDescriptorProto) -> Paths {
        let mut paths = Paths::default();
        for (index, message) in (0..).zip(&file.message_type) {
            paths.add_message(&[4, index], message);
        }
        for (index, values) in (0..).zip(&file.enum_type) {
            paths.add_enum(&[5, index], values);
        }
        for (index, service) in (0..).zip(&file.service) {
            paths.add(&[], [6, index], service.name());
            for (method_index, method) in (0..).zip(&service.method) {
                paths.add(&[6, index], [2, method_index], method.name());
            }
        }
        paths
    }

    fn add(&mut self, parent: &[i32], last: [i32; 2], name: &str) {
        self.0.push(([parent, &last].concat(), name.to_string()));
    }

    fn add_message(&mut self, path: &[i32], message: &DescriptorProto) {
        if message.options.as_ref().is_some_and(|options| options.map_entry()) {
            return;
        }
        self.0.push((path.to_vec(), message.name().to_string()));
        for (index, field) in (0..).zip(&message.field) {
            self.add(path, [2, index], field.name());
        }
        for (index, nested) in (0..).zip(&message.nested_type) {
            self.add_message(&[path, &[3, index]].concat(), nested);
        }
        for (index, nested) in (0..).zip(&message.enum_type) {
            self.add_enum(&[path, &[4, index]].concat(), nested);
        }
        // A field that is `optional` has a oneof of its own, which is in no file.
        for (index, oneof) in (0..).zip(&message.oneof_decl) {
            if oneof.name().starts_with('_') {
                continue;
            }
            self.add(path, [8, index], oneof.name());
        }
    }

    fn add_enum(&mut self, path: &[i32], values: &EnumDescriptorProto) {
        self.0.push((path.to_vec(), values.name().to_string()));
        for (index, value) in (0..).zip(&values.value) {
            self.add(path, [2, index], value.name());
        }
    }
}

#[test]
fn every_definition_has_a_comment() {
    for file in files() {
        let locations = &file.source_code_info.as_ref().unwrap().location;
        for (path, name) in Paths::of(&file).0 {
            let location = locations.iter().find(|location| location.path == path).unwrap();
            let comment = location.leading_comments().trim();
            assert!(!comment.is_empty(), "{name} in {} has no comment", file.name());
            let trailing = location.trailing_comments();
            assert!(trailing.is_empty(), "{name} in {}: {trailing} follows it", file.name());
        }
    }
}
