//! A URL file in siege's format, with weights added.
//!
//! A line is a comment (`#`), a variable (`HOST=localhost:9292`) or a request: `URL`, `URL POST name=value`, `URL PUT
//! <body.json`, optionally followed by `weight=3` if it is to be sent three times as often.

use std::collections::HashMap;

use bytes::Bytes;

use crate::inputs::url::{ParsedUrl, url};
use crate::inputs::variables::{assignment, substituted};

/// A request of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The line number, from 1.
    pub line: usize,
    pub url: ParsedUrl,
    /// The method; `None` leaves the choice to the flags.
    pub method: Option<String>,
    /// The body and its content type.
    pub body: Option<(Bytes, &'static str)>,
    /// At least 1.
    pub weight: u32,
}

/// The surroundings to which a URL file refers.
pub struct Resolver<'a> {
    /// Reads the file of a body (`<body.json>`) by its name in the line.
    pub file: &'a mut dyn FnMut(&str) -> Result<Vec<u8>, String>,
    /// Looks up a variable that the file does not set.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];

/// The type that siege sends if a body is not a file of a known type.
const FORM: &str = "application/x-www-form-urlencoded";

/// Parses a whole file; messages call it `name`.
///
/// # Errors
/// All mistakes, each as `name:line: what is wrong, and what is expected`.
pub fn urls_file(name: &str, text: &str, resolver: &mut Resolver<'_>) -> Result<Vec<Line>, Vec<String>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut lines, mut mistakes) = (Vec::new(), Vec::new());
    let mut known = HashMap::new();
    for (index, line) in text.lines().enumerate() {
        match one(line, &mut known, resolver) {
            Ok(Some(read)) => lines.push(Line { line: index + 1, ..read }),
            Ok(None) => {}
            Err(why) => mistakes.push(format!("{name}:{}: {why}", index + 1)),
        }
    }
    if lines.is_empty() && mistakes.is_empty() {
        mistakes.push(format!("{name}: no URL found; expected one per line, such as http://localhost:9292/"));
    }
    if mistakes.is_empty() { Ok(lines) } else { Err(mistakes) }
}

fn one(
    line: &str,
    known: &mut HashMap<String, String>,
    resolver: &mut Resolver<'_>,
) -> Result<Option<Line>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let line = substituted(line, known, resolver.variable)?;
    if let Some((name, value)) = assignment(&line) {
        known.insert(name.to_owned(), value.to_owned());
        return Ok(None);
    }
    request(&line, resolver).map(Some)
}

fn request(line: &str, resolver: &mut Resolver<'_>) -> Result<Line, String> {
    let (line, weight) = weight(line)?;
    let line = unquoted(line);
    let (url_text, rest) = split_word(line);
    let (method, data) = split_word(rest);
    if METHODS.contains(&url_text) {
        return Err(format!(
            "the URL comes first: expected {} {url_text} …",
            if method.is_empty() { "http://localhost:9292/" } else { method }
        ));
    }
    let body = match data {
        "" => None,
        _ => Some(body(data, resolver)?),
    };
    let method = match method {
        "" => None,
        method => Some(known_method(method)?),
    };
    Ok(Line { line: 0, url: url(url_text)?, method, body, weight })
}

/// Removes `weight=3` from the end.
fn weight(line: &str) -> Result<(&str, u32), String> {
    let Some((before, last)) = line.rsplit_once(char::is_whitespace) else {
        return Ok((line, 1));
    };
    let Some(digits) = last.strip_prefix("weight=") else {
        return Ok((line, 1));
    };
    let weight =
        digits.parse().ok().filter(|weight| (1..=1_000_000).contains(weight) && !digits.starts_with('+'));
    weight
        .map(|weight| (before.trim_end(), weight))
        .ok_or_else(|| format!("{last:?}: expected a whole number from 1 to 1000000, such as weight=3"))
}

/// Removes quotes around a whole line, which siege needs on its command line.
fn unquoted(line: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inside) = line.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return inside.trim();
        }
    }
    line
}

fn split_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

fn known_method(word: &str) -> Result<String, String> {
    if METHODS.contains(&word) {
        return Ok(word.to_owned());
    }
    let upper = word.to_ascii_uppercase();
    if METHODS.contains(&upper.as_str()) {
        return Err(format!("methods are case-sensitive: expected {upper}, found {word}"));
    }
    Err(format!(
        "{word:?} is not a method: expected one such as POST, PUT, PATCH or DELETE; write a blank in a URL as %20"
    ))
}

