//! Checks that no modules of a crate use each other in a circle.
//!
//! 1. At each level of a crate's tree of modules, the siblings of one parent use each other in one direction
//!    only. The parts that a module and
//!    its descendants name through `crate::`, `super::` and `self::` counts as used by the module.
//! 2. A parent that names its children is no arrow. A name that the parent re-exports (`pub use child::X`) is
//!    an arrow to that child.
//! 3. Tests are left out: items under `#[cfg(test)]` and files named `tests.rs` or `*_tests.rs`.
//!
//! The text is read, not compiled. Left out are therefore: names that a parent defines itself, or that its
//! glob re-exports bring, and calls of methods, which name no module.

mod source;

use crate::workspace::rust_files;
use source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The path of a module in its crate, without `crate`.
type Module = Vec<String>;

/// The modules of a crate.
#[derive(Default)]
struct Tree(BTreeMap<Module, Vec<(String, Source)>>);

/// For each parent: the siblings that use each other, with a file and a name in it.
type Arrows = BTreeMap<Module, BTreeMap<(String, String), (String, String)>>;

impl Tree {
    /// Reads the files of the folder `src`.
    fn read(src: &Path) -> Self {
        let mut tree = Self::default();
        for path in rust_files(src) {
            let text = std::fs::read_to_string(&path).expect("a source file");
            tree.add(&path.strip_prefix(src).expect("a file below src").to_string_lossy(), &text);
        }
        tree
    }

    /// Adds a file, named as below `src`.
    fn add(&mut self, file: &str, text: &str) {
        let mut module: Module = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if module.iter().any(|name| name == "tests" || name.ends_with("_tests")) {
            return;
        }
        if module.last().is_some_and(|name| ["mod", "lib", "main"].contains(&name.as_str())) {
            module.pop();
        }
        self.0.entry(module).or_default().push((file.to_owned(), Source::read(text)));
    }

    /// Returns the arrows between siblings.
    fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (module, files) in &self.0 {
            for (file, source) in files.iter().filter(|_| !self.is_for_tests(module)) {
                for (inner, name) in &source.names {
                    let from: Module = [&module[..], &inner[..]].concat();
                    let Some(to) = absolute(&from, name).map(|to| self.module_of(&to, 8)) else { continue };
                    let common = module.iter().zip(&to).take_while(|(a, b)| a == b).count();
                    if common < module.len() && common < to.len() {
                        let (parent, siblings) =
                            (&module[..common], (module[common].clone(), to[common].clone()));
                        let at = (file.clone(), name.join("::"));
                        arrows.entry(parent.to_vec()).or_default().entry(siblings).or_insert(at);
                    }
                }
            }
        }
        arrows
    }

    /// Tells whether the module or a parent of it is declared under `#[cfg(test)]`.
    fn is_for_tests(&self, module: &[String]) -> bool {
        (1..=module.len()).any(|length| {
            let parent = self.0.get(&module[..length - 1]);
            parent.is_some_and(|files| {
                files.iter().any(|file| file.1.test_modules.contains(&module[length - 1]))
            })
        })
    }

    /// Returns the module that defines a name, through at most this many re-exports.
    fn module_of(&self, name: &[String], hops: usize) -> Module {
        let mut length = 0;
        while length < name.len() && self.0.contains_key(&name[..=length]) {
            length += 1;
        }
        let module = &name[..length];
        let exports = self.0.get(module).into_iter().flatten().flat_map(|file| &file.1.exports);
        let mut exports = exports.filter(|(export, _)| name.get(length) == Some(export));
        let export = exports.find_map(|(_, target)| {
            let child: Module = [module, &target[..1]].concat();
            if self.0.contains_key(&child) {
                Some([module, &target[..]].concat())
            } else {
                absolute(module, target)
            }
        });
        match export {
            Some(target) if hops > 0 => self.module_of(&target, hops - 1),
            _ => module.to_vec(),
        }
    }
}

/// Returns the path from the crate's root for one that begins with `crate`, `super` or `self` in the module `from`.
fn absolute(from: &[String], name: &[String]) -> Option<Module> {
    let supers = name.iter().take_while(|part| *part == "super").count();
    match name[0].as_str() {
        "crate" => Some(name[1..].to_vec()),
        "self" => absolute(from, &name[1..]).or_else(|| Some([from, &name[1..]].concat())),
        "super" => Some([&from[..from.len().checked_sub(supers)?], &name[supers..]].concat()),
        _ => None,
    }
}

/// Returns the circles between siblings: each set of modules that reach one another.
fn circles<'a>(arrows: impl Iterator<Item = &'a (String, String)> + Clone) -> BTreeSet<BTreeSet<&'a str>> {
    let reached = |from: &'a str| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(module) = open.pop() {
            let next = arrows.clone().filter(|arrow| arrow.0 == module).map(|arrow| arrow.1.as_str());
            open.extend(next.filter(|next| reached.insert(*next)));
        }
        reached
    };
    let modules: BTreeSet<&str> = arrows.clone().map(|arrow| arrow.0.as_str()).collect();
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        modules.iter().map(|module| (*module, reached(module))).collect();
    let circle = |module: &'a str| {
        let there_and_back = |other: &&&str| reached.get(**other).is_some_and(|back| back.contains(module));
        reached[module].iter().filter(there_and_back).copied().collect::<BTreeSet<_>>()
    };
    modules.into_iter().map(circle).filter(|circle| circle.len() > 1).collect()
}

