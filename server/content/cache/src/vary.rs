//! Selects among the variants of a resource by the fields that Vary names (RFC 9111 section 4.1).
//!
//! Contract: two requests match if the selected fields have the same meaning and the
//! [forwarding](is_forwarding) fields are the same, whatever Vary says. Blanks around commas and the division
//! into lines make no difference. Accept-Language and Accept-Encoding are compared by members and weights, in
//! any order and case.

use crate::summary::{FieldSummary, is_forwarding};
use handler::Fields;
use smallvec::SmallVec;

/// The name of a field in lower case, and its value; `None` if the request did not have it.
pub(crate) type Pair = (Box<[u8]>, Option<Box<[u8]>>);

/// The fields that select a variant, as the request had them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Selection {
    /// Names in lower case, sorted, and the normal forms of their values; `None` for a field that the request
    /// did not have.
    pairs: Box<[Pair]>,
    /// How many of them are [forwarding](is_forwarding) fields that the request had.
    forwarding: usize,
}

/// A response with more names in its Vary is not kept.
const MOST_NAMES: usize = 16;

/// The content of Vary.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Vary {
    /// By these names, in lower case and sorted; empty without a Vary.
    By(Vec<Box<[u8]>>),
    /// By something that no request shows (`*`), or by too many names.
    Anything,
}

impl Vary {
    pub(crate) fn of(response: &Fields) -> Vary {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        for member in response.all("vary").flat_map(|value| value.split(|&byte| byte == b',')) {
            match member.trim_ascii() {
                b"" => {}
                b"*" => return Vary::Anything,
                name => names.push(name.to_ascii_lowercase().into()),
            }
        }
        names.sort();
        names.dedup();
        if names.len() > MOST_NAMES { Vary::Anything } else { Vary::By(names) }
    }

    /// Returns whether the response varies by the name, in lower case.
    pub(crate) fn has(&self, name: &str) -> bool {
        matches!(self, Vary::By(names) if names.iter().any(|known| **known == *name.as_bytes()))
    }
}

impl Selection {
    /// Takes the named fields of a request, and its [forwarding](is_forwarding) fields.
    pub(crate) fn of(names: &[Box<[u8]>], request: &Fields) -> Selection {
        let forwarding = request.iter().map(|(name, _)| name).filter(|name| is_forwarding(name));
        let mut all = names.to_vec();
        all.extend(forwarding.map(|name| name.to_ascii_lowercase().into_boxed_slice()));
        all.sort();
        all.dedup();
        let pair = |name: Box<[u8]>| {
            let value = normal(&name, request).map(Vec::into_boxed_slice);
            (name, value)
        };
        Selection::from_pairs(all.into_iter().map(pair).collect())
    }

    /// Returns whether the response serves a request. `language`: its Content-Language.
    pub(crate) fn matches(&self, request: &Fields, summary: FieldSummary, language: Option<&[u8]>) -> bool {
        let is_wanted = |name: &[u8]| {
            name == b"accept-language"
                && language
                    .is_some_and(|language| wanted_language(request) == Some(language.to_ascii_lowercase()))
        };
        let matches =
            |(name, value): &Pair| normal(name, request).as_deref() == value.as_deref() || is_wanted(name);
        // Most requests and most responses have neither.
        (self.forwarding == 0 && !summary.forwarding || forwarding_fields(request) == self.forwarding)
            && self.pairs.iter().all(matches)
    }

    pub(crate) fn from_pairs(pairs: Vec<Pair>) -> Selection {
        let forwarding = pairs.iter().filter(|(name, value)| value.is_some() && is_forwarding(name)).count();
        Selection { pairs: pairs.into(), forwarding }
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.pairs.iter().map(|(name, value)| (&**name, value.as_deref()))
    }

    /// Returns the number of bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        let of = |(name, value): &Pair| {
            size_of::<Pair>() + name.len() + value.as_ref().map_or(0, |value| value.len())
        };
        self.pairs.iter().map(of).sum()
    }
}

/// Returns the number of different [forwarding](is_forwarding) fields.
fn forwarding_fields(request: &Fields) -> usize {
    let mut names: SmallVec<[&[u8]; 4]> = SmallVec::new();
    for name in request.iter().map(|(name, _)| name).filter(|name| is_forwarding(name)) {
        if !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            names.push(name);
        }
    }
    names.len()
}

/// Returns the language that a request prefers to all others, in lower case. An origin would choose a
/// response in it (RFC 9110 section 12.5.4).
fn wanted_language(request: &Fields) -> Option<Vec<u8>> {
    let mut members: Vec<(u32, Vec<u8>)> = request
        .all("accept-language")
        .flat_map(|value| value.split(|&byte| byte == b','))
        .filter_map(|member| {
            let mut parts = member.split(|&byte| byte == b';');
            let name = parts.next()?.trim_ascii().to_ascii_lowercase();
            let weight = parts.next().map_or(Some(1000), |weight| {
                let number = weight.trim_ascii().to_ascii_lowercase();
                let number = std::str::from_utf8(number.strip_prefix(b"q=")?).ok()?.parse::<f32>().ok()?;
                Some((number * 1000.0) as u32)
            })?;
            (!name.is_empty() && name != b"*").then_some((weight, name))
        })
        .collect();
    members.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    let next = members.get(1).map_or(0, |(weight, _)| *weight);
    members.into_iter().next().filter(|(weight, _)| *weight > next).map(|(_, name)| name)
}

