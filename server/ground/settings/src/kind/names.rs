//! Domain names for certificates, and URLs of CAs.

use text::OrMistake;

use super::{Mistake, ValueKind};
use crate::raw::Raw;
use crate::value::acme::DomainKind;

pub(crate) struct Domains;

impl ValueKind<Vec<String>> for Domains {
    fn read(&self, raw: &Raw) -> Result<Vec<String>, Mistake> {
        let mut domains: Vec<String> = Vec::new();
        for part in raw.parts().iter() {
            let text = part.text().or_mistake()?.trim();
            if text.is_empty() {
                continue;
            }
            let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
            let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
            if DomainKind::of(&name).is_none() {
                return Err(judge(&name));
            }
            if !domains.contains(&name) {
                domains.push(name);
            }
        }
        Ok(domains)
    }

    fn expected(&self) -> String {
        "names such as \"example.com\", \"*.example.com\" or an IP address".to_owned()
    }

    fn is_list(&self) -> bool {
        true
    }
}

/// Returns the mistake in a name for which no CA can issue a certificate.
fn judge(name: &str) -> Mistake {
    if name.contains("://") || name.contains('/') {
        return Mistake::expected("a name without scheme and path, such as example.com");
    }
    if !name.is_ascii() {
        return Mistake::expected("an international name in its ASCII form, which begins with xn--");
    }
    if name == "localhost" || name.ends_with(".localhost") || !name.contains('.') {
        return Mistake::expected(
            "a public name such as example.com: no CA issues certificates for this one",
        );
    }
    Mistake::default()
}

/// The URL of a CA's directory.
pub(crate) struct DirectoryUrl;

impl ValueKind<String> for DirectoryUrl {
    fn read(&self, raw: &Raw) -> Result<String, Mistake> {
        let text = Url.read(raw)?;
        let host = text.strip_prefix("http://").map(|rest| rest.split(['/', ':']).next().unwrap_or_default());
        match host {
            None | Some("localhost" | "127.0.0.1") => Ok(text),
            Some(_) => {
                Err(Mistake::expected("a URL that begins with https://; http:// is for this machine only"))
            }
        }
    }

    fn expected(&self) -> String {
        "the URL of a CA's directory, such as \"https://acme-v02.api.letsencrypt.org/directory\"".to_owned()
    }
}

/// A URL that begins with `https://` or `http://`.
pub(crate) struct Url;

impl ValueKind<String> for Url {
    fn read(&self, raw: &Raw) -> Result<String, Mistake> {
        let usable = |text: &&str| {
            let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
            rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
                && text.len() <= 2_000
                && text.bytes().all(|byte| byte.is_ascii_graphic())
                && !text.contains('#')
        };
        raw.text().filter(usable).map(str::to_owned).or_mistake()
    }

    fn expected(&self) -> String {
        "a URL such as \"https://example.com/path\"".to_owned()
    }
}
