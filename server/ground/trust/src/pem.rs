//! Converts PEM text to DER (RFC 7468). Errors name only a place, because a text may be a private key, even by mistake.
//!
//! Contract: no input causes a panic, no message contains a byte of the text, and text outside of sections is skipped.

use crate::secret::{Secret, TextPosition};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, SectionKind};

const BEGIN: &[u8] = b"-----BEGIN ";

/// Returns all sections of a text, in their order.
///
/// # Errors
/// A section is malformed. The text is the rest of a sentence, with the line.
pub fn sections(text: &Secret) -> Result<Vec<(SectionKind, Vec<u8>)>, String> {
    let mut why = "it is not PEM";
    let mut escaped = false;
    let read = text.parse(|bytes| {
        let mut rest = bytes;
        let mut all = Vec::new();
        loop {
            match pem::from_buf(&mut rest) {
                Ok(Some(section)) => all.push(section),
                Ok(None) => return Ok(all),
                Err(error) => {
                    let (line, number) = section_before(bytes, bytes.len() - rest.len());
                    escaped = line.windows(2).any(|two| two == br"\n" || two == br"\r");
                    why = reason(&error);
                    return Err(TextPosition::line(number));
                }
            }
        }
    });
    read.map_err(|place| match escaped {
        true => format!(
            "its line breaks are written out, as a backslash and a letter{place}: replace each by a line break \
             (printf '%b' \"$KEY\" does)"
        ),
        false => format!("{why}{place}"),
    })
}

/// Returns the certificates of a text, in their order.
///
/// # Errors
/// See [`sections`].
pub fn certificates(text: &Secret) -> Result<Vec<CertificateDer<'static>>, String> {
    let is_one = |(kind, der)| (kind == SectionKind::Certificate).then(|| CertificateDer::from(der));
    Ok(sections(text)?.into_iter().filter_map(is_one).collect())
}

fn reason(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => {
            "it ends in the middle of a section (-----END is missing): was it written completely?"
        }
        pem::Error::IllegalSectionStart { .. } => {
            "a line that begins with -----BEGIN does not end with -----"
        }
        pem::Error::Base64Decode(_) => "what is between -----BEGIN and -----END is not Base64",
        pem::Error::SectionTooLarge => "a section is too large",
        _ => "it is not PEM",
    }
}

/// Returns the last line before byte `end` that begins a section, with its number.
fn section_before(bytes: &[u8], end: usize) -> (&[u8], usize) {
    let read = bytes.get(..end).unwrap_or(bytes);
    let lines = read.split(|&byte| byte == b'\n').zip(1..);
    lines.filter(|(line, _)| line.starts_with(BEGIN)).last().unwrap_or((&[], 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIKeyKeyKeyKeyKeyKeyKeyKeyKeyKeyKey\n-----END PRIVATE KEY-----\n";

    #[test]
    fn mistakes_have_a_place_and_show_nothing() {
        let refused = |text: &str| {
            let why = sections(&Secret::from(text)).unwrap_err();
            let shown =
                ["KeyKey", "MC4C", "77, 67, 52", "45, 45, 45"].into_iter().find(|part| why.contains(part));
            assert_eq!(shown, None, "{why}");
            why
        };
        for text in [KEY.replace('\n', r"\n"), KEY.trim().replace('\n', r"\n"), KEY.replace('\n', r"\r\n")] {
            assert!(
                refused(&format!("# ours\n{text}"))
                    .contains("written out, as a backslash and a letter (line 2)")
            );
        }
        assert!(
            refused(&KEY.replace("KEY-----\nMC", "KEY----- MC")).contains("does not end with ----- (line 1)")
        );
        assert!(refused(&KEY.replace('\n', " ")).contains("(line 1)"));
        assert!(refused(&KEY.replace("-----END", "")).contains("-----END is missing"));
        assert!(refused(&KEY.replace("MC4", "M!4")).contains("not Base64 (line 1)"));
    }

    proptest! {
        /// Random files: no four bytes of the content appear in a message, as text or as numbers.
        #[test]
        fn no_message_holds_a_byte_of_the_text(
            secret in "[0-9A-Z]{24}",
            before in "(-----BEGIN (CERTIFICATE|PRIVATE KEY|RSA PRIVATE KEY|X)(-----)?|\\\\n|\n| ){0,4}",
            after in "(-----END (CERTIFICATE|PRIVATE KEY|X)(-----)?|\\\\n|\n|!){0,4}",
        ) {
            if let Err(why) = sections(&Secret::from(&*format!("{before}{secret}{after}"))) {
                for part in secret.as_bytes().windows(6) {
                    prop_assert!(!why.contains(std::str::from_utf8(part).unwrap()), "{}", why);
                    let numbers = part.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
                    prop_assert!(!why.contains(&numbers), "{}", why);
                }
            }
        }
    }
}
