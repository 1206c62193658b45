//! Sources of facts: the JSON of bench or tune, an access log, a running server. The kind is detected.

mod access_log;
mod document;
mod line;
mod server;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::sourced::SourceFacts;

/// The largest JSON document in bytes.
const LARGEST_DOCUMENT: u64 = 1 << 30;

/// The wishes to a running server.
#[derive(Debug, Clone, Default)]
pub(crate) struct SourceWish {
    /// Observe it for so many milliseconds.
    pub look_ms: Option<f64>,
    /// Also ask what its routes take.
    pub routes: bool,
    pub token: Option<String>,
}

impl SourceWish {
    /// Returns the option that only a running server can fulfil.
    fn of_a_server(&self) -> Option<&'static str> {
        self.look_ms.map(|_| "--look").or(self.routes.then_some("--live"))
    }
}

/// Reads the facts from a source.
pub(crate) fn read(from: &str, asked: SourceWish) -> Result<SourceFacts, String> {
    let file_only = |what: &str| match asked.of_a_server() {
        Some(flag) => Err(format!("{flag} requires a running server; {what} is none")),
        None => Ok(()),
    };
    if from == "-" {
        file_only("standard input")?;
        return file("standard input", &mut io::stdin().lock());
    }
    if from.contains("://") || from.starts_with("unix:") {
        return server::query(from, asked);
    }
    let path = Path::new(from);
    let kind = path.metadata().map_err(|why| match why.kind() {
        io::ErrorKind::NotFound => format!("there is no {from}; expected the JSON of bench or tune, an access log, the folder of a running server, or its control socket"),
        _ => format!("{from}: {why}"),
    })?;
    if kind.is_dir() {
        return server::query_folder(path, asked);
    }
    if kind.file_type().is_socket() {
        return server::query(from, asked);
    }
    file_only(from)?;
    let open = File::open(path).map_err(|why| format!("{from}: {why}"))?;
    file(from, &mut BufReader::with_capacity(1 << 16, open))
}

/// Reads a document or a log, depending on its beginning.
fn file(name: &str, input: &mut dyn BufRead) -> Result<SourceFacts, String> {
    let mut first = Vec::new();
    let wrong = |why: io::Error| format!("{name}: {why}");
    input.take(LARGEST_DOCUMENT).read_until(b'\n', &mut first).map_err(wrong)?;
    if first.starts_with(&[0x1f, 0x8b]) {
        return Err(format!(
            "{name} is compressed with gzip; decompress it: zcat {name} | firebrick plan --from -"
        ));
    }
    if first.trim_ascii_start().starts_with(b"{") {
        let whole = serde_json::from_slice::<serde_json::Value>(&first);
        let is_line = whole.as_ref().is_ok_and(|value| value.get("kind").is_none());
        if !is_line {
            input.take(LARGEST_DOCUMENT).read_to_end(&mut first).map_err(wrong)?;
            return document::read(name, &first);
        }
    }
    access_log::read(name, &mut first.as_slice().chain(input))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_invalid_sources() {
        let error = read("/nonexistent/file", SourceWish::default()).unwrap_err();
        assert!(error.contains("there is no /nonexistent/file"), "{error}");
        let asked = SourceWish { routes: true, ..SourceWish::default() };
        assert!(read("-", asked).unwrap_err().starts_with("--live requires a running server"));
        let error = |bytes: &[u8]| file("x", &mut &bytes[..]).unwrap_err();
        assert!(error(b"").contains("empty"), "{}", error(b""));
        assert!(error(&[0x1f, 0x8b, 8]).contains("zcat"));
        assert!(error(b"{\"kind\": \"something\"}").contains("something"));
        assert!(error(b"{\n\"kind\": \"firebrick bench\"").contains("JSON"));
        assert!(error(b"hello\nworld\n").contains("hello"));
    }
}
