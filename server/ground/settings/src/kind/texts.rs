//! Words, paths and choices.

use std::path::PathBuf;

use text::OrMistake;

use super::{Completion, Mistake, ValueKind};
use crate::nearest::nearest;
use crate::raw::Raw;
use crate::value::anchored;
use crate::value::hsts::Hsts;
use crate::value::log::{AccessLog, ErrorLog};

pub(crate) struct Switch;

impl ValueKind<bool> for Switch {
    fn read(&self, raw: &Raw) -> Result<bool, Mistake> {
        let on = match raw {
            Raw::Switch(on) => Some(*on),
            Raw::Word(text) | Raw::Text(text) => text::switch::parse(text),
            Raw::Integer(number @ 0..=1) => {
                return Err(Mistake::default().near(Some((*number == 1).to_string())));
            }
            _ => None,
        };
        on.or_mistake()
    }

    fn expected(&self) -> String {
        "true or false".to_owned()
    }

    fn words(&self) -> Vec<&'static str> {
        vec!["true", "false"]
    }
}

pub(crate) struct Choice<T: 'static>(pub(crate) &'static [(&'static str, T)]);

impl<T: Copy + Sync> ValueKind<T> for Choice<T> {
    fn read(&self, raw: &Raw) -> Result<T, Mistake> {
        let text = raw.text().or_mistake()?;
        let found = self.0.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        found.ok_or_else(|| Mistake::default().near(nearest(text, self.words())))
    }

    fn expected(&self) -> String {
        let quoted: Vec<String> = self.words().iter().map(|word| format!("\"{word}\"")).collect();
        format!("one of {}", quoted.join(", "))
    }

    fn words(&self) -> Vec<&'static str> {
        self.0.iter().map(|(name, _)| *name).collect()
    }
}

/// Text without control characters, not blank.
pub(crate) struct Text;

impl ValueKind<String> for Text {
    fn read(&self, raw: &Raw) -> Result<String, Mistake> {
        let plain = |text: &&str| !text.trim().is_empty() && !text.contains(char::is_control);
        raw.text().filter(plain).map(str::to_owned).or_mistake()
    }

    fn expected(&self) -> String {
        "text on one line".to_owned()
    }
}

/// `name=value,name=value`, as OpenTelemetry writes lists of header fields; values are percent-encoded.
pub(crate) struct Pairs;

impl ValueKind<String> for Pairs {
    fn read(&self, raw: &Raw) -> Result<String, Mistake> {
        let is_pair = |pair: &str| {
            pair.split_once('=').is_some_and(|(name, value)| {
                let (name, value) = (name.trim(), value.trim());
                text::is_token(name.as_bytes()) && value.bytes().all(|byte| (b' '..0x7f).contains(&byte))
            })
        };
        raw.text().filter(|text| text.split(',').all(is_pair)).map(str::to_owned).or_mistake()
    }

    fn expected(&self) -> String {
        "header fields such as \"api-key=0123,x-tenant=shop\", with values percent-encoded".to_owned()
    }
}

/// A password that is used in a header field and a URL.
pub(crate) struct Secret;

impl ValueKind<String> for Secret {
    fn read(&self, raw: &Raw) -> Result<String, Mistake> {
        let usable =
            |text: &&str| (1..=256).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        raw.text().filter(usable).map(str::to_owned).or_mistake()
    }

    fn expected(&self) -> String {
        "1 to 256 characters of ASCII without blanks".to_owned()
    }
}

pub(crate) struct RequestPath;

impl ValueKind<String> for RequestPath {
    fn read(&self, raw: &Raw) -> Result<String, Mistake> {
        let usable = |text: &&str| {
            text.starts_with('/')
                && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte))
        };
        raw.text().filter(usable).map(str::to_owned).or_mistake()
    }

    fn expected(&self) -> String {
        "a request path without query such as \"/ready\"".to_owned()
    }
}

/// The secret that encrypts session tickets.
pub(crate) struct TicketSecret;

