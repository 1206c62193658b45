//! Encodings, digests and random bytes: Base64, percent-encoding, Digest, HMAC, SecureRandom.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD, URL_SAFE};
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use mruby::{Tape, TapeValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};

/// The most random bytes per call.
const MAX_RANDOM: usize = 1 << 20;

/// Bytes that are not escaped in a form or a component of a URI.
const COMPONENT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'*');
/// Bytes that are not escaped by RFC 3986.
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn bytes<'a>(args: &[TapeValue<'a>], index: usize) -> &'a [u8] {
    args.get(index).and_then(TapeValue::text).unwrap_or_default()
}

fn flag(args: &[TapeValue<'_>], index: usize) -> bool {
    args.get(index) == Some(&TapeValue::Bool(true))
}

/// `bytes, url-safe`: returns text.
pub(super) fn base64_encode(args: &[TapeValue<'_>], tape: &mut Tape) {
    let engine = if flag(args, 1) { &URL_SAFE } else { &STANDARD };
    tape.str(engine.encode(bytes(args, 0)));
}

/// `text, url-safe, strict`: returns bytes. Without `strict` other characters are skipped.
pub(super) fn base64_decode(args: &[TapeValue<'_>], tape: &mut Tape) {
    let strict = flag(args, 2);
    let padding = if strict && !flag(args, 1) {
        DecodePaddingMode::RequireCanonical
    } else {
        DecodePaddingMode::Indifferent
    };
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(padding)
        .with_decode_allow_trailing_bits(!strict);
    let alphabet = if flag(args, 1) { alphabet::URL_SAFE } else { alphabet::STANDARD };
    let engine = GeneralPurpose::new(&alphabet, config);
    let decoded = if strict { engine.decode(bytes(args, 0)) } else { engine.decode(lenient(bytes(args, 0))) };
    match decoded {
        Ok(decoded) => tape.str(decoded),
        Err(_) => tape.fault("ArgumentError", "invalid base64"),
    };
}

/// Returns the digits before the padding, without a last digit that does not complete a byte.
fn lenient(text: &[u8]) -> Vec<u8> {
    let mut digits: Vec<u8> = text
        .iter()
        .copied()
        .take_while(|byte| *byte != b'=')
        .filter(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
        .collect();
    if digits.len() % 4 == 1 {
        digits.pop();
    }
    digits
}

/// `text, kind`: returns percent-encoded text. Kinds: 0 a form (blank is `+`), 1 a component (blank is
/// `%20`), 2 by RFC 3986.
pub(super) fn percent(args: &[TapeValue<'_>], tape: &mut Tape) {
    let kind = args.get(1).and_then(TapeValue::int).unwrap_or_default();
    let set = if kind == 2 { &UNRESERVED } else { &COMPONENT };
    let text = percent_encode(bytes(args, 0), set).to_string();
    tape.str(if kind == 0 { text.replace("%20", "+") } else { text });
}

/// `text, whether + is a blank`: returns bytes.
pub(super) fn unpercent(args: &[TapeValue<'_>], tape: &mut Tape) {
    let text = bytes(args, 0);
    let blanks: Vec<u8>;
    let text = if flag(args, 1) && text.contains(&b'+') {
        blanks = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
        blanks.as_slice()
    } else {
        text
    };
    tape.str(percent_decode(text).collect::<Vec<u8>>());
}

/// `name, bytes`: returns the digest.
pub(super) fn digest(args: &[TapeValue<'_>], tape: &mut Tape) {
    let data = bytes(args, 1);
    let digest = match name(args).as_slice() {
        b"MD5" => Md5::digest(data).to_vec(),
        b"SHA1" => Sha1::digest(data).to_vec(),
        b"SHA256" => Sha256::digest(data).to_vec(),
        b"SHA384" => Sha384::digest(data).to_vec(),
        b"SHA512" => Sha512::digest(data).to_vec(),
        other => return unknown(other, tape),
    };
    tape.str(digest);
}

/// `name, key, bytes`: returns the authentication code.
pub(super) fn hmac(args: &[TapeValue<'_>], tape: &mut Tape) {
    let (key, data) = (bytes(args, 1), bytes(args, 2));
    macro_rules! code {
        ($digest:ty) => {
            Hmac::<$digest>::new_from_slice(key)
                .map(|mac| mac.chain_update(data).finalize().into_bytes().to_vec())
        };
    }
    let code = match name(args).as_slice() {
        b"MD5" => code!(Md5),
        b"SHA1" => code!(Sha1),
        b"SHA256" => code!(Sha256),
        b"SHA384" => code!(Sha384),
        b"SHA512" => code!(Sha512),
        other => return unknown(other, tape),
    };
    match code {
        Ok(code) => tape.str(code),
        Err(error) => tape.fault("ArgumentError", error.to_string()),
    };
}

/// Normalizes a name: `sha-256` and `SHA256` are the same.
fn name(args: &[TapeValue<'_>]) -> Vec<u8> {
    bytes(args, 0).to_ascii_uppercase().into_iter().filter(|byte| *byte != b'-').collect()
}

fn unknown(name: &[u8], tape: &mut Tape) {
    let name = name.escape_ascii();
    tape.fault(
        "ArgumentError",
        format!("unsupported digest algorithm ({name}): expected MD5, SHA1, SHA256, SHA384 or SHA512"),
    );
}

/// `count`: returns this many random bytes for cryptographic use.
pub(super) fn random(args: &[TapeValue<'_>], tape: &mut Tape) {
    let count = args.first().and_then(TapeValue::int).and_then(|count| usize::try_from(count).ok());
    let Some(count) = count.filter(|count| *count <= MAX_RANDOM) else {
        tape.fault("ArgumentError", format!("expected a number of bytes from 0 to {MAX_RANDOM}"));
        return;
    };
    let mut random = vec![0; count];
    match getrandom::fill(&mut random) {
        Ok(()) => tape.str(random),
        Err(error) => tape.fault("RuntimeError", format!("the system gives no random bytes: {error}")),
    };
}

/// `a, b`: returns whether they are equal, in constant time.
pub(super) fn equal(args: &[TapeValue<'_>], tape: &mut Tape) {
    let (a, b) = (bytes(args, 0), bytes(args, 1));
    // Comparing digests reveals nothing about the texts.
    let (a, b) = (Sha256::digest(a), Sha256::digest(b));
    tape.bool(a.iter().zip(b.iter()).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0);
}
