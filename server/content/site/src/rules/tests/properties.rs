//! Tests properties for all texts and all paths.

use super::*;
use crate::rules::{RuleStep, lint};
use proptest::prelude::*;

/// Generates texts that are often nearly valid.
fn jsonish() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        Just("root"),
        Just("clean_urls"),
        Just("https_only"),
        Just("canonical_host"),
        Just("error_page"),
        Just("logging"),
        Just("routes"),
        Just("redirects"),
        Just("proxies"),
        Just("headers"),
        Just("basic_auth"),
        Just("port"),
        Just("compat"),
        Just("trailing_slash"),
        Just("index"),
        Just("header_rules"),
        Just("/**"),
        Just("/a/*"),
        Just("/b"),
        Just("url"),
        Just("status"),
        Just("origin"),
        Just("health"),
    ];
    let leaf = prop_oneof![
        Just("true".to_owned()),
        Just("null".to_owned()),
        Just("302".to_owned()),
        Just("\"heroku\"".to_owned()),
        Just("\"/$1${X}\"".to_owned()),
        Just("\"http://h/b\"".to_owned()),
        Just("\"always\"".to_owned()),
        "\"[a-z/*$.\\{\\}:é]{0,8}\"",
    ];
    let value = leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec((key.clone(), inner.clone()), 0..5).prop_map(|members| format!(
                "{{{}}}",
                members.iter().map(|(k, v)| format!("{k:?}:{v}")).collect::<Vec<_>>().join(",\r\n")
            )),
            prop::collection::vec(inner, 0..4).prop_map(|list| format!("[{}]", list.join(","))),
        ]
    });
    prop_oneof![
        value.clone(),
        (value, 0usize..60, "\\PC{0,2}").prop_map(|(text, at, noise)| {
            let at = (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            format!("{}{noise}{}", &text[..at], &text[at..])
        })
    ]
}

fn routes(globs: &[String]) -> String {
    let entries: Vec<String> =
        globs.iter().enumerate().map(|(index, glob)| format!("{glob:?}: \"t{index}\"")).collect();
    format!("{{\"routes\": {{{}}}}}", entries.join(","))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_text_is_parsed_or_refused_with_positions(text in jsonish()) {
        match Rules::parse("s", &text, &|_| Some("v".to_owned())) {
            Ok(parsed) => {
                let site = Site { parsed, files: vec!["/index.html".into(), "/a/b".into()] };
                lint(site.rules(), &site);
                for path in ["/", "/a", "/a/", "/b", "/x.html"] {
                    let fields = Fields::default();
                    prop_assert!(!explain(site.rules(), &request(path, &fields), &site).to_string().is_empty());
                }
            }
            Err(mistakes) => {
                prop_assert!(!mistakes.is_empty());
                prop_assert!(mistakes.iter().all(|mistake| mistake.line().is_some() && mistake.to_string().lines().count() == 3));
            }
        }
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Rules::parse("s", &String::from_utf8_lossy(&bytes), &|_| None);
    }

    #[test]
    fn the_last_step_always_applies(
        clean in any::<bool>(), slash in "keep|always|never", glob in "/(\\*\\*?|[ab/.]){0,4}", path in "/([ab]{1,2}(\\.html)?/?){0,3}",
    ) {
        let path = path.replace("//", "/");
        let json = format!(r#"{{"clean_urls": {clean}, "trailing_slash": "{slash}", "routes": {{"{glob}": "t.html"}}, "redirects": {{"{glob}": {{"url": "/"}}}}}}"#);
        let site = Site::new(&json, "");
        let steps = site.rules().steps(&path);
        for (index, step) in steps.iter().enumerate() {
            let last = matches!(step, RuleStep::Proxy { .. } | RuleStep::Redirect { .. } | RuleStep::Missing { .. });
            prop_assert_eq!(last, index + 1 == steps.len(), "{:?}", steps);
            if let RuleStep::File { path, .. } | RuleStep::Directory { path, .. } | RuleStep::Target { path, .. } = step {
                prop_assert!(path.starts_with('/') && !path.contains("//") && (path == "/" || !path.ends_with('/')), "{path}");
            }
        }
        prop_assert!(!steps.is_empty());
    }

    #[test]
    fn the_first_route_in_the_file_wins(globs in prop::collection::hash_set("/(\\*\\*?|[ab/]){0,4}", 1..6), path in "/[ab/]{0,5}") {
        let globs: Vec<String> = globs.into_iter().collect();
        let site = Site::new(&routes(&globs), "");
        let first = globs.iter().position(|glob| crate::rules::glob::Glob::new(glob).matches(&path));
        let target = site.rules().steps(&path).into_iter().find_map(|step| match step {
            RuleStep::Target { path, .. } => Some(path),
            _ => None,
        });
        prop_assert_eq!(target, first.map(|index| format!("/t{index}")));
    }

    // The origin gets exactly the part below the prefix, and never a dot segment.
    #[test]
    fn targets_contain_no_dot_segments(raw in "/api(/([a-c.]{0,3}|%2[eE]|%2e%2E)){0,6}") {
        let site = Site::new(r#"{"proxies": {"/api": {"origin": "http://h/base"}}}"#, "");
        let fields = Fields::default();
        let mut request = request("/api", &fields);
        request.raw_path = raw.as_bytes();
        let target = String::from_utf8(site.rules().upstream_target(0, &request)).unwrap();
        prop_assert!(target.starts_with("/base"));
        prop_assert!(target.to_lowercase().replace("%2e", ".").split('/').all(|segment| segment != "." && segment != ".."), "{target}");
    }
}
