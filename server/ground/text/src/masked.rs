//! Text for people without the secrets in it.
//!
//! Why: a message quotes the user's input, and the input may contain a secret in the wrong place: the text of
//! a key instead of its path, a password in the URL of an origin, a misspelt `auth_tokn`. Messages end up in
//! logs and in tickets.
//!
//! Contract: a password or token in a URL, the value behind a name such as `auth_token`, and blocks of PEM
//! other than certificates are replaced by [`MASK`]. All other text is unchanged. Works on any text.

use std::borrow::Cow;

/// The text in place of a secret.
pub const MASK: &str = "(not shown)";

/// Parts of names whose values are secrets.
const NAMES: [&str; 9] =
    ["password", "passwd", "passphrase", "secret", "token", "tokn", "api_key", "hmac", "key_pem"];
const BEGIN: &str = "-----BEGIN ";
/// A run of base64 of this length is the text of a key or a hash, not a word or a part of a path.
const LONG: usize = 48;

/// Returns the text without its secrets.
pub fn masked(text: &str) -> Cow<'_, str> {
    let is_suspect = text.contains('@')
        || text.contains(BEGIN)
        || text.len() >= LONG
        || NAMES.iter().any(|name| contains(text, name));
    if !is_suspect {
        return Cow::Borrowed(text);
    }
    let text = without_pem(text);
    let text = each_word(&text, without_userinfo);
    let text = each_word(&text, without_base64);
    Cow::Owned(without_values(&text))
}

fn contains(text: &str, name: &str) -> bool {
    text.as_bytes().windows(name.len()).any(|part| part.eq_ignore_ascii_case(name.as_bytes()))
}

/// Replaces blocks of PEM; one without an end reaches to the end of the line, or to the end of the quotes around it.
fn without_pem(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(BEGIN) {
        let block = &rest[at..];
        let (marker, end) = ("-----END ", "-----");
        let length = block
            .find(marker)
            .and_then(|found| {
                let label = found + marker.len();
                block[label..].find(end).map(|more| label + more + end.len())
            })
            .or_else(|| block.find(['"', '\'', '\n']))
            .unwrap_or(block.len());
        out.push_str(&rest[..at]);
        let is_public = block[BEGIN.len()..].starts_with("CERTIFICATE") || !has_key(block);
        let length = if is_public { BEGIN.len() } else { length };
        out.push_str(if is_public { BEGIN } else { MASK });
        rest = &block[length..];
    }
    out + rest
}

/// Returns whether the first line of a block of PEM is followed by the text of a key. A message may only name
/// that line.
fn has_key(block: &str) -> bool {
    let Some((_, behind)) = block[BEGIN.len()..].split_once("-----") else { return false };
    let mut content = behind.trim_start();
    while let Some(rest) = content.strip_prefix("\\n").or_else(|| content.strip_prefix("\\r")) {
        content = rest.trim_start();
    }
    // A word of a sentence is shorter, and so is a field of an encrypted key, which has a colon.
    let word = content.split(char::is_whitespace).next().unwrap_or_default();
    word.len() >= 16 || word.ends_with(':')
}

/// Rewrites the parts of a text between spaces and quotes.
fn each_word(text: &str, rewrite: impl Fn(&str) -> Option<String>) -> String {
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>');
    let mut out = String::with_capacity(text.len());
    for word in text.split_inclusive(ends) {
        let bare = word.trim_end_matches(ends);
        match rewrite(bare) {
            Some(other) => out.extend([other.as_str(), &word[bare.len()..]]),
            None => out.push_str(word),
        }
    }
    out
}

/// Rewrites `redis://user:password@host`, also with a scheme or a slash missing.
fn without_userinfo(word: &str) -> Option<String> {
    let at = word.rfind('@')?;
    let slashes = word[..at].find("//").map(|slashes| slashes + 2);
    let start = slashes.or_else(|| word[..at].rfind('/').map(|slash| slash + 1)).unwrap_or_default();
    let userinfo = &word[start..at];
    let is_secret = match userinfo.split_once(':') {
        // The example of our own messages.
        Some(("user", "password")) => false,
        Some((scheme, password)) => scheme != "mailto" && !password.is_empty(),
        None => slashes.is_some() && !userinfo.is_empty() && !userinfo.contains('/'),
    };
    is_secret.then(|| format!("{}{MASK}{}", &word[..start], &word[at..]))
}

fn without_base64(word: &str) -> Option<String> {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    let run = word.split(|c| !is_base64(c)).find(|run| {
        let any = |of: fn(&u8) -> bool| run.bytes().any(|byte| of(&byte));
        run.len() >= LONG
            && any(u8::is_ascii_uppercase)
            && any(u8::is_ascii_lowercase)
            && any(u8::is_ascii_digit)
            && (run.contains('+') || !run.contains('/'))
    })?;
    Some(word.replace(run, MASK))
}

