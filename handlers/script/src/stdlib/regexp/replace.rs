//! The replacement text of `sub` and `gsub`: `\1`, `\k<name>`, `\0`, `\&`, `` \` ``, `\'`, `\\`.

use super::Fault;
use fancy_regex::Captures;

enum ReplacementPart<'a> {
    Text(&'a [u8]),
    Group(usize),
    Before,
    After,
}

/// A replacement, parsed once for all matches.
pub(super) struct Template<'a>(Vec<ReplacementPart<'a>>);

impl<'a> Template<'a> {
    pub(super) fn read(text: &'a [u8], names: &[(String, usize)]) -> Result<Template<'a>, Fault> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = memchr(rest) {
            let (before, escape) = rest.split_at(at);
            parts.push(ReplacementPart::Text(before));
            let (part, length) = match escape.get(1) {
                Some(digit @ b'0'..=b'9') => (ReplacementPart::Group(usize::from(digit - b'0')), 2),
                Some(b'&') => (ReplacementPart::Group(0), 2),
                Some(b'`') => (ReplacementPart::Before, 2),
                Some(b'\'') => (ReplacementPart::After, 2),
                Some(b'\\') => (ReplacementPart::Text(b"\\"), 2),
                Some(b'k') => named(escape, names)?,
                Some(_) => (ReplacementPart::Text(&escape[..2]), 2),
                None => (ReplacementPart::Text(escape), 1),
            };
            parts.push(part);
            rest = &escape[length..];
        }
        parts.push(ReplacementPart::Text(rest));
        Ok(Template(parts))
    }

    pub(super) fn fill(&self, out: &mut Vec<u8>, text: &str, found: &Captures<'_, str>) {
        let (start, end) = found.get(0).map_or((0, 0), |whole| (whole.start(), whole.end()));
        for part in &self.0 {
            match part {
                ReplacementPart::Text(text) => out.extend_from_slice(text),
                ReplacementPart::Group(number) => {
                    out.extend_from_slice(found.get(*number).map_or("", |group| group.as_str()).as_bytes());
                }
                ReplacementPart::Before => out.extend_from_slice(&text.as_bytes()[..start]),
                ReplacementPart::After => out.extend_from_slice(&text.as_bytes()[end..]),
            }
        }
    }
}

fn memchr(text: &[u8]) -> Option<usize> {
    text.iter().position(|byte| *byte == b'\\')
}

/// Reads `\k<name>`; if several groups have the name, the last one counts.
fn named<'a>(escape: &'a [u8], names: &[(String, usize)]) -> Result<(ReplacementPart<'a>, usize), Fault> {
    let close = escape.iter().position(|byte| *byte == b'>');
    let (Some(b'<'), Some(close)) = (escape.get(2), close) else {
        return Ok((ReplacementPart::Text(&escape[..2]), 2));
    };
    let name = String::from_utf8_lossy(&escape[3..close]);
    let number = names.iter().rev().find(|(known, _)| *known == name).map(|(_, number)| *number);
    match number.or_else(|| name.parse().ok()) {
        Some(number) => Ok((ReplacementPart::Group(number), close + 1)),
        None => Err(("IndexError", format!("undefined group name reference: {name}"))),
    }
}