/// Returns the normal form of a field; `None` if the request does not have it.
fn normal(name: &[u8], request: &Fields) -> Option<Vec<u8>> {
    let name = std::str::from_utf8(name).ok()?;
    let mut values = request.all(name).peekable();
    values.peek()?;
    let mut members: SmallVec<[Vec<u8>; 4]> = values
        .flat_map(|value| value.split(|&byte| byte == b','))
        .map(|member| member.trim_ascii().to_vec())
        .filter(|member| !member.is_empty())
        .collect();
    if name == "forwarded" {
        // The address of the client does not change the page.
        members = members
            .iter()
            .flat_map(|member| member.split(|&byte| byte == b';'))
            .map(|pair| pair.trim_ascii().to_ascii_lowercase())
            .filter(|pair| !pair.starts_with(b"for=") && !pair.starts_with(b"by="))
            .collect();
    }
    if matches!(name, "accept-encoding" | "accept-language" | "accept-charset" | "accept") {
        for member in &mut members {
            member.make_ascii_lowercase();
            member.retain(|byte| !byte.is_ascii_whitespace());
            if let Some(rest) = member.strip_suffix(b";q=1") {
                *member = rest.to_vec();
            }
        }
        members.sort();
        members.dedup();
    }
    Some(members.join(&b", "[..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(all: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::default();
        all.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
        fields
    }

    impl Selection {
        fn fits(&self, request: &Fields, language: Option<&[u8]>) -> bool {
            self.matches(request, FieldSummary::of(request), language)
        }
    }

    fn names(value: &str) -> Vec<Box<[u8]>> {
        match Vary::of(&fields(&[("Vary", value)])) {
            Vary::By(names) => names,
            Vary::Anything => panic!("{value} stands for anything"),
        }
    }

    #[test]
    fn names_are_sorted_and_a_star_stands_for_anything() {
        assert_eq!(names("Foo, bar,,FOO"), [Box::from(&b"bar"[..]), Box::from(&b"foo"[..])]);
        for star in ["*", "*, *", ", *", "Foo, *", "*, Foo"] {
            assert_eq!(Vary::of(&fields(&[("Vary", star)])), Vary::Anything, "{star}");
        }
        let many: String = (0..20).map(|i| format!("x{i},")).collect();
        assert_eq!(Vary::of(&fields(&[("Vary", &many)])), Vary::Anything);
    }

    #[test]
    fn values_are_compared_by_meaning() {
        let matches = |name: &str, one: &[&str], other: &[&str]| {
            let of = |values: &[&str]| fields(&values.iter().map(|value| (name, *value)).collect::<Vec<_>>());
            Selection::of(&names(name), &of(one)).fits(&of(other), None)
        };
        assert!(matches("Foo", &["1, 2"], &["1", "2"]) && matches("Foo", &["1,2"], &[" 1 , 2 "]));
        assert!(!matches("Foo", &["1"], &["2"]) && !matches("Foo", &["a"], &["A"]));
        assert!(!matches("Foo", &["1"], &[]) && !matches("Foo", &[], &["1"]) && matches("Foo", &[], &[]));
        assert!(!matches("Foo", &["1, 2"], &["2, 1"]));
        assert!(matches("Accept-Language", &["en, de;q=0.5"], &["DE; q=0.5,EN;q=1"]));
        assert!(!matches("Accept-Language", &["en, de"], &["en"]));
        assert!(matches("Accept-Encoding", &["gzip, br"], &["br,gzip"]));
    }

    #[test]
    fn fields_of_which_an_app_makes_its_links_select_whatever_vary_says() {
        let evil = [("X-Forwarded-Host", "evil.example")];
        let stored = |all: &[(&str, &str)]| Selection::of(&[], &fields(all));
        assert!(!stored(&evil).fits(&fields(&[]), None) && !stored(&[]).fits(&fields(&evil), None));
        assert!(
            stored(&evil).fits(&fields(&evil), None) && stored(&[]).fits(&fields(&[("X-One", "1")]), None)
        );
        assert!(!stored(&evil).fits(&fields(&[("X-Forwarded-Host", "other")]), None));
        assert!(!stored(&evil).fits(&fields(&[("X-Original-URL", "/admin")]), None));
        let forwarded = |value| [("Forwarded", value)];
        let of = |one, other| stored(&forwarded(one)).fits(&fields(&forwarded(other)), None);
        assert!(of("for=1.2.3.4;proto=https", "for=5.6.7.8; Proto=https"));
        assert!(!of("for=1.2.3.4;host=a", "for=1.2.3.4;host=b"));
    }

    #[test]
    fn a_response_in_the_language_that_is_preferred_to_all_others_matches() {
        let stored = Selection::of(&names("Accept-Language"), &fields(&[("Accept-Language", "en, de")]));
        let matches = |wanted: &str| stored.fits(&fields(&[("Accept-Language", wanted)]), Some(b"DE"));
        assert!(matches("fr;q=0.5, de;q=1.0") && matches("de") && matches("*;q=0.1, De"));
        assert!(
            !matches("fr, de")
                && !matches("fr, de;q=0.5")
                && !matches("de;q=0")
                && !matches("de;q=x")
                && !matches("")
        );
        assert!(!stored.fits(&fields(&[("Accept-Language", "de")]), None));
    }

    proptest! {
        #[test]
        fn a_request_matches_itself(value: Vec<u8>, name in "[a-zA-Z-]{1,12}") {
            let mut request = Fields::default();
            request.push(name.as_bytes(), &value);
            prop_assert!(Selection::of(&names(&name), &request).fits(&request, None));
        }
    }
}
