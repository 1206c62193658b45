//! A profile as a page: one file that loads nothing, with a flame graph to search, filter and zoom, by mouse and by keyboard.

use crate::count::Sums;
use crate::summary::{headline, notes, render as render_text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use profile::Profile;
use sha2::{Digest, Sha256};
use std::path::Path;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// Returns the page. With `before`, the graph shows what has changed since.
pub(crate) fn render(profile: &Profile, before: Option<&Profile>) -> String {
    let sums = Sums::of(profile);
    let app = Path::new(&profile.dir).file_name().map(|name| name.to_string_lossy().into_owned());
    let title = format!("Profile of {}", app.unwrap_or_else(|| profile.dir.clone()));
    let subtitle =
        format!("{}: {}", profile.started_at, headline(profile, &sums).lines().next().unwrap_or_default());
    let notes: String = notes(profile, &sums)
        .iter()
        .map(|note| format!("<p class=\"notes\">{}</p>\n", escaped(note)))
        .collect();
    let before_data = before.map_or_else(String::new, |before| {
        format!("<script type=\"application/json\" id=\"before\">{}</script>", data(before))
    });
    let legend = match before {
        None => String::new(),
        Some(before) => format!(
            "Compared with {}: red takes a larger share than before, blue a smaller one. ",
            escaped(&before.started_at)
        ),
    };
    let text = escaped(&render_text(profile, before));
    let foot = escaped(&format!("firebrick profile, {} clock, {}", profile.clock, profile.dir));
    fill(
        PAGE,
        &[
            ("hash", &format!("sha256-{}", STANDARD.encode(Sha256::digest(SCRIPT.as_bytes())))),
            ("title", &escaped(&title)),
            ("subtitle", &escaped(&subtitle)),
            ("notes", &notes),
            ("style", STYLE),
            ("text", &text),
            ("legend", &legend),
            ("foot", &foot),
            ("profile", &data(profile)),
            ("before", &before_data),
            ("script", SCRIPT),
        ],
    )
}

/// Fills in the values, whose own texts are not looked at.
fn fill(page: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(page.len());
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        out.push_str(before);
        out.push_str(values.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value));
        rest = after;
    }
    out + rest
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns the profile as JSON that cannot end its element.
fn data(profile: &Profile) -> String {
    serde_json::to_string(profile).unwrap_or_default().replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{ProfileSample, Request, Stack, StackFrame, State};

    #[test]
    fn names_from_the_app_stay_text() {
        let evil = "</script><script>alert(1)</script>{{style}}";
        let profile = Profile {
            dir: format!("/srv/{}", evil.replace('/', "")),
            frames: vec![StackFrame { name: evil.to_owned(), file: Some(evil.to_owned()) }],
            stacks: vec![Stack { parent: None, frame: 0, line: 1 }],
            requests: vec![Request { path: evil.to_owned(), ..Request::default() }],
            samples: vec![ProfileSample { stack: Some(0), state: State::Runs, request: Some(0), us: 5 }],
            ..Profile::default()
        };
        let page = render(&profile, Some(&profile));
        assert_eq!(page.matches("<script").count(), 3);
        assert_eq!(page.matches("</script>").count(), 3);
        assert!(!page.contains("alert(1)<") && page.contains("id=\"before\""));
    }
}
