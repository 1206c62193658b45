//! Base64, Digest, HMAC, SecureRandom.

use super::vm::assert_rows;

#[test]
fn base64() {
    assert_rows(&[
        ("Base64.strict_encode64('a?>')", r#""YT8+""#),
        ("Base64.urlsafe_encode64('a?>')", r#""YT8-""#),
        ("Base64.urlsafe_encode64('a', padding: false)", r#""YQ""#),
        (
            "Base64.encode64('a' * 46)",
            r#""YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh\nYQ==\n""#,
        ),
        (r#"Base64.decode64("YW\nFh!")"#, r#""aaa""#),
        ("Base64.strict_decode64('YQ==')", r#""a""#),
        ("Base64.strict_decode64('YQ')", "ArgumentError: invalid base64"),
        ("Base64.urlsafe_decode64('YQ')", r#""a""#),
        ("Base64.urlsafe_decode64('YT8-')", r#""a?>""#),
    ]);
}

#[test]
fn digests() {
    assert_rows(&[
        ("Digest::MD5.hexdigest('abc')", r#""900150983cd24fb0d6963f7d28e17f72""#),
        ("Digest::SHA1.hexdigest('abc')", r#""a9993e364706816aba3e25717850c26c9cd0d89d""#),
        (
            "Digest::SHA256.hexdigest('abc')",
            r#""ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad""#,
        ),
        ("(Digest::SHA256.new << 'a').update('bc').hexdigest == Digest::SHA256.hexdigest('abc')", "true"),
        ("Digest::SHA512.digest('abc').size", "64"),
        ("Digest::SHA384.base64digest('')[0, 8]", r#""OLBgp1Gs""#),
        (
            "OpenSSL::HMAC.hexdigest('SHA256', 'key', 'The quick brown fox jumps over the lazy dog')",
            r#""f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8""#,
        ),
        ("Digest::HMAC.hexdigest('sha1', 'k', 'd') == OpenSSL::HMAC.hexdigest('SHA1', 'k', 'd')", "true"),
        (
            "OpenSSL::HMAC.digest('ROT13', 'k', 'd')",
            "ArgumentError: unsupported digest algorithm (ROT13): expected MD5, SHA1, SHA256, SHA384 or SHA512",
        ),
        ("[OpenSSL.secure_compare('a', 'a'), OpenSSL.secure_compare('a', 'ab')]", "[true, false]"),
    ]);
}

#[test]
fn random() {
    assert_rows(&[
        ("SecureRandom.hex(4).match?(/\\A\\h{8}\\z/)", "true"),
        ("SecureRandom.uuid.match?(/\\A\\h{8}-\\h{4}-4\\h{3}-[89ab]\\h{3}-\\h{12}\\z/)", "true"),
        ("SecureRandom.random_bytes.size", "16"),
        ("SecureRandom.hex != SecureRandom.hex", "true"),
        ("SecureRandom.alphanumeric(20).match?(/\\A[A-Za-z0-9]{20}\\z/)", "true"),
        ("SecureRandom.urlsafe_base64.match?(/\\A[\\w-]{22}\\z/)", "true"),
        ("100.times.map { SecureRandom.random_number(3) }.uniq.sort", "[0, 1, 2]"),
        ("100.times.map { SecureRandom.random_number(5..6) }.uniq.sort", "[5, 6]"),
        ("f = SecureRandom.random_number; f >= 0 && f < 1", "true"),
        ("SecureRandom.random_bytes(-1)", "ArgumentError: expected a number of bytes from 0 to 1048576"),
    ]);
}
