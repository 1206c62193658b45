//! A site's files as its rules see them, for explaining and checking without a server.

use crate::Plan;
use crate::files::path::has_hidden_name;
use crate::files::root::Root;
use crate::rules::{Kind, Tree};
use std::time::Instant;

/// The files below a site's root.
pub struct Disk {
    root: Root,
    private: Vec<String>,
}

impl Disk {
    /// The files of the site that `plan` makes.
    pub fn new(plan: &Plan) -> Disk {
        let root = Root::new(plan.root.clone());
        root.look(Instant::now());
        Disk { root, private: plan.private.clone() }
    }
}

impl Tree for Disk {
    fn kind(&self, path: &str) -> Kind {
        let below = path.trim_matches('/');
        if has_hidden_name(below) || self.private.iter().any(|name| name == below) {
            return Kind::Hidden;
        }
        match self.root.open(if below.is_empty() { "." } else { below }) {
            Ok((_, metadata)) if metadata.is_file() => Kind::File,
            Ok((_, metadata)) if metadata.is_dir() => Kind::Directory,
            _ => Kind::Missing,
        }
    }
}
