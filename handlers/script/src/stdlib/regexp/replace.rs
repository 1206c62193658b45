//! The replacement text of `sub` and `gsub`: `\1`, `\k<name>`, `\0`, `\&`, `` \` ``, `\'`, `\\`.

use super::Fault;
use fancy_regex::Captures;

enum Part<'a> {
    Text(&'a [u8]),
    Group(usize),
    Before,
    After,
}

/// A replacement, parsed once for all matches.
pub(super) struct Template<'a>(Vec<Part<'a>>);

impl<'a> Template<'a> {
    pub(super) fn read(text: &'a [u8], names: &[(String, usize)]) -> Result<Template<'a>, Fault> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = memchr(rest) {
            let (before, escape) = rest.split_at(at);
            parts.push(Part::Text(before));
            let (part, length) = match escape.get(1) {
                Some(digit @ b'0'..=b'9') => (Part::Group(usize::from(digit - b'0')), 2),
                Some(b'&') => (Part::Group(0), 2),
                Some(b'`') => (Part::Before, 2),
                Some(b'\'') => (Part::After, 2),
                Some(b'\\') => (Part::Text(b"\\"), 2),
                Some(b'k') => named(escape, names)?,
                Some(_) => (Part::Text(&escape[..2]), 2),
                None => (Part::Text(escape), 1),
            };
            parts.push(part);
            rest = &escape[length..];
        }
        parts.push(Part::Text(rest));
        Ok(Template(parts))
    }

    pub(super) fn fill(&self, out: &mut Vec<u8>, text: &str, found: &Captures<'_, str>) {
        let (start, end) = found.get(0).map_or((0, 0), |whole| (whole.start(), whole.end()));
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Group(number) => {
                    out.extend_from_slice(found.get(*number).map_or("", |group| group.as_str()).as_bytes());
                }
                Part::Before => out.extend_from_slice(&text.as_bytes()[..start]),
                Part::After => out.extend_from_slice(&text.as_bytes()[end..]),
            }
        }
    }
}

fn memchr(text: &[u8]) -> Option<usize> {
    text.iter().position(|byte| *byte == b'\\')
}

/// Reads `\k<name>`; if several groups have the name, the last one counts.
fn named<'a>(escape: &'a [u8], names: &[(String, usize)]) -> Result<(Part<'a>, usize), Fault> {
    let close = escape.iter().position(|byte| *byte == b'>');
    let (Some(b'<'), Some(close)) = (escape.get(2), close) else { return Ok((Part::Text(&escape[..2]), 2)) };
    let name = String::from_utf8_lossy(&escape[3..close]);
    let number = names.iter().rev().find(|(known, _)| *known == name).map(|(_, number)| *number);
    match number.or_else(|| name.parse().ok()) {
        Some(number) => Ok((Part::Group(number), close + 1)),
        None => Err(("IndexError", format!("undefined group name reference: {name}"))),
    }
}