/// Replaces the values in `auth_token: "x"`, `:secret=>"x"`, `password=x`.
fn without_values(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    while let Some(start) = rest.find(in_name) {
        let length = rest[start..].find(|c| !in_name(c)).unwrap_or(rest.len() - start);
        let (name, behind) = (&rest[start..start + length], &rest[start + length..]);
        out.push_str(&rest[..start + length]);
        rest = behind;
        if NAMES.iter().any(|known| contains(&name.replace('-', "_"), known))
            && let Some((before, value)) = value(behind)
        {
            out.extend([&behind[..before], MASK]);
            rest = &behind[before + value..];
        }
    }
    out + rest
}

/// Returns where the value begins in a text behind a name, and its length.
fn value(behind: &str) -> Option<(usize, usize)> {
    let open = behind.strip_prefix('"').unwrap_or(behind).trim_start_matches(' ');
    let (sign, bare) = if let Some(rest) = open.strip_prefix("=>").or_else(|| open.strip_prefix('=')) {
        (rest, true)
    } else {
        // "the token: it is missing" is a sentence.
        (open.strip_prefix(':')?, false)
    };
    let value = sign.trim_start_matches(' ');
    let start = behind.len() - value.len();
    let length = match value.chars().next()? {
        quote @ ('"' | '\'') => closing(value, quote),
        '(' | '[' | '{' => 0,
        _ if bare => {
            value.find(|c: char| c.is_whitespace() || "&,;\"')}]".contains(c)).unwrap_or(value.len())
        }
        _ => 0,
    };
    // An empty text is not secret.
    let is_empty = length == 0 || matches!(&value[..length], "\"\"" | "''");
    (!is_empty).then_some((start, length))
}

/// Returns the length of a quoted text, with its quotes.
fn closing(value: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in value.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD: &str = "s3cr3tS3CR3T0123";

    #[test]
    fn what_is_secret_is_replaced_wherever_it_was_typed() {
        for text in [
            "bind \"redis://:WORD@127.0.0.1:1\": expected an address",
            "store = \"redis://user:WORD@[::1\"",
            "redis://WORD@host",
            "redis://:WORD/x@host, expected",
            "redis://:WORD?x@host",
            "a/http:/user:WORD@127.0.0.1:1 is none",
            "//u:WORD@h",
            "unix:///u:WORD@h",
            "tcp://127.0.0.1:77?token=WORD&x=1",
            "--bind ssl://h:1?key_password=WORD: expected",
            "activate_control_app \"tcp://h:1\", auth_tokn: \"WORD\"",
            "{:control_auth_token=>\"WORD\"}:Hash",
            "{\"secret_key_base\"=>\"a\\\"WORD\"}",
            "redis://127.0.0.1:1?password=WORD",
            "keypem: \"-----BEGIN RSA PRIVATE KEY-----\\nWORD\\n-----END RSA PRIVATE KEY-----\\n\", x",
            "key = -----BEGIN RSA PRIVAT KEY-----WORD",
            "the key /app/MIIEogIBAAKCAQEA7q0bvmjmaZuiNRDijzyU0IOBK4bgs53FtGAZfTyOnTwgDl1tWORD+x is missing",
        ] {
            let shown = masked(&text.replace("WORD", WORD)).into_owned();
            assert!(!shown.contains(WORD) && shown.contains(MASK), "{text}: {shown}");
            assert_eq!(masked(&shown), shown, "{text}");
        }
    }

    #[test]
    fn all_else_stays() {
        for text in [
            "bind \"tcp://[::]:3000\"",
            "unix://@name",
            "contact = \"mailto:me@example.com\"",
            "admin@example.com",
            "--control-token: a value is required",
            "control_token = (not shown)",
            "control_token = \"\"",
            "the token: it is missing",
            "the certificate /etc/ssl/Private2/certs/live/example/fullchain.pem cannot be read: No such file",
            "/home/Ann/Projects2/some/very/long/path/to/some/application/config",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            "the text between -----BEGIN PRIVATE KEY----- and its -----END line is not Base64 (line 1)",
            "expected redis://user:password@host:port/db, rediss://… or unix:///path",
            "https://example.com/@user/x",
            "",
            "é@",
        ] {
            assert_eq!(masked(text), text);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived(text in "\\PC{0,80}", filler in "[ -~é\"'=:@/-]{0,60}") {
            let text = format!("{text}{filler}-----BEGIN {text}token{filler}");
            let _ = masked(&text);
        }
    }
}
