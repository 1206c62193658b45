//! Gives `explain` and `check` access to a site's files on disk.

use crate::SiteConfig;
use crate::files::path::has_hidden_name;
use crate::files::root::Root;
use crate::rules::{FileKind, FileTree};
use std::time::Instant;

/// The files below a site's root.
pub struct Disk {
    root: Root,
    private: Vec<String>,
}

impl Disk {
    pub fn new(config: &SiteConfig) -> Disk {
        let root = Root::new(config.root.clone());
        root.refresh(Instant::now());
        Disk { root, private: config.private.clone() }
    }
}

impl FileTree for Disk {
    fn kind(&self, path: &str) -> FileKind {
        let below = path.trim_matches('/');
        if has_hidden_name(below) || self.private.iter().any(|name| name == below) {
            return FileKind::Hidden;
        }
        match self.root.open(if below.is_empty() { "." } else { below }) {
            Ok((_, metadata)) if metadata.is_file() => FileKind::File,
            Ok((_, metadata)) if metadata.is_dir() => FileKind::Directory,
            _ => FileKind::Missing,
        }
    }
}
