//! Builds the target URL of a redirect: text with nginx's variables, evaluated for each request.
//!
//! Contract: the result is visible ASCII. A client can choose neither its host nor its scheme:
//! 1. Client input (captures, `$uri`, `$arg_…`, `$http_…`, …) never becomes part of the authority; a URL that
//!    would allow it is refused when it is parsed.
//! 2. A URL that begins with client input, or with `/`, is a path of this site: it begins with exactly one
//!    `/` (unless the file itself has `//host`), and `\`, which browsers treat as `/`, is always encoded.

use super::RequestView;
use super::escape::{encoded, visible};
use super::variables::Filled;

/// The names of variables, for messages; `arg_` and `http_` need a suffix.
pub(super) const VARIABLES: [&str; 13] = [
    "host",
    "http_host",
    "request_uri",
    "uri",
    "document_uri",
    "args",
    "query_string",
    "is_args",
    "scheme",
    "server_name",
    "remote_addr",
    "arg_",
    "http_",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    parts: Vec<LocationPart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LocationPart {
    Text(String),
    Host,
    HttpHost,
    Scheme,
    /// `X-Forwarded-Proto` if it is `http` or `https`; else the real scheme.
    ForwardedProto,
    IsArgs,
    RequestUri,
    Uri,
    Args,
    RemoteAddr,
    Arg(String),
    Http(String),
    Capture(usize),
}

impl LocationPart {
    /// Returns whether the text comes from the client.
    fn is_foreign(&self) -> bool {
        use LocationPart::*;
        matches!(self, RequestUri | Uri | Args | RemoteAddr | Arg(_) | Http(_) | Capture(_))
    }

    fn named(name: &str, captures: usize) -> Result<LocationPart, String> {
        Ok(match name {
            "host" | "server_name" => LocationPart::Host,
            "http_host" => LocationPart::HttpHost,
            "scheme" => LocationPart::Scheme,
            "http_x_forwarded_proto" => LocationPart::ForwardedProto,
            "is_args" => LocationPart::IsArgs,
            "request_uri" => LocationPart::RequestUri,
            "uri" | "document_uri" => LocationPart::Uri,
            "args" | "query_string" => LocationPart::Args,
            "remote_addr" => LocationPart::RemoteAddr,
            _ => match (name.strip_prefix("arg_"), name.strip_prefix("http_"), name.parse::<usize>()) {
                (Some(argument), ..) if !argument.is_empty() => LocationPart::Arg(argument.to_owned()),
                (_, Some(field), _) if !field.is_empty() => LocationPart::Http(field.replace('_', "-")),
                (.., Ok(number)) if (1..=captures).contains(&number) => LocationPart::Capture(number - 1),
                (.., Ok(number)) => return Err(no_capture(number, captures)),
                _ => return Err(unknown(name)),
            },
        })
    }
}

fn no_capture(number: usize, captures: usize) -> String {
    match captures {
        0 => format!("${number} refers to a * or ** of the key, but the key has none"),
        1 => format!("${number} refers to a * or ** of the key, but the key has only one: $1"),
        _ => format!(
            "${number} refers to a * or ** of the key, but the key has only {captures}: $1 to ${captures}"
        ),
    }
}

fn unknown(name: &str) -> String {
    match super::nearest::nearest(name, VARIABLES) {
        Some(near) => format!("unknown variable ${name}; did you mean ${near}?"),
        None => format!(
            "unknown variable ${name}; known variables are {}",
            VARIABLES.map(|known| format!("${known}")).join(", ")
        ),
    }
}

impl Location {
    /// Parses a URL after environment variables were substituted. `captures`: the number of wildcards in its key.
    ///
    /// # Errors
    /// Unknown variables, and URLs whose host a client could choose.
    pub fn new(filled: &Filled, captures: usize) -> Result<Location, String> {
        if filled.pieces.iter().any(|piece| piece.text.contains(char::is_control)) {
            return Err("a control character cannot be used in a URL (is it in a variable?)".to_owned());
        }
        let mut parts = Vec::new();
        let mut text = String::new();
        for piece in &filled.pieces {
            let mut left = piece.text.as_str();
            while let Some(at) = left.find('$').filter(|_| !piece.literal) {
                text.push_str(&left[..at]);
                let (name, len) = name(&left[at + 1..], &filled.unset);
                if name.is_empty() {
                    // Not a variable: a lone `$`, or an environment variable that is not set.
                    text.push_str(&left[at..at + 1 + len]);
                } else {
                    let part = LocationPart::named(name, captures)?;
                    if !text.is_empty() {
                        parts.push(LocationPart::Text(std::mem::take(&mut text)));
                    }
                    parts.push(part);
                }
                left = &left[at + 1 + len..];
            }
            text.push_str(left);
        }
        if !text.is_empty() {
            parts.push(LocationPart::Text(text));
        }
        let location = Location { parts };
        location.check()?;
        Ok(location)
    }

    /// Returns the URL, if it contains no variables.
    pub fn fixed(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [LocationPart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns whether `${name}` is one of nginx's variables, for names that the environment does not set.
    pub fn evaluates(name: &str) -> bool {
        LocationPart::named(name, 9).is_ok()
    }

    /// Refuses URLs in which a client could choose the host.
    fn check(&self) -> Result<(), String> {
        if self.parts.is_empty() {
            return Err("the url is empty: expected a path such as \"/new\" or a URL".to_owned());
        }
        let mut before = String::new();
        for part in &self.parts {
            match part {
                LocationPart::Text(text) => before.push_str(text),
                // This part may be empty, so it separates nothing.
                LocationPart::IsArgs => {}
                part if !part.is_foreign() => before.push('h'),
                _ if before.ends_with("://") || before == "//" => {
                    return Err(
                        "a client could choose the host this leads to: write the host, then the variable"
                            .to_owned(),
                    );
                }
                _ if scheme_only(&before) => {
                    return Err(
                        "a client could choose the host this leads to: write the whole scheme://host/ first"
                            .to_owned(),
                    );
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// Returns the value of `Location` for a request.
    pub fn evaluate(&self, captures: &[String], request: &RequestView<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        for part in &self.parts {
            let start = out.len();
            let raw = evaluate(part, captures, request, out.contains(&b'?'));
            if part.is_foreign() && !raw.is_empty() {
                if in_authority(&out) && !matches!(raw[0], b'/' | b'?' | b'#') {
                    out.push(b'/');
                }
                if start > 0 && !out.iter().any(|byte| b"/?#:".contains(byte)) {
                    // In the first segment of a relative URL, a colon would be read as the end of a scheme.
                    raw.iter()
                        .for_each(|&byte| if byte == b':' { out.extend(b"%3A") } else { out.push(byte) });
                    continue;
                }
            }
            out.extend(raw);
        }
        self.keep_on_site(out)
    }

    fn keep_on_site(&self, out: Vec<u8>) -> Vec<u8> {
        let own_host = matches!(&self.parts[0], LocationPart::Text(text) if text.starts_with("//"));
        let foreign_start = self.parts[0].is_foreign();
        if own_host || !(foreign_start || out.first() == Some(&b'/')) {
            return out;
        }
        let slashes = out.iter().take_while(|&&byte| byte == b'/').count();
        let mut path = vec![b'/'];
        path.extend(&out[slashes..]);
        path
    }
}

/// Returns the name that follows a `$`, and its length with braces; an empty name if there is none.
fn name<'a>(text: &'a str, unset: &[String]) -> (&'a str, usize) {
    let word = |text: &'a str| {
        let end = text.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(text.len());
        &text[..end]
    };
    if let Some(inner) = text.strip_prefix('{') {
        let name = word(inner);
        if name.is_empty() || !inner[name.len()..].starts_with('}') {
            return ("", 0);
        }
        let len = name.len() + 2;
        // An unset environment variable stays unchanged, unless nginx has a variable of that name.
        let known = Location::evaluates(name);
        return if unset.iter().any(|unset| unset == name) && !known { ("", len) } else { (name, len) };
    }
    // `$1` ends after its digit, as in nginx.
    match text.as_bytes().first() {
        Some(digit) if digit.is_ascii_digit() => (&text[..1], 1),
        _ => (word(text), word(text).len()),
    }
}

/// Returns whether a URL with this beginning has a scheme but no host yet.
fn scheme_only(before: &str) -> bool {
    !before.contains(['/', '?', '#']) && before.ends_with(':')
        || before.ends_with(":/") && before.matches('/').count() == 1
}

/// Returns whether appended text would still belong to the host.
fn in_authority(out: &[u8]) -> bool {
    let after = match out.windows(3).position(|window| window == b"://") {
        Some(at) if !out[..at].iter().any(|byte| b"/?#".contains(byte)) => &out[at + 3..],
        _ if out.starts_with(b"//") => &out[2..],
        _ => return false,
    };
    !after.iter().any(|byte| b"/?#".contains(byte))
}

fn evaluate(part: &LocationPart, captures: &[String], request: &RequestView<'_>, in_query: bool) -> Vec<u8> {
    match part {
        LocationPart::Text(text) => visible(text.as_bytes()),
        LocationPart::Host => host(request.host),
        LocationPart::HttpHost => host_and_port(request.host),
        LocationPart::Scheme => scheme(request.https).to_vec(),
        LocationPart::ForwardedProto => match request.forwarded_proto {
            Some(proto @ (b"http" | b"https")) => proto.to_vec(),
            _ => scheme(request.https).to_vec(),
        },
        LocationPart::IsArgs if request.query.is_empty() => Vec::new(),
        LocationPart::IsArgs => b"?".to_vec(),
        LocationPart::RequestUri => request_uri(request),
        LocationPart::Uri => encoded(request.path, in_query),
        LocationPart::Args => visible(request.query),
        LocationPart::RemoteAddr => visible(request.remote.as_bytes()),
        LocationPart::Arg(name) => visible(argument(request.query, name)),
        LocationPart::Http(name) => visible(request.fields.get(name).unwrap_or_default()),
        LocationPart::Capture(index) => encoded(captures.get(*index).map_or("", String::as_str), in_query),
    }
}

pub(super) fn scheme(https: bool) -> &'static [u8] {
    if https { b"https" } else { b"http" }
}

/// Returns nginx's `$host`: lower case, without port; `localhost` if the request has none.
pub(super) fn host(authority: &[u8]) -> Vec<u8> {
    let end = match authority.iter().position(|&byte| byte == b']') {
        Some(bracket) if authority.first() == Some(&b'[') => bracket + 1,
        _ => authority.iter().position(|&byte| byte == b':').unwrap_or(authority.len()),
    };
    host_and_port(&authority[..end])
}

/// Removes all bytes that an authority cannot contain.
pub(super) fn host_and_port(authority: &[u8]) -> Vec<u8> {
    let clean: Vec<u8> = authority
        .iter()
        .filter(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(byte))
        .map(u8::to_ascii_lowercase)
        .collect();
    if clean.is_empty() { b"localhost".to_vec() } else { clean }
}

/// Returns path and query as sent.
pub(super) fn request_uri(request: &RequestView<'_>) -> Vec<u8> {
    let mut uri = visible(request.raw_path);
    if uri.first() != Some(&b'/') {
        uri.insert(0, b'/');
    }
    if !request.query.is_empty() {
        uri.push(b'?');
        uri.extend(visible(request.query));
    }
    uri
}

/// Returns the first argument of that name, as sent. Names ignore case, as in nginx.
fn argument<'a>(query: &'a [u8], name: &str) -> &'a [u8] {
    let value = |pair: &'a [u8]| {
        let (key, value) = pair.split_at(pair.iter().position(|&byte| byte == b'=')?);
        key.eq_ignore_ascii_case(name.as_bytes()).then_some(&value[1..])
    };
    query.split(|&byte| byte == b'&').find_map(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::variables::fill;
    use super::*;
    use handler::Fields;
    use proptest::prelude::*;

    fn read(url: &str, captures: usize) -> Result<Location, String> {
        Location::new(
            &fill(url, false, &|name| (name == "TO").then(|| "https://to.example$request_uri".into())),
            captures,
        )
    }

    fn evaluate(url: &str, captures: &[&str], change: impl FnOnce(&mut RequestView<'_>)) -> String {
        let mut fields = Fields::default();
        fields.push(b"User-Agent", b"curl/8 (x)");
        let mut request = RequestView {
            path: "/old/a b",
            raw_path: b"/old/a%20b",
            query: b"x=1&Next=%2Fhome",
            host: b"Www.Example:8080",
            https: true,
            forwarded_proto: None,
            remote: "192.0.2.7",
            fields: &fields,
        };
        change(&mut request);
        let captures: Vec<String> = captures.iter().map(|capture| (*capture).to_owned()).collect();
        String::from_utf8(read(url, captures.len()).unwrap().evaluate(&captures, &request)).unwrap()
    }

    #[test]
    fn variables_of_nginx() {
        let cases = [
            ("/", "/"),
            ("https://new.example/", "https://new.example/"),
            ("//cdn.example/x", "//cdn.example/x"),
            ("https://$host$request_uri", "https://www.example/old/a%20b?x=1&Next=%2Fhome"),
            ("$scheme://$http_host$uri$is_args$args", "https://www.example:8080/old/a%20b?x=1&Next=%2Fhome"),
            ("$http_x_forwarded_proto://${server_name}/", "https://www.example/"),
            ("/login?to=$uri&q=$query_string", "/login?to=/old/a%20b&q=x=1&Next=%2Fhome"),
            ("/from/$remote_addr/$arg_next/$arg_none", "/from/192.0.2.7/%2Fhome/"),
            ("/ua/$http_user_agent", "/ua/curl/8%20(x)"),
            ("/price$", "/price$"),
            ("/$${host}", "/${host}"),
            ("/${UNSET}/x", "/${UNSET}/x"),
            ("${TO}", "https://to.example/old/a%20b?x=1&Next=%2Fhome"),
            ("/ünï\\x", "/%C3%BCn%C3%AF%5Cx"),
            ("next/$arg_x", "next/1"),
        ];
        for (url, expected) in cases {
            assert_eq!(evaluate(url, &[], |_| {}), expected, "{url}");
        }
        assert_eq!(evaluate("/$2/$1x", &["a", "b c"], |_| {}), "/b%20c/ax");
        assert_eq!(evaluate("https://$host/", &[], |request| request.host = b""), "https://localhost/");
        assert_eq!(evaluate("https://$host/", &[], |request| request.host = b"[::1]:80"), "https://[::1]/");
    }

    #[test]
    fn clients_cannot_choose_the_host() {
        let cases = [
            ("$1", "https:/evil.example", "/https:/evil.example"),
            ("/$1", "/evil.example", "/evil.example"),
            ("/$1", "\\evil.example", "/%5Cevil.example"),
            ("https://good.example$1", ".evil.example", "https://good.example/.evil.example"),
            ("https://good.example$1", "@evil.example", "https://good.example/@evil.example"),
            ("https://good.example$1", "/x", "https://good.example/x"),
            ("https://good.example/?x=$1", "a&b#c", "https://good.example/?x=a%26b%23c"),
            ("x$1", "y:z", "xy%3Az"),
        ];
        for (url, capture, expected) in cases {
            assert_eq!(evaluate(url, &[capture], |_| {}), expected, "{url} {capture}");
        }
        assert_eq!(evaluate("$arg_to", &[], |request| request.query = b"to=//evil.example"), "/evil.example");
        assert_eq!(
            evaluate("$request_uri", &[], |request| request.raw_path = b"//evil.example/"),
            "/evil.example/?x=1&Next=%2Fhome"
        );
        for url in [
            "https://$1.example/",
            "//$1",
            "https:$1",
            "https:/$1",
            "$scheme://$arg_host/",
            "http://$http_x/",
        ] {
            assert!(read(url, 1).unwrap_err().contains("choose the host"), "{url}");
        }
    }

    #[test]
    fn unknown_variables_are_errors() {
        for (url, expected) in [
            ("/$hots", "unknown variable $hots; did you mean $host?"),
            ("/$zzzzzz", "unknown variable $zzzzzz; known variables are $host"),
            ("/$2", "only one: $1"),
            ("/$arg_", "unknown variable $arg_"),
            ("", "the url is empty"),
        ] {
            assert!(read(url, 1).unwrap_err().contains(expected), "{url}: {:?}", read(url, 1));
        }
        assert!(read("/$1", 0).unwrap_err().contains("the key has none"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn a_location_is_always_safe(
            url in "(/|//h|https://h|x|https:|\\$scheme://)?(\\$1|\\$uri|\\$arg_a|\\$args|\\$http_user_agent|\\$is_args|/|:|\\?){1,4}",
            capture in "[/:\\\\a@.\r\n#?%é]{0,8}", query in "(a=)?[/:\\\\a@.\r\n#]{0,8}",
        ) {
            let mut fields = Fields::default();
            fields.push(b"User-Agent", capture.as_bytes());
            let path = format!("/{}", capture.trim_start_matches('/'));
            let request = RequestView {
                path: &path, raw_path: capture.as_bytes(), query: query.as_bytes(), host: capture.as_bytes(), https: false,
                forwarded_proto: Some(b"\r\n"), remote: "", fields: &fields,
            };
            if let Ok(location) = read(&url, 1) {
                let out = location.evaluate(std::slice::from_ref(&capture), &request);
                prop_assert!(out.iter().all(u8::is_ascii_graphic), "{out:?}");
                let out = String::from_utf8(out).unwrap();
                prop_assert!(!out.contains('\\'));
                if url.starts_with("//h") {
                    prop_assert!(out.starts_with("//h") && ["", "/", "?", "#", ":"].contains(&out.get(3..4).unwrap_or("")), "{out}");
                } else if url.starts_with("https://h") {
                    let rest = &out["https://h".len()..];
                    prop_assert!(rest.is_empty() || rest.starts_with(['/', '?', '#', ':']), "{out}");
                } else if url.starts_with('/') && !url.starts_with("//") || url.starts_with("$1") || url.starts_with("$arg") || url.starts_with("$uri") {
                    prop_assert!(out.starts_with('/') && !out.starts_with("//"), "{out}");
                }
            }
        }
    }
}
