//! Implements password hashes: strict parsing, constant-time verification.
//!
//! Why these crates: `bcrypt` and `sha-crypt` are maintained (the latter by RustCrypto, like the digests) and
//! pure Rust. The C library's crypt(3) would need unsafe code and differs between systems.

use crate::md5_crypt;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bcrypt::HashParts;
use sha_crypt::{PasswordVerifier, ShaCrypt};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;

/// The largest bcrypt cost, as in `htpasswd -C`: about ten seconds.
const MAX_BCRYPT_COST: u32 = 17;

/// The largest number of SHA-crypt rounds: a few seconds.
const MAX_SHA_ROUNDS: u32 = 5_000_000;

pub(super) enum Hash {
    /// `$apr1$` and `$1$`.
    Md5Crypt { magic: &'static str, salt: Vec<u8>, digest: [u8; md5_crypt::ENCODED] },
    /// `$2a$`, `$2b$`, `$2y$`.
    Bcrypt(String),
    /// `$5$`, `$6$`.
    ShaCrypt(String),
    /// `{SHA}` with an empty salt, `{SSHA}`.
    Sha1 { salt: Vec<u8>, digest: [u8; 20] },
    /// `{PLAIN}`.
    Plain(Vec<u8>),
}

/// Shows the method only: hashes do not belong in logs.
impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hash::Md5Crypt { .. } => "md5-crypt",
            Hash::Bcrypt(_) => "bcrypt",
            Hash::ShaCrypt(_) => "sha-crypt",
            Hash::Sha1 { .. } => "sha1",
            Hash::Plain(_) => "plain",
        })
    }
}

impl Hash {
    /// Parses a hash.
    ///
    /// # Errors
    /// Describes the mistake, as the rest of a sentence that starts with "the password of … ". The text
    /// itself is left out: it may be a password.
    pub(super) fn parse(text: &str) -> Result<Hash, String> {
        if let Some(rest) = text.strip_prefix('{') {
            return braces(rest);
        }
        match text.strip_prefix('$').and_then(|rest| rest.split_once('$')) {
            Some(("apr1", rest)) => md5("$apr1$", rest),
            Some(("1", rest)) => md5("$1$", rest),
            Some(("2a" | "2b" | "2y", _)) => blowfish(text),
            Some(("5", rest)) => sha(text, rest, 43),
            Some(("6", rest)) => sha(text, rest, 86),
            Some((
                method @ ("2x" | "y" | "gy" | "7" | "sha1" | "md5" | "argon2i" | "argon2id" | "scrypt"),
                _,
            )) => Err(format!("has a hash of method ${method}$, which is not supported; {MAKE_ONE}")),
            _ if text.is_empty() => Err(format!("is empty; {MAKE_ONE}")),
            _ if is_des(text) => Err(format!(
                "looks like crypt(3)'s DES, which uses only eight characters of the password and is cracked in hours; {MAKE_ONE}"
            )),
            _ => Err(format!(
                "is not a supported hash; {MAKE_ONE} (in a shell, put the hash in single quotes: it contains $)"
            )),
        }
    }

    /// Returns whether verification takes long enough to delay other clients of the thread.
    pub(super) fn is_slow(&self) -> bool {
        matches!(self, Hash::Md5Crypt { .. } | Hash::Bcrypt(_) | Hash::ShaCrypt(_))
    }

    /// Returns whether the password matches. Takes the same time for all wrong passwords of one length.
    pub(super) fn verify(&self, password: &[u8]) -> bool {
        match self {
            Hash::Md5Crypt { magic, salt, digest } => {
                md5_crypt::digest(password, magic, salt).ct_eq(digest).into()
            }
            Hash::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Hash::ShaCrypt(hash) => ShaCrypt::default().verify_password(password, hash.as_str()).is_ok(),
            Hash::Sha1 { salt, digest } => {
                let actual = Sha1::new().chain_update(password).chain_update(salt).finalize();
                actual[..].ct_eq(digest).into()
            }
            Hash::Plain(wanted) => Sha256::digest(password)[..].ct_eq(&Sha256::digest(wanted)[..]).into(),
        }
    }
}

