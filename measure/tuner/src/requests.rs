//! Requests without an address: from paths, and from a file of URLs.

use load::inputs::url;
use load::inputs::urls_file::{Resolver, urls_file as read_urls};
use load::scenario::{Origin, Request};
use std::path::Path;

/// Returns a placeholder for the origin.
pub(crate) fn nowhere() -> Origin {
    Origin { tls: false, host: "127.0.0.1".to_owned(), port: 0 }
}

fn get(target: String) -> Request {
    Request {
        origin: nowhere(),
        method: "GET".to_owned(),
        target,
        headers: Vec::new(),
        body: bytes::Bytes::new(),
        weight: 1,
    }
}

/// Returns requests for paths; for `/` if there are none.
///
/// # Errors
/// The invalid paths.
pub(crate) fn paths(paths: &[&str]) -> Result<Vec<Request>, Vec<String>> {
    if paths.is_empty() {
        return Ok(vec![get("/".to_owned())]);
    }
    let (mut requests, mut mistakes) = (Vec::new(), Vec::new());
    for path in paths {
        match read_path(path) {
            Ok(target) => requests.push(get(target)),
            Err(why) => mistakes.push(format!("--path {path:?}: {why}")),
        }
    }
    if mistakes.is_empty() { Ok(requests) } else { Err(mistakes) }
}

fn read_path(path: &str) -> Result<String, String> {
    if path.starts_with('/') {
        return url::target(path);
    }
    Err("expected a path that begins with /, such as /reports?year=2026; tune chooses the servers' addresses"
        .to_owned())
}

/// Returns the requests of a URL file.
///
/// # Errors
/// The mistakes in the file, each with its line.
pub(crate) fn urls_file(path: &Path) -> Result<Vec<Request>, Vec<String>> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| vec![format!("--urls: {name}: {error}")])?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = |name: &str| {
        let path = folder.join(name);
        std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let mut resolver = Resolver { file: &mut file, variable: &|name| std::env::var(name).ok() };
    let lines = read_urls(&name, &text, &mut resolver)?;
    Ok(lines
        .into_iter()
        .map(|line| {
            let (body, kind) = line.body.unzip();
            let method = line.method.unwrap_or_else(|| "GET".to_owned());
            let headers = kind.map(|kind| ("Content-Type".to_owned(), kind.to_owned()));
            Request {
                method,
                body: body.unwrap_or_default(),
                weight: line.weight,
                headers: headers.into_iter().collect(),
                ..get(line.url.target)
            }
        })
        .collect())
}

/// Parses `Name: value`.
///
/// # Errors
/// A description of what is expected.
pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    let read = text.split_once(':').map(|(name, value)| (name, value.trim()));
    match read {
        Some((name, value)) if text::is_token(name.as_bytes()) && !value.contains(char::is_control) => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(format!("{text:?} is not a header field; expected one such as 'Accept: application/json'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_with_a_slash() {
        let two = paths(&["/a b", "/b"]).unwrap_err();
        assert_eq!(two.len(), 1);
        assert!(two[0].contains("%20"), "{two:?}");
        assert!(paths(&["http://x/"]).unwrap_err()[0].contains("/reports"));
        assert_eq!(paths(&[]).unwrap()[0].target, "/");
        assert_eq!(paths(&["/a?b=c#d"]).unwrap()[0].target, "/a?b=c");
    }

    #[test]
    fn headers_are_validated() {
        assert_eq!(header("Accept:  text/html "), Ok(("Accept".into(), "text/html".into())));
        for wrong in ["", "X", ": y", "X Y: z", "X: a\r\nB: c"] {
            assert!(header(wrong).is_err(), "{wrong:?}");
        }
    }
}