impl ValueKind<String> for TicketSecret {
    fn read(&self, raw: &Raw) -> Result<String, Mistake> {
        let usable = |text: &&str| {
            (32..=1024).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        raw.text().filter(usable).map(str::to_owned).or_mistake()
    }

    fn expected(&self) -> String {
        "at least 32 characters of ASCII without blanks, such as `openssl rand -hex 32` makes".to_owned()
    }
}

pub(crate) struct HstsValue;

impl ValueKind<Hsts> for HstsValue {
    fn read(&self, raw: &Raw) -> Result<Hsts, Mistake> {
        match raw {
            Raw::Integer(seconds) => seconds.to_string().parse(),
            other => other.text().or_mistake()?.parse(),
        }
    }

    fn expected(&self) -> String {
        "a time such as \"365d\" or \"365d; includeSubDomains; preload\"".to_owned()
    }
}

pub(crate) struct Path(pub(crate) Completion);

impl ValueKind<PathBuf> for Path {
    fn read(&self, raw: &Raw) -> Result<PathBuf, Mistake> {
        let usable = |text: &&str| !text.trim().is_empty() && !text.contains('\0');
        raw.text().filter(usable).map(PathBuf::from).or_mistake()
    }

    fn anchor(&self, path: PathBuf, base: &std::path::Path) -> PathBuf {
        anchored(&path, base)
    }

    fn expected(&self) -> String {
        match self.0 {
            Completion::Directory => "the path of a directory".to_owned(),
            Completion::Any => "the path of a directory or file".to_owned(),
            _ => "the path of a file".to_owned(),
        }
    }

    fn completion(&self) -> Completion {
        self.0
    }
}

/// A program: a name to look up in `PATH`, or a path.
pub(crate) struct Program;

impl ValueKind<PathBuf> for Program {
    fn read(&self, raw: &Raw) -> Result<PathBuf, Mistake> {
        Path(Completion::File).read(raw)
    }

    fn anchor(&self, program: PathBuf, base: &std::path::Path) -> PathBuf {
        // `./ruby` is a path, although it has only one component.
        let name = !program.as_os_str().as_encoded_bytes().contains(&b'/');
        if name { program } else { anchored(&program, base) }
    }

    fn expected(&self) -> String {
        Path(Completion::File).expected()
    }

    fn completion(&self) -> Completion {
        Completion::File
    }
}

/// The target of a log: a file, or one of these words.
pub(crate) struct LogTarget(pub(crate) &'static [&'static str]);

impl LogTarget {
    /// Returns the word or the path.
    fn split(&self, raw: &Raw) -> Result<Result<&'static str, PathBuf>, Mistake> {
        if let Some(word) = self.0.iter().find(|word| raw.text() == Some(word)) {
            return Ok(Ok(word));
        }
        if *raw == Raw::Switch(false) && self.0.contains(&"off") {
            return Ok(Ok("off"));
        }
        Path(Completion::File).read(raw).map(Err).map_err(|_| Mistake::default())
    }
}

impl<T: Log> ValueKind<T> for LogTarget {
    fn read(&self, raw: &Raw) -> Result<T, Mistake> {
        self.split(raw).map(|target| target.map_or_else(T::file, T::word))
    }

    fn anchor(&self, log: T, base: &std::path::Path) -> T {
        log.anchored(base)
    }

    fn expected(&self) -> String {
        let quoted: Vec<String> = self.0.iter().map(|word| format!("\"{word}\"")).collect();
        format!("the path of a file or {}", quoted.join(" or "))
    }

    fn words(&self) -> Vec<&'static str> {
        self.0.to_vec()
    }

    fn completion(&self) -> Completion {
        Completion::File
    }
}

/// A value that [`LogTarget`] can read.
pub(crate) trait Log {
    /// Returns the value for `off` or `-`.
    fn word(word: &'static str) -> Self;
    /// Returns the value for a file.
    fn file(path: PathBuf) -> Self;
    /// Makes the file's path absolute.
    fn anchored(self, base: &std::path::Path) -> Self;
}

impl Log for AccessLog {
    fn word(word: &'static str) -> AccessLog {
        if word == "off" { AccessLog::Off } else { AccessLog::Stdout }
    }

