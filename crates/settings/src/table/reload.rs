//! Reloads.

use std::time::Duration;

use super::entry::{Category, long, section};
use crate::kind::numbers::Period;

section! { Category::Reload;
    /// How `firebrick reload` replaces the workers.
    Reload:

    /// How long the old template stays after a reload, for --undo
    keep: Duration = Period::ANY, {
        key: "reload.keep",
        flags: &[long("reload-keep", "TIME")],
        default: "30s",
        more: "It takes memory meanwhile. 0 ends it at once, and in development it always ends at once.",
        reloadable: true,
    }
}
