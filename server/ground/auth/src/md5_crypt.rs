//! Implements the password hash of `htpasswd -m` and `openssl passwd -apr1` (`$apr1$`), and the older `$1$`
//! that it is derived from.
//!
//! Why not a crate: the method is a page long and will not change, and the crates that implement it are
//! unmaintained. It is a thousand rounds of MD5: slow enough for a good password, and the method that the
//! Heroku buildpack for static sites required.

use md5::{Digest, Md5};

/// The alphabet of crypt(3).
pub(super) const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The length of the encoded digest in bytes.
pub(super) const ENCODED: usize = 22;

/// Bytes of the digest that are encoded as four characters each.
const GROUPS: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];

/// Returns the digest of a password, as in a file after the last `$`. `magic` is `$apr1$` or `$1$`; `salt`
/// has at most eight bytes.
pub(super) fn digest(password: &[u8], magic: &str, salt: &[u8]) -> [u8; ENCODED] {
    let mut sum = first(password, magic, salt);
    for round in 0..1000 {
        let mut next = Md5::new();
        let odd = round % 2 == 1;
        next.update(if odd { password } else { &sum[..] });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if odd { &sum[..] } else { password });
        sum = next.finalize().into();
    }
    encode(&sum)
}

/// Returns the digest that the first round starts with.
fn first(password: &[u8], magic: &str, salt: &[u8]) -> [u8; 16] {
    let inner: [u8; 16] =
        Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize().into();
    let mut outer = Md5::new().chain_update(password).chain_update(magic).chain_update(salt);
    for piece in password.chunks(inner.len()) {
        outer.update(&inner[..piece.len()]);
    }
    // For each bit of the length, from the lowest: NUL for a one, the password's first byte for a zero.
    let mut bits = password.len();
    while bits > 0 {
        outer.update(if bits & 1 == 1 { &[0][..] } else { &password[..1] });
        bits >>= 1;
    }
    outer.finalize().into()
}

/// Encodes six bits per character, lowest first.
fn encode(sum: &[u8; 16]) -> [u8; ENCODED] {
    let mut out = [0; ENCODED];
    let mut characters = out.iter_mut();
    let mut put = |mut bits: u32, count: usize| {
        for character in characters.by_ref().take(count) {
            *character = ALPHABET[bits as usize & 63];
            bits >>= 6;
        }
    };
    for [high, middle, low] in GROUPS {
        put(u32::from_be_bytes([0, sum[high], sum[middle], sum[low]]), 4);
    }
    put(u32::from(sum[11]), 2);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digests made by `openssl passwd`.
    #[test]
    fn same_digests_as_openssl() {
        for (password, magic, salt, wanted) in [
            ("correct horse", "$apr1$", "saltsalt", "EGVZDNN6gOqijy.tv9axG/"),
            ("correct horse", "$1$", "abc", "mEYYKBYwc4Odg5SoPgnFr/"),
            ("grün und länger als sechzehn Bytes", "$apr1$", "xyz", "HuRtvrrIAF0mwxykdFFqK0"),
            ("", "$apr1$", "xyz", "Pix4eE3fQHxJjb6LqtyMK1"),
        ] {
            let found = digest(password.as_bytes(), magic, salt.as_bytes());
            assert_eq!(str::from_utf8(&found), Ok(wanted), "{password}");
        }
    }
}