    fn file(path: PathBuf) -> AccessLog {
        AccessLog::File(path)
    }

    fn anchored(self, base: &std::path::Path) -> AccessLog {
        match self {
            AccessLog::File(path) => AccessLog::File(anchored(&path, base)),
            other => other,
        }
    }
}

impl Log for ErrorLog {
    fn word(_: &'static str) -> ErrorLog {
        ErrorLog::Stderr
    }

    fn file(path: PathBuf) -> ErrorLog {
        ErrorLog::File(path)
    }

    fn anchored(self, base: &std::path::Path) -> ErrorLog {
        match self {
            ErrorLog::File(path) => ErrorLog::File(anchored(&path, base)),
            ErrorLog::Stderr => ErrorLog::Stderr,
        }
    }
}

/// A host name or address without a port; IPv6 with or without brackets.
pub(crate) struct Host;

impl ValueKind<String> for Host {
    fn read(&self, raw: &Raw) -> Result<String, Mistake> {
        let text = raw.text().or_mistake()?;
        if let Some(text::url::UrlParts { authority: host, .. }) = text::url::split(text) {
            let near = crate::value::bind::parse_host(host).is_ok().then(|| host.to_owned());
            return Err(Mistake::expected("a host without scheme and path").near(near));
        }
        crate::value::bind::parse_host(text).map_err(Mistake::expected)
    }

    fn expected(&self) -> String {
        "an address or host name, such as 127.0.0.1, ::1 or localhost".to_owned()
    }
}

/// The host name of a site: [`Host`] with an example that fits.
pub(crate) struct SiteHost;

impl ValueKind<String> for SiteHost {
    fn read(&self, raw: &Raw) -> Result<String, Mistake> {
        // The general description of `Host` also names addresses; this kind has its own.
        Host.read(raw).map_err(|mistake| {
            if mistake.expected == Some(Host.expected()) { Mistake::default() } else { mistake }
        })
    }

    fn expected(&self) -> String {
        "a host name such as \"www.example.com\"".to_owned()
    }
}

/// A name of letters, digits, `-` and `_`.
pub(crate) struct Word;

impl ValueKind<String> for Word {
    fn read(&self, raw: &Raw) -> Result<String, Mistake> {
        let plain = |text: &&str| {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            (1..=64).contains(&text.len()) && text.bytes().all(known)
        };
        raw.text().filter(plain).map(str::to_owned).or_mistake()
    }

    fn expected(&self) -> String {
        "1 to 64 letters, digits, - and _".to_owned()
    }
}

/// The URL of a Redis server. Only the scheme is checked here; the Redis client reads the rest.
pub(crate) struct RedisUrl;

impl ValueKind<String> for RedisUrl {
    fn read(&self, raw: &Raw) -> Result<String, Mistake> {
        let known =
            |url: &String| ["redis://", "rediss://", "unix:///"].iter().any(|scheme| url.starts_with(scheme));
        Secret.read(raw).ok().filter(known).or_mistake()
    }

    fn expected(&self) -> String {
        "a URL such as \"redis://127.0.0.1:6379/0\", \"rediss://user:password@host\" or \"unix:///run/redis.sock\"".to_owned()
    }
}

/// The name of a header field (RFC 9110 section 5.1).
pub(crate) struct HeaderName;

impl ValueKind<String> for HeaderName {
    fn read(&self, raw: &Raw) -> Result<String, Mistake> {
        let is_name = |name: &&str| name.len() <= 256 && text::is_token(name.as_bytes());
        raw.text().filter(is_name).map(str::to_owned).or_mistake()
    }

    fn expected(&self) -> String {
        "the name of a header such as \"X-Request-Id\"".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_names_and_values() {
        let read = |text: &str| Pairs.read(&Raw::Word(text.into())).is_ok();
        assert!(read("api-key=0123") && read("a=1, b=x%2Cy") && read("a="));
        for wrong in ["", "api-key", "=1", "a b=1", "a=1,", "a=1\n2", "a=ä"] {
            assert!(!read(wrong), "{wrong:?}");
        }
    }
}
