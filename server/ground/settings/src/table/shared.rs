//! State that several servers share.

use std::time::Duration;

use super::entry::{Category, long};
use super::section::section;
use crate::kind::numbers::Period;
use crate::kind::texts::{RedisUrl, Word};
use crate::kind::wrappers::Maybe;

section! { Category::Shared;
    /// State that several servers share through Redis: rate limits, and the secret of session tickets.
    Shared:

    /// Redis server for shared rate limits and the secret of session tickets
    redis: Option<String> = Maybe(RedisUrl), {
        key: "shared.redis",
        flags: &[long("shared-redis", "URL")],
        env: &["FIREBRICK_SHARED_REDIS"],
        default_shown: Some("none: servers share nothing"),
        more: "redis://HOST:PORT/DB, rediss:// or unix:///PATH. docs/several-servers.md describes the shared state, and how servers \
               work while Redis is down. Certificates have a separate setting, acme.storage.",
        secret: true,
    }
    /// Name of the group of servers that share state in Redis
    group: String = Word, {
        key: "shared.group",
        flags: &[long("shared-group", "NAME")],
        env: &["FIREBRICK_SHARED_GROUP"],
        default: "default",
        more: "Use the same name on all servers of an app, and another name for each app in the same Redis database.",
    }
    /// Maximum time that a request waits for Redis
    timeout: Duration = Period { min: Duration::from_millis(1), max: Duration::from_secs(5) }, {
        key: "shared.timeout",
        flags: &[long("shared-timeout", "TIME")],
        default: "50ms",
        more: "After this time Redis counts as down, and each server admits its share of a limit.",
    }
}
