//! Rules applied to this checkout.

use xtask::checkout::file_tree;
use xtask::{Tree, Violation};

fn check(rules: fn(&Tree) -> Vec<Violation>) {
    let tree = Tree::read(&file_tree::root()).expect("the checkout is readable");
    let violations = rules(&tree);
    let text: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "{} violations:\n{}", text.len(), text.join("\n"));
}

#[test]
fn is_tidy() {
    check(xtask::tidy);
}

#[test]
fn keeps_its_floors() {
    check(xtask::layers);
}