const MAKE_ONE: &str = "make a hash with `openssl passwd -apr1` or `htpasswd -nB USER`";

fn braces(rest: &str) -> Result<Hash, String> {
    match rest.split_once('}') {
        Some(("SHA", text)) => sha1(text).filter(|(salt, _)| salt.is_empty()),
        Some(("SSHA", text)) => sha1(text).filter(|(salt, _)| !salt.is_empty()),
        Some(("PLAIN", text)) => return Ok(Hash::Plain(text.as_bytes().to_vec())),
        _ => {
            return Err(format!(
                "has a scheme in braces other than {{SHA}}, {{SSHA}} and {{PLAIN}}; {MAKE_ONE}"
            ));
        }
    }
    .map(|(salt, digest)| Hash::Sha1 { salt, digest })
    .ok_or_else(|| damaged("SHA-1"))
}

/// Returns salt and digest; the encoded text has the digest first.
fn sha1(text: &str) -> Option<(Vec<u8>, [u8; 20])> {
    let bytes = STANDARD.decode(text).ok()?;
    let (digest, salt) = bytes.split_first_chunk()?;
    Some((salt.to_vec(), *digest))
}

fn md5(magic: &'static str, rest: &str) -> Result<Hash, String> {
    let parts = rest.split_once('$').filter(|(salt, _)| salt.len() <= 8 && is_crypt_text(salt));
    let digest = |text: &str| text.as_bytes().try_into().ok().filter(|_| is_crypt_text(text));
    parts
        .and_then(|(salt, text)| Some(Hash::Md5Crypt { magic, salt: salt.into(), digest: digest(text)? }))
        .ok_or_else(|| damaged("MD5"))
}

fn blowfish(text: &str) -> Result<Hash, String> {
    let parts: HashParts = text.parse().map_err(|_| damaged("bcrypt"))?;
    match parts.get_cost() {
        4..=MAX_BCRYPT_COST => Ok(Hash::Bcrypt(text.to_owned())),
        cost => Err(format!("has a bcrypt hash of cost {cost}; from 4 to {MAX_BCRYPT_COST} are allowed")),
    }
}

/// Parses `[rounds=N$]salt$digest`. `length`: the digest's length in characters.
fn sha(text: &str, rest: &str, length: usize) -> Result<Hash, String> {
    let mut fields: Vec<&str> = rest.split('$').collect();
    if let Some(rounds) = fields.first().and_then(|field| field.strip_prefix("rounds=")) {
        match rounds.parse::<u32>() {
            Ok(1000..=MAX_SHA_ROUNDS) => fields.remove(0),
            _ => {
                return Err(format!(
                    "has a SHA-crypt hash with a number of rounds that is not from 1000 to {MAX_SHA_ROUNDS}"
                ));
            }
        };
    }
    match fields[..] {
        [salt, digest]
            if (1..=16).contains(&salt.len())
                && digest.len() == length
                && is_crypt_text(salt)
                && is_crypt_text(digest) =>
        {
            Ok(Hash::ShaCrypt(text.to_owned()))
        }
        _ => Err(damaged("SHA-crypt")),
    }
}

fn damaged(method: &str) -> String {
    format!(
        "has a damaged {method} hash: characters are missing, added or changed; copy it again or {MAKE_ONE}"
    )
}

fn is_crypt_text(text: &str) -> bool {
    text.bytes().all(|byte| md5_crypt::ALPHABET.contains(&byte))
}

/// Returns whether the text has two characters of salt and eleven of digest.
fn is_des(text: &str) -> bool {
    text.len() == 13 && is_crypt_text(text)
}

#[cfg(test)]
#[path = "hash_tests.rs"]
mod tests;
