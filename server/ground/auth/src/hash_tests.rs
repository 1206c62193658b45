//! Tests password hashes made by other programs.

use super::*;
use proptest::prelude::*;
use std::process::Command;

/// Hashes of "correct horse" by openssl 3.0, htpasswd 2.4, and crypt(3) of libxcrypt.
const REAL: [&str; 14] = [
    "$apr1$saltsalt$EGVZDNN6gOqijy.tv9axG/",
    "$apr1$BB8ArzYs$SnIKUQrw87bqUEJ9w63zh0",
    "$1$abc$mEYYKBYwc4Odg5SoPgnFr/",
    "$5$0123456789abcdef$GkVfGOcpKLcryIiNM.uN6AQV7DQsJJPqGu0QqsSSMrD",
    "$6$salty$KGxUHugEyITiuZNRKB7PRHmZvlvCIl6mhy6A/EFwgfBQV976JH..0kKa3CXlF1BZiMGKAXhRlIL78fWjEUY9W/",
    "$5$rounds=1234$saltstring$JwEtARLq22IuEMOkyrnAzPCpAMczLA.b/Lpn1eZkj.1",
    "$6$rounds=1000$saltstring$YiR6NSM0LQXmu7vAhkMXfkdYk7qtFouVx1Mdr3HmzXspT8kONjlpU3CsV7ezCB62uXJoAdaagsH4ck7/tB9js.",
    "$2y$05$C2yG9PGx1EX1ZbxuwdiJX.UkWzm6myaJl2iKHOT6C7xXcX/ns8Q1q",
    "$2a$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2",
    "$2b$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2",
    "{SHA}L55TUjtiq8FBorTWAZ0jy6g129A=",
    "{SSHA}YjOxnlnw8lITpqjG3t+XV9jV7otwZXBwZXI=",
    "{PLAIN}correct horse",
    "{PLAIN}{SHA}",
];

#[test]
fn hashes_of_other_programs() {
    for text in &REAL[..13] {
        let hash = Hash::parse(text).unwrap();
        assert!(hash.verify(b"correct horse"), "{text}");
        for wrong in [&b""[..], b"correct hors", b"correct horse ", b"Correct horse", &[0xff; 100]] {
            assert!(!hash.verify(wrong), "{text} {wrong:?}");
        }
    }
    assert!(Hash::parse(REAL[13]).unwrap().verify(b"{SHA}"));
}

/// Returns the hash that `program` prints; `None` if it is not installed.
fn made_by(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    let line = String::from_utf8(output.stdout).unwrap();
    Some(line.trim().trim_start_matches("someone:").to_owned())
}

#[test]
fn newly_made_hashes_of_installed_programs() {
    for password in ["x", "open sesame", "pä$$wörd:with%odd\\letters", "0123456789abcdef0123456789abcdef0"]
    {
        let openssl =
            ["-apr1", "-1", "-5", "-6"].map(|method| made_by("openssl", &["passwd", method, password]));
        let htpasswd = [["-nbm"], ["-nbs"], ["-nbB"], ["-nbp"]]
            .map(|[how]| (how, made_by("htpasswd", &[how, "someone", password])))
            .map(|(how, text)| {
                text.map(|text| if how == "-nbp" { format!("{{PLAIN}}{text}") } else { text })
            });
        for text in openssl.into_iter().chain(htpasswd).flatten() {
            let hash = Hash::parse(&text).unwrap_or_else(|message| panic!("{text} {message}"));
            assert!(hash.verify(password.as_bytes()), "{text}");
            assert!(!hash.verify(format!("{password}x").as_bytes()), "{text}");
        }
    }
}

#[test]
fn bcrypt_uses_72_bytes_as_in_other_programs() {
    let Some(text) = made_by("htpasswd", &["-nbB", "someone", &"x".repeat(72)]) else { return };
    let hash = Hash::parse(&text).unwrap();
    assert!(hash.verify(&[b'x'; 72]) && hash.verify(&[b'x'; 80]) && !hash.verify(&[b'x'; 71]));
}

