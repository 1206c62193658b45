//! Formats distinguished names (RFC 4514), as nginx and OpenSSL (`-nameopt RFC2253`) do.
//!
//! Why not the parser's own format: it escapes nothing, so the value `x,O=admin` would look like two attributes.

use std::fmt::Write as _;
use x509_parser::der_parser::oid::Oid;
use x509_parser::prelude::X509Name;

/// The attributes with a standard short name (RFC 4514 section 3), and the e-mail address.
const SHORT: [(&str, &str); 13] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.42", "GN"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// Formats the name on one line, the most specific attribute first.
pub(crate) fn text(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    let parts: Vec<_> = name.iter_rdn().collect();
    for (place, part) in parts.iter().rev().enumerate() {
        text.push_str(if place > 0 { "," } else { "" });
        for (place, attribute) in part.iter().enumerate() {
            text.push_str(if place > 0 { "+" } else { "" });
            text.push_str(&short(attribute.attr_type()));
            text.push('=');
            match attribute.as_str() {
                Ok(value) => escape(value, &mut text),
                Err(_) => encode(attribute.as_slice(), &mut text),
            }
        }
    }
    text
}

/// Returns the last common name.
pub(crate) fn common_name(name: &X509Name<'_>) -> Option<String> {
    let last = name.iter_common_name().last()?.as_str().ok()?;
    Some(last.chars().filter(|c| !c.is_control()).collect())
}

fn short(oid: &Oid<'_>) -> String {
    let oid = oid.to_id_string();
    SHORT.iter().find(|(known, _)| *known == oid).map_or(oid.clone(), |(_, name)| (*name).to_owned())
}

/// RFC 4514 section 2.4.
fn escape(value: &str, text: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (place, c) in value.chars().enumerate() {
        match c {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => text.extend(['\\', c]),
            '#' | ' ' if place == 0 => text.extend(['\\', c]),
            ' ' if place == last => text.extend(['\\', c]),
            c if c.is_control() => {
                for byte in c.to_string().bytes() {
                    // Writing to a String cannot fail.
                    let _ = write!(text, "\\{byte:02X}");
                }
            }
            c => text.push(c),
        }
    }
}

/// Writes a value that is not text as its bytes.
fn encode(value: &[u8], text: &mut String) {
    text.push('#');
    text.push_str(&text::hex(value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
    use x509_parser::prelude::{FromDer, X509Certificate};

    fn subject(pairs: &[(DnType, &str)]) -> (String, Option<String>) {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in pairs {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let (_, read) = X509Certificate::from_der(made.der()).unwrap();
        (text(read.subject()), common_name(read.subject()))
    }

    #[test]
    fn the_most_specific_attribute_comes_first() {
        let (dn, cn) = subject(&[
            (DnType::CountryName, "DE"),
            (DnType::OrganizationName, "Ex"),
            (DnType::CommonName, "ann"),
        ]);
        assert_eq!((dn.as_str(), cn.as_deref()), ("CN=ann,O=Ex,C=DE", Some("ann")));
    }

    #[test]
    fn nothing_in_a_value_looks_like_another_attribute() {
        let (dn, _) = subject(&[(DnType::CommonName, " x,O=admin+\"\\\n#é ")]);
        assert_eq!(dn, "CN=\\ x\\,O=admin\\+\\\"\\\\\\0A#é\\ ");
    }

    proptest! {
        #[test]
        fn a_value_stays_one_value(value in "\\PC{0,20}[,+;\\n\\\\ ]{0,3}\\PC{0,5}") {
            let mut escaped = String::new();
            escape(&value, &mut escaped);
            let mut rest = escaped.chars();
            while let Some(c) = rest.next() {
                prop_assert!(!",+;\"<>".contains(c) && !c.is_control());
                if c == '\\' {
                    rest.next();
                }
            }
        }
    }
}