/// Returns the circles of a crate, each as its parent and its modules, with its arrows.
fn found(name: &str, tree: &Tree) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for (parent, arrows) in tree.arrows() {
        for circle in circles(arrows.keys()) {
            let place = [vec![name.to_owned()], parent.clone()].concat().join("::");
            let inside =
                arrows.iter().filter(|(arrow, _)| circle.contains(&*arrow.0) && circle.contains(&*arrow.1));
            let lines =
                inside.map(|((from, to), (file, name))| format!("    {from} ► {to}: {file} names {name}"));
            let modules = circle.iter().copied().collect::<Vec<_>>().join(" ");
            found.insert((place, modules), lines.collect::<Vec<_>>().join("\n"));
        }
    }
    found
}

#[test]
fn modules_of_a_crate_use_each_other_in_one_direction() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = BTreeMap::new();
    for (name, folder) in crate::workspace::crates(&root).1 {
        all.append(&mut found(&name, &Tree::read(&root.join(folder).join("src"))));
    }
    let faults: Vec<_> = all
        .iter()
        .map(|((place, modules), arrows)| format!("{place}: {modules} use each other in a circle:\n{arrows}"))
        .collect();
    assert!(
        faults.is_empty(),
        "Move what two modules share to the lower one, or to a module of its own:\n- {}\n",
        faults.join("\n- ")
    );
}

/// Returns the circles of a crate of these files.
fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    let mut tree = Tree::default();
    for (file, text) in files {
        tree.add(file, text);
    }
    found("it", &tree)
        .into_iter()
        .map(|((place, modules), arrows)| format!("{place}: {modules}\n{arrows}"))
        .collect()
}

#[test]
fn siblings_that_name_each_other_are_a_circle() {
    let (a, b) = (("a.rs", "use crate::b::B;"), ("b/mod.rs", "fn f() { super::a::f() }"));
    assert_eq!(
        circles_of(&[("lib.rs", "mod a; mod b;"), a, b]),
        ["it: a b\n    a ► b: a.rs names crate::b::B\n    b ► a: b/mod.rs names super::a::f"]
    );
    assert!(circles_of(&[("lib.rs", "mod a; mod b;"), a, ("b.rs", "")]).is_empty());
}

#[test]
fn a_circle_of_three_is_one_circle() {
    let files =
        [("a.rs", "use crate::b;"), ("b.rs", "use crate::c;"), ("c.rs", "use crate::{a, d};"), ("d.rs", "")];
    let circles = circles_of(&files);
    assert_eq!(circles.len(), 1, "{circles:?}");
    assert!(circles[0].starts_with("it: a b c\n"), "{circles:?}");
}

#[test]
fn descendants_count_for_the_module_above_them() {
    let circles = circles_of(&[
        ("a/deep/x.rs", "use super::super::super::b;"),
        ("b.rs", "use crate::a;"),
        ("a.rs", ""),
    ]);
    assert_eq!(circles.len(), 1, "{circles:?}");
    let circles = circles_of(&[("a.rs", ""), ("a/x.rs", "use super::y;"), ("a/y.rs", "use crate::a::x;")]);
    assert!(circles[0].starts_with("it::a: x y\n"), "{circles:?}");
}

#[test]
fn a_name_that_the_parent_re_exports_is_an_arrow_to_its_module() {
    let a = ("a.rs", "use super::B;");
    let b = ("b.rs", "use crate::a;");
    assert_eq!(circles_of(&[("lib.rs", "pub(crate) use b::{C, D as B};"), a, b]).len(), 1);
    assert_eq!(circles_of(&[("lib.rs", "pub use crate::b::B;"), a, b]).len(), 1);
    assert!(circles_of(&[("lib.rs", "struct B; use b::Other;"), a, b]).is_empty(), "the parent's own name");
}

#[test]
fn parents_tests_and_comments_are_no_arrows() {
    let b = ("b.rs", "use crate::a;");
    assert!(circles_of(&[("a.rs", "#[cfg(test)] mod tests { fn f() { crate::b::f(); } }"), b]).is_empty());
    assert!(circles_of(&[("a.rs", "#[cfg(test)]\nuse crate::{b, c};\nfn f() {}"), b]).is_empty());
    assert!(circles_of(&[("a.rs", ""), ("a/tests.rs", "use crate::b;"), b]).is_empty());
    assert!(
        circles_of(&[("a.rs", "#[cfg(test)] mod sample;"), ("a/sample.rs", "use crate::b;"), b]).is_empty()
    );
    assert!(
        circles_of(&[("a.rs", "// crate::b\n/* crate::b */ const S: &str = \"crate::b\";"), b]).is_empty()
    );
    assert!(circles_of(&[("a.rs", "use x::Y; mod c;"), ("a/c.rs", "use super::Y;")]).is_empty());
    assert_eq!(circles_of(&[("a.rs", "#[cfg(test)] mod tests { } fn f() { crate::b::f() }"), b]).len(), 1);
}
