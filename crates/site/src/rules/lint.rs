//! Rules that can do nothing: what `firebrick check` says beyond [`super::Parsed::notes`].

use super::{Note, Rules, Tree};

/// What in `rules` can do nothing, given the site's files. [`super::Parsed::notes`] are not repeated.
pub fn lint(rules: &Rules, tree: &dyn Tree) -> Vec<Note> {
    let _ = (rules, tree);
    unimplemented!()
}