fn body(data: &str, resolver: &mut Resolver<'_>) -> Result<(Bytes, &'static str), String> {
    let Some(file) = data.strip_prefix('<') else {
        return Ok((Bytes::copy_from_slice(data.as_bytes()), FORM));
    };
    let file = file.trim();
    if file.is_empty() {
        return Err("no file name after <".to_owned());
    }
    Ok((Bytes::from((resolver.file)(file)?), content_type(file)))
}

/// Returns the content type of a body by the extension of its file; otherwise a form, like siege.
pub fn content_type(file: &str) -> &'static str {
    let end = file.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase());
    match end.as_deref() {
        Some("json") => "application/json",
        Some("xml") => "application/xml",
        Some("txt") => "text/plain",
        Some("html" | "htm") => "text/html",
        Some("csv") => "text/csv",
        Some("yaml" | "yml") => "application/yaml",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("png") => "image/png",
        Some("gif") => "image/gif",
        Some("pdf") => "application/pdf",
        Some("gz" | "zip" | "bin" | "dat") => "application/octet-stream",
        _ => FORM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Vec<Line>, Vec<String>> {
        let mut file = |name: &str| match name {
            "b.json" => Ok(b"{}".to_vec()),
            _ => Err(format!("{name}: no such file")),
        };
        urls_file("urls.txt", text, &mut Resolver { file: &mut file, variable: &|_| None })
    }

    /// Line, target, method, body with its type, weight.
    type Shown<'a> = (usize, &'a str, Option<&'a str>, Option<(&'a [u8], &'a str)>, u32);

    #[test]
    fn siege_format() {
        let lines = read(
            "\u{feff}# shop\n\nHOST=localhost:9292\nAPI = http://$(HOST)/api\n\
             http://${HOST}/ weight=3\n${API}/login POST user=joe&password=x y\n\
             ${API}/item PUT <b.json weight=2\n$(API)/item/1 DELETE\r\nlocalhost:9292/plain\n\"http://h/ POST a=b\"\n",
        )
        .unwrap();
        let shown: Vec<Shown<'_>> = lines
            .iter()
            .map(|line| {
                let body = line.body.as_ref().map(|(bytes, kind)| (&bytes[..], *kind));
                (line.line, line.url.target.as_str(), line.method.as_deref(), body, line.weight)
            })
            .collect();
        assert_eq!(
            shown,
            vec![
                (5, "/", None, None, 3),
                (6, "/api/login", Some("POST"), Some((&b"user=joe&password=x y"[..], FORM)), 1),
                (7, "/api/item", Some("PUT"), Some((&b"{}"[..], "application/json")), 2),
                (8, "/api/item/1", Some("DELETE"), None, 1),
                (9, "/plain", None, None, 1),
                (10, "/", Some("POST"), Some((&b"a=b"[..], FORM)), 1),
            ]
        );
        assert_eq!(lines[0].url.origin.port, 9292);
    }

    #[test]
    fn all_errors_are_reported_with_their_lines() {
        let mistakes = read("http://h/ok\nhttp://h/ post a\nftp://h/\nhttp://h/ PUT <c.json\n${X}/\nPOST http://h/\nhttp://h/ weight=0\nhttp://h/a b\n").unwrap_err();
        let wanted = [
            ("urls.txt:2: ", "POST"),
            ("urls.txt:3: ", "ftp"),
            ("urls.txt:4: ", "c.json"),
            ("urls.txt:5: ", "variable X"),
            ("urls.txt:6: ", "URL comes first"),
            ("urls.txt:7: ", "weight=3"),
            ("urls.txt:8: ", "%20"),
        ];
        assert_eq!(mistakes.len(), wanted.len(), "{mistakes:?}");
        for (mistake, (location, why)) in mistakes.iter().zip(wanted) {
            assert!(mistake.starts_with(location) && mistake.contains(why), "{mistake}");
        }
        assert!(read("# nothing\n").unwrap_err()[0].contains("no URL"));
    }

    proptest! {
        #[test]
        fn any_text_is_accepted_or_rejected(text in "((http://h/|A=|\\$\\{A\\}|#|POST|<b.json|weight=)?[ a-z0-9$(){}=%\n]{0,12}){0,8}") {
            let lines = text.lines().count();
            match read(&text) {
                Ok(read) => prop_assert!(read.iter().all(|line| (1..=lines).contains(&line.line) && line.weight > 0)),
                Err(mistakes) => prop_assert!(!mistakes.is_empty() && mistakes.len() <= lines.max(1)),
            }
        }
    }
}
