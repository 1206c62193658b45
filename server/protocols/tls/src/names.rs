//! Finds the certificate for a name. Pure.
//!
//! Contract:
//! 1. An exact name takes precedence over a wildcard. A wildcard matches exactly one label (RFC 9525 section 6.3).
//! 2. Of several certificates for a name, all are returned in the order in which they were added.
//! 3. Case and a final dot are ignored.

use std::borrow::Cow;
use std::collections::HashMap;

/// Values by name.
#[derive(Clone, Debug)]
pub(crate) struct Names<T> {
    by_name: HashMap<Box<str>, Vec<T>>,
}

impl<T> Default for Names<T> {
    fn default() -> Names<T> {
        Names { by_name: HashMap::new() }
    }
}

/// Returns the name in the form that is compared.
pub(crate) fn normal(name: &str) -> Cow<'_, str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

impl<T> Names<T> {
    /// Adds a value for `name`, which may begin with `*.`.
    pub(crate) fn add(&mut self, name: &str, value: T) {
        self.by_name.entry(normal(name).into()).or_default().push(value);
    }

    /// Returns all values for `name`, best first.
    pub(crate) fn find(&self, name: &str) -> impl Iterator<Item = &T> + Clone {
        let name = normal(name);
        let exact = self.by_name.get(&*name);
        let wildcard = name.split_once('.').filter(|(first, rest)| !first.is_empty() && !rest.is_empty());
        let wildcard = wildcard.and_then(|(_, rest)| self.by_name.get(format!("*.{rest}").as_str()));
        exact.into_iter().chain(wildcard).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(all: &[&'static str]) -> Names<&'static str> {
        let mut names = Names::default();
        all.iter().for_each(|name| names.add(name, *name));
        names
    }

    fn first(names: &Names<&'static str>, name: &str) -> Option<&'static str> {
        names.find(name).next().copied()
    }

    #[test]
    fn exact_before_wildcard_and_one_label_only() {
        let names = names(&["*.a.test", "www.a.test", "a.test", "::1", "*.test"]);
        assert_eq!(first(&names, "www.a.test"), Some("www.a.test"));
        assert_eq!(first(&names, "WWW.A.Test."), Some("www.a.test"));
        assert_eq!(first(&names, "api.a.test"), Some("*.a.test"));
        assert_eq!(first(&names, "a.test"), Some("a.test"));
        assert_eq!(first(&names, "x.api.a.test"), None);
        assert_eq!(first(&names, "b.test"), Some("*.test"));
        assert_eq!(first(&names, "::1"), Some("::1"));
        assert_eq!(first(&names, ".a.test"), None);
        assert_eq!(first(&names, ""), None);
    }

    #[test]
    fn several_for_one_name_keep_their_order() {
        let mut names = Names::default();
        [1, 2].iter().for_each(|value| names.add("a.test", *value));
        names.add("*.test", 3);
        assert_eq!(names.find("a.test").copied().collect::<Vec<_>>(), [1, 2, 3]);
    }

    /// Applies the rules without an index.
    fn slowly<'a>(all: &[&'a str], name: &str) -> Option<&'a str> {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let covers = |pattern: &&&str| {
            pattern.strip_prefix("*.").is_some_and(|rest| {
                let (first, behind) = name.split_once('.').unwrap_or(("", ""));
                !first.is_empty() && behind == rest
            })
        };
        all.iter().find(|pattern| ***pattern == name).or_else(|| all.iter().find(covers)).copied()
    }

    proptest! {
        #[test]
        fn as_the_rules_say(name in "([ab*]\\.){0,3}[ab*A]?\\.?") {
            const ALL: [&str; 7] = ["a.b", "*.b", "*.a.b", "b", "a.a.b", "*.b.a", "b.a"];
            prop_assert_eq!(first(&names(&ALL), &name), slowly(&ALL, &name));
        }
    }
}
