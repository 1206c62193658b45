//! Values that a step takes from its response.

use regex::bytes::Regex;

/// Where a value is.
#[derive(Debug, Clone)]
pub enum Take {
    /// The first group of a regular expression over the body, or its whole match.
    Body(Regex),
    /// A string, number or truth value of a JSON body, by its pointer (RFC 6901).
    Json(String),
    /// A field of the response; with an expression, its first group or whole match.
    Header(String, Option<Regex>),
    /// The token of a form or page against forged requests: `<meta name="csrf-token">`, or a hidden field of a usual name.
    Csrf,
}

/// Names of hidden fields: Rails, `rack-protection` and Sinatra, Roda and `rack_csrf`, Hanami, Django.
const FIELDS: [&str; 5] = ["authenticity_token", "_csrf", "_csrf_token", "csrf_token", "csrfmiddlewaretoken"];

impl Take {
    /// Returns the value; `None` if the response does not have it.
    pub(crate) fn of(&self, fields: &[(String, Vec<u8>)], body: &[u8]) -> Option<String> {
        let value = match self {
            Take::Body(expression) => group(expression, body)?,
            Take::Header(name, expression) => {
                let (_, value) = fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
                match expression {
                    Some(expression) => group(expression, value)?,
                    None => String::from_utf8_lossy(value).into_owned(),
                }
            }
            Take::Json(pointer) => {
                let document: serde_json::Value = serde_json::from_slice(body).ok()?;
                match document.pointer(pointer)? {
                    serde_json::Value::String(text) => text.clone(),
                    serde_json::Value::Null | serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
                        return None;
                    }
                    other => other.to_string(),
                }
            }
            Take::Csrf => csrf(&String::from_utf8_lossy(body))?,
        };
        Some(value)
    }
}

fn group(expression: &Regex, text: &[u8]) -> Option<String> {
    let found = expression.captures(text)?;
    let part = found.get(1).or_else(|| found.get(0))?;
    Some(String::from_utf8_lossy(part.as_bytes()).into_owned())
}

/// Finds the token in HTML: attributes may have any order and quotes.
fn csrf(html: &str) -> Option<String> {
    let tags = html.split('<').skip(1).filter_map(|part| {
        let name = part.split(|c: char| !c.is_ascii_alphanumeric()).next()?;
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        (is("meta") || is("input")).then_some((is("meta"), &part[name.len()..]))
    });
    for (meta, rest) in tags {
        let (mut name, mut value) = (None, None);
        for (key, text) in attributes(rest) {
            match key.to_ascii_lowercase().as_str() {
                "name" => name = Some(text),
                "content" if meta => value = Some(text),
                "value" if !meta => value = Some(text),
                _ => {}
            }
        }
        let wanted =
            name.is_some_and(|name| if meta { name == "csrf-token" } else { FIELDS.contains(&name) });
        if let Some(value) = value.filter(|_| wanted) {
            return Some(unescaped(value));
        }
    }
    None
}

/// Returns the attributes of a tag, from behind its name to its end.
fn attributes(mut rest: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
        let end = rest.find(|c: char| c.is_whitespace() || "=>/".contains(c)).unwrap_or(rest.len());
        let (key, behind) = rest.split_at(end);
        if key.is_empty() {
            return found;
        }
        let behind = behind.trim_start();
        let Some(value) = behind.strip_prefix('=').map(str::trim_start) else {
            found.push((key, ""));
            rest = behind;
            continue;
        };
        let (value, after) = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => match value[1..].split_once(quote) {
                Some(parts) => parts,
                None => return found,
            },
            _ => value.split_at(value.find(|c: char| c.is_whitespace() || c == '>').unwrap_or(value.len())),
        };
        found.push((key, value));
        rest = after;
    }
}

/// Resolves character references: those with numbers, and the named ones that escaping programs write.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let reference =
            rest.split_once(';').and_then(|(name, behind)| Some((character(&name[1..])?, behind)));
        match reference {
            Some((character, behind)) => {
                out.push(character);
                rest = behind;
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

fn character(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => number.parse(),
        };
        return char::from_u32(code.ok()?);
    }
    let table = [("amp", '&'), ("quot", '"'), ("apos", '\''), ("lt", '<'), ("gt", '>')];
    table.iter().find(|(known, _)| *known == name).map(|(_, character)| *character)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_of_pages_and_forms() {
        for (html, wanted) in [
            (
                "<meta name=\"csrf-param\" content=\"authenticity_token\" /><meta name=\"csrf-token\" content=\"a+b==\" />",
                Some("a+b=="),
            ),
            ("<form><input type='hidden' value='x&amp;y' name='authenticity_token'></form>", Some("x&y")),
            ("<INPUT name=_csrf value=abc>", Some("abc")),
            (
                "<input name=_csrf value='&#x2F;&#43;&quot;&amp;amp;&x; &#xD800;&'>",
                Some("/+\"&amp;&x; &#xD800;&"),
            ),
            ("<input name=other value=abc><input hidden name=\"csrf_token\" value=\"1\"/>", Some("1")),
            ("<metal name=\"csrf-token\" content=\"no\">", None),
            ("<input name=\"authenticity_token", None),
            ("csrf-token", None),
        ] {
            assert_eq!(Take::Csrf.of(&[], html.as_bytes()).as_deref(), wanted, "{html}");
        }
    }

    #[test]
    fn values_of_responses() {
        let fields = [("Location".to_owned(), b"/posts/17?x".to_vec())];
        let body = br#"{"data":[{"id":5,"name":"a\"b"}],"none":null} id=42;"#;
        let json = br#"{"data":[{"id":5,"name":"a\"b"}],"none":null}"#;
        let regex = |text: &str| Regex::new(text).unwrap();
        let of = |take: Take, body: &[u8]| take.of(&fields, body);
        assert_eq!(of(Take::Body(regex(r"id=(\d+)")), body).as_deref(), Some("42"));
        assert_eq!(of(Take::Body(regex(r"id=\d+")), body).as_deref(), Some("id=42"));
        assert_eq!(of(Take::Body(regex("nothing")), body), None);
        assert_eq!(of(Take::Json("/data/0/id".to_owned()), json).as_deref(), Some("5"));
        assert_eq!(of(Take::Json("/data/0/name".to_owned()), json).as_deref(), Some("a\"b"));
        assert_eq!(of(Take::Json("/none".to_owned()), json), None);
        assert_eq!(of(Take::Json("/data".to_owned()), json), None);
        assert_eq!(of(Take::Json("/data".to_owned()), b"<html>"), None);
        assert_eq!(of(Take::Header("location".to_owned(), None), b"").as_deref(), Some("/posts/17?x"));
        assert_eq!(
            of(Take::Header("location".to_owned(), Some(regex(r"/(\d+)"))), b"").as_deref(),
            Some("17")
        );
        assert_eq!(of(Take::Header("etag".to_owned(), None), b""), None);
    }

    proptest! {
        #[test]
        fn any_page_has_a_token_or_none(html in "[<>a-z =\"'/]{0,60}(<input name=_csrf )?[<>a-z =\"'/]{0,40}") {
            let _ = Take::Csrf.of(&[], html.as_bytes());
        }
    }
}