#[test]
fn slow_methods_and_debug_output() {
    let slow: Vec<bool> = REAL.iter().map(|text| Hash::parse(text).unwrap().is_slow()).collect();
    assert!(slow[..10].iter().all(|&slow| slow) && slow[10..].iter().all(|&slow| !slow));
    assert_eq!(format!("{:?}", Hash::parse("{PLAIN}secret").unwrap()), "plain");
}

#[test]
fn rejected_hashes_have_a_helpful_message() {
    for (text, wanted) in [
        ("", "is empty"),
        ("hunter2", "openssl passwd -apr1"),
        ("$ecret", "openssl passwd -apr1"),
        ("$", "openssl passwd -apr1"),
        ("RCVO8qVE5U2xA", "DES"),
        ("$y$j9T$abc$def", "$y$"),
        ("$2x$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2", "$2x$"),
        ("$argon2id$v=19$m=1$a$b", "$argon2id$"),
        ("{CRYPT}abc", "{SHA}"),
        ("{SHA", "{SHA}"),
        ("{SHA}L55TUjtiq8FBorTWAZ0jy6g129A", "damaged SHA-1"),
        ("{SHA}YjOxnlnw8lITpqjG3t+XV9jV7otwZXBwZXI=", "damaged SHA-1"),
        ("{SSHA}L55TUjtiq8FBorTWAZ0jy6g129A=", "damaged SHA-1"),
        ("$apr1$saltsalt$EGVZDNN6gOqijy.tv9axG", "damaged MD5"),
        ("$apr1$saltsalts$EGVZDNN6gOqijy.tv9axG/", "damaged MD5"),
        ("$apr1$$alts$EGVZDNN6gOqijy.tv9axG/", "damaged MD5"),
        ("$apr1$abc", "damaged MD5"),
        ("$2y$05$C2yG9PGx1EX1ZbxuwdiJX.UkWzm6myaJl2iKHOT6C7xXcX/ns8Q1", "damaged bcrypt"),
        ("$2y$99$C2yG9PGx1EX1ZbxuwdiJX.UkWzm6myaJl2iKHOT6C7xXcX/ns8Q1q", "cost 99"),
        ("$2y$31$C2yG9PGx1EX1ZbxuwdiJX.UkWzm6myaJl2iKHOT6C7xXcX/ns8Q1q", "cost 31"),
        (
            "$5$rounds=999999999$saltstring$JwEtARLq22IuEMOkyrnAzPCpAMczLA.b/Lpn1eZkj.1",
            "rounds that is not from 1000 to",
        ),
        ("$5$rounds=x$saltstring$JwEtARLq22IuEMOkyrnAzPCpAMczLA.b/Lpn1eZkj.1", "rounds"),
        ("$5$saltstring$JwEtARLq22IuEMOkyrnAzPCpAMczLA", "damaged SHA-crypt"),
        ("$6$", "damaged SHA-crypt"),
    ] {
        let message = Hash::parse(text).err().unwrap_or_else(|| panic!("{text} was accepted"));
        assert!(message.contains(wanted), "{text}: {message}");
        assert!(
            text.len() < 7 || !message.contains(text),
            "the text itself stays out of the message: {message}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_is_parsed_without_panic(text: String) {
        let _ = Hash::parse(&text);
    }

    #[test]
    fn a_damaged_hash_accepts_no_password(which in 10_usize..13, index in 1_usize..40, character in "[!-~]") {
        let mut text = REAL[which].to_owned();
        let index = index % text.len();
        prop_assume!(text[index..=index] != character);
        text.replace_range(index..=index, &character);
        if let Ok(hash) = Hash::parse(&text) {
            prop_assert!(!hash.verify(b"correct horse"), "{}", text);
        }
    }
}
