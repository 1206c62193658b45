//! Detects file names that contain a hash of the content: a changed file has a new name, so it can be cached
//! without limit.
//!
//! Contract: missing a hash is better than mistaking a word or a date for one, because a response cached for
//! a year cannot be recalled.

/// Returns whether the last segment of `path` contains a content hash.
pub(super) fn has(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let Some((stem, extension)) = name.rsplit_once('.') else { return false };
    if matches!(extension, "html" | "htm") {
        return false;
    }
    let in_assets = path.ends_with(&format!("/assets/{name}"));
    // The first piece is the name, even if it looks like a hash (`deadbee1.txt`).
    stem.split(['.', '-', '_']).skip(1).any(is_hex)
        || stem.split('.').any(|part| ends_with_short_hash(part, extension, in_assets))
}

/// Matches the hashes of Rails, Propshaft, webpack and Jekyll: eight or more lower-case hexadecimal digits.
/// Decimal digits alone may be a date.
fn is_hex(piece: &str) -> bool {
    let digits = piece.bytes().filter(u8::is_ascii_digit).count();
    let letters = piece.bytes().filter(|byte| matches!(byte, b'a'..=b'f')).count();
    let length = piece.len();
    digits + letters == length && digits > 0 && letters > 0 && (8..=128).contains(&length)
}

/// Matches the hashes of esbuild and Hanami (`-GVDAEYE5`) and of Vite (`-BxY3_k2Z`): eight characters after a
/// dash, mixed as in no word.
fn ends_with_short_hash(part: &str, extension: &str, in_assets: bool) -> bool {
    let bytes = part.as_bytes();
    let Some(at) = bytes.len().checked_sub(9).filter(|&at| at > 0 && bytes[at] == b'-') else { return false };
    let hash = &bytes[at + 1..];
    let count = |class: fn(&u8) -> bool| hash.iter().filter(|byte| class(byte)).count();
    let (upper, lower, digits) =
        (count(u8::is_ascii_uppercase), count(u8::is_ascii_lowercase), count(u8::is_ascii_digit));
    let marks = hash.iter().filter(|byte| b"-_".contains(byte)).count();
    if upper + lower + digits + marks != 8 || upper == 0 {
        return false;
    }
    let script = matches!(extension, "js" | "mjs" | "css" | "map");
    if lower + marks == 0 {
        // Base 32; without a digit it may be a word, but hardly in the name of a script.
        let base32 = hash.iter().all(|byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7'));
        return base32 && (digits > 0 || script);
    }
    let changes =
        hash.windows(2).filter(|pair| pair[0].is_ascii_uppercase() != pair[1].is_ascii_uppercase()).count();
    // `HomePage` changes case three times too, but is pronounceable; and Vite writes into `assets`.
    let hard = hash
        .split(|byte| !byte.is_ascii_alphabetic() || b"aeiouyAEIOUY".contains(byte))
        .any(|run| run.len() > 2);
    let letters_only = script && (changes >= 4 || in_assets && changes >= 3 && hard);
    lower > 0 && (digits > 0 && changes >= 2 || letters_only)
}

#[cfg(test)]
mod tests {
    use super::has;

    #[test]
    fn hashes_of_common_tools() {
        for name in [
            "/assets/app-3f2a9c81.js",
            "/app.3f2a9c81d0.css",
            "/assets/application-4dcd0ff3a5e2a1b1c8e1a5b1c8e1a5b1c8e1a5b14dcd0ff3a5e2a1b1c8e1a5b1.css",
            "/assets/application-3f2a9c81.css.map",
            "/static/js/main.3f2a9c81.chunk.js",
            "/assets/index-BxY3_k2Z.js",
            "/assets/index-Bx-3_k2Z.css",
            "/assets/index-DiwrgTda.js",
            "/assets/app-GVDAEYE5.css",
            "/assets/app-GVDAEYEC.js",
            "/assets/logo-d41d8cd98f00b204e9800998ecf8427e.png",
        ] {
            assert!(has(name), "{name}");
        }
    }

    #[test]
    fn words_and_dates_are_not_hashes() {
        for name in [
            "/app.js",
            "/photo-20240101.jpg",
            "/logo-ORIGINAL.png",
            "/deadbee1.txt",
            "/jquery-3.7.1.min.js",
            "/index-Homepage.js",
            "/assets/index-HomePage.js",
            "/index-DiwrgTda.txt",
            "/a-facade.js",
            "/post-3f2a9c81.html",
            "/font-awesome.css",
            "/dir-3f2a9c81/app.js",
            "/no-extension-3f2a9c81",
            "/about-Contacts.css",
            "/README-FIRST123.txt",
            "/GVDAEYE5.js",
            "/é-ééééé.js",
        ] {
            assert!(!has(name), "{name}");
        }
    }
}
