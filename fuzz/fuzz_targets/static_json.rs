//! static.json: no text makes the reader panic or exhaust the stack, every refusal can be shown, and what was accepted answers every
//! path. The first line of the input is the path, the rest the file. Run with `make fuzz FUZZ=static_json`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use site::rules::{FileKind, FileTree, RequestView, Rules, RuleStep, explain, lint};

/// Files by the length of their path: enough for every step to be there sometimes.
struct Lengths;

impl FileTree for Lengths {
    fn kind(&self, path: &str) -> FileKind {
        [FileKind::Missing, FileKind::File, FileKind::Directory][path.len() % 3]
    }
}

fn variable(name: &str) -> Option<String> {
    (name.len() % 2 == 0).then(|| format!("{name}$uri"))
}

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let (path, json) = text.split_once('\n').unwrap_or(("", &text));
    let rules = match Rules::parse("static.json", json, &variable) {
        Ok(parsed) => {
            parsed.notes.iter().for_each(|note| drop(note.to_string()));
            parsed.rules
        }
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            return mistakes.iter().for_each(|mistake| assert_eq!(mistake.to_string().lines().count(), 3));
        }
    };
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty() && !segment.contains("..") && *segment != ".").collect();
    let path = format!("/{}", segments.join("/"));
    let fields = handler::Fields::default();
    let request = RequestView {
        path: &path,
        raw_path: path.as_bytes(),
        query: path.as_bytes(),
        host: path.as_bytes(),
        https: path.len() % 2 == 0,
        forwarded_proto: Some(path.as_bytes()),
        remote: "",
        fields: &fields,
    };
    let visible = |location: &[u8]| assert!(location.iter().all(u8::is_ascii_graphic), "{location:?}");
    if let Some(redirect) = rules.gate(&request) {
        visible(&redirect.location);
    }
    let steps = rules.steps(&path);
    match steps.last() {
        Some(RuleStep::Redirect { id, captures, .. }) => visible(&rules.redirect(*id, captures, &request).location),
        Some(RuleStep::Proxy { id, .. }) => {
            assert!(rules.upstream_target(*id, &request).starts_with(b"/"));
            rules.location_back(*id, path.as_bytes());
        }
        Some(RuleStep::Missing { .. }) => {}
        last => panic!("{last:?}"),
    }
    rules.headers(&path);
    drop(explain(&rules, &request, &Lengths).to_string());
    lint(&rules, &Lengths);
});
