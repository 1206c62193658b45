//! Determines media types by file name, and which types have a charset or are worth compressing.
//!
//! Why a table before `mime_guess`: its list is IANA's plus an old one of Apache's. For types that browsers
//! depend on (scripts, modules, manifests, fonts, web images and video) it lags behind RFC 9239, RFC 8081 and
//! others.
//!
//! Contract:
//! 1. The extension is the text after the last dot of the last segment, in any case. The file's content is not read.
//! 2. With `compat` the types are those of nginx's `mime.types`, and the charset is added as in its `charset_types`.

use representation::media_type::essence;
use std::borrow::Cow;

const UNKNOWN: &str = "application/octet-stream";

/// Returns the media type of a file by its extension; `application/octet-stream` if unknown.
pub fn media_type(path: &str) -> &'static str {
    let mut buffer = [0; MAX_EXTENSION];
    let Some(extension) = extension(path, &mut buffer) else {
        // iOS fetches this name and expects this type.
        return if path.ends_with("/apple-app-site-association") { "application/json" } else { UNKNOWN };
    };
    modern(extension).or_else(|| mime_guess::from_ext(extension).first_raw()).unwrap_or(UNKNOWN)
}

/// Returns the Content-Type field of a file: [`media_type`] and, if the type takes one, the charset. With
/// `compat`, as nginx sets it.
pub fn content_type(path: &str, charset: Option<&str>, compat: bool) -> Cow<'static, str> {
    let media_type = if compat { nginx_media_type(path) } else { media_type(path) };
    match charset {
        Some(charset) if has_charset(media_type, compat) => {
            Cow::Owned(format!("{media_type}; charset={charset}"))
        }
        _ => Cow::Borrowed(media_type),
    }
}

/// Adds the charset to a Content-Type from another source, if the type takes one.
pub(crate) fn with_charset(media_type: &str, charset: Option<&str>) -> Cow<'static, str> {
    let takes = !media_type.contains(';') && has_charset(media_type, false);
    match charset.filter(|_| takes) {
        Some(charset) => Cow::Owned(format!("{media_type};charset={charset}")),
        None => Cow::Owned(media_type.to_owned()),
    }
}

/// Returns whether the buildpack's nginx compresses this type; parameters after `;` are ignored.
pub fn nginx_compressible(media_type: &str) -> bool {
    matches!(
        essence(media_type).as_deref(),
        Some(
            "text/html"
                | "text/plain"
                | "text/css"
                | "application/json"
                | "application/x-javascript"
                | "text/xml"
                | "application/xml"
                | "application/xml+rss"
                | "text/javascript"
        )
    )
}

/// Returns whether the type takes a charset. JSON has none (RFC 8259), and images declare their own.
fn has_charset(media_type: &str, compat: bool) -> bool {
    match media_type {
        "text/html" | "text/xml" | "text/plain" | "text/vnd.wap.wml" => true,
        "application/javascript" | "application/rss+xml" => true,
        _ if compat => false,
        "application/xml" | "application/atom+xml" | "application/xhtml+xml" => true,
        other => other.starts_with("text/"),
    }
}

/// The longest extension that is looked up.
const MAX_EXTENSION: usize = 16;

/// Returns the extension of the last segment in lower case.
fn extension<'b>(path: &str, buffer: &'b mut [u8; MAX_EXTENSION]) -> Option<&'b str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let (_, extension) = name.rsplit_once('.')?;
    lower_case(extension, buffer)
}

fn lower_case<'b>(text: &str, buffer: &'b mut [u8]) -> Option<&'b str> {
    let copy = buffer.get_mut(..text.len())?;
    copy.copy_from_slice(text.as_bytes());
    copy.make_ascii_lowercase();
    std::str::from_utf8(copy).ok()
}

/// Types that the common list lacks, has outdated, or defines differently than web servers do.
fn modern(extension: &str) -> Option<&'static str> {
    Some(match extension {
        "html" | "htm" | "shtml" => "text/html",
        "xhtml" | "xht" => "application/xhtml+xml",
        "css" => "text/css",
        "js" | "mjs" | "cjs" => "text/javascript",
        "json" | "map" => "application/json",
        "jsonld" => "application/ld+json",
        "geojson" => "application/geo+json",
        "topojson" => "application/json",
        "ndjson" | "jsonl" => "application/x-ndjson",
        "webmanifest" => "application/manifest+json",
        "appcache" => "text/cache-manifest",
        "wasm" => "application/wasm",
        "xml" | "xsd" | "rng" => "text/xml",
        "xsl" | "xslt" => "application/xslt+xml",
        "rss" => "application/rss+xml",
        "atom" => "application/atom+xml",
        "txt" | "text" | "log" | "conf" | "ini" => "text/plain",
        "md" | "markdown" => "text/markdown",
        "csv" => "text/csv",
        "ics" => "text/calendar",
        "vcf" => "text/vcard",
        "vtt" => "text/vtt",
        "srt" => "application/x-subrip",
        "yaml" | "yml" => "application/yaml",
        "toml" => "application/toml",
        "svg" | "svgz" => "image/svg+xml",
        "ico" | "cur" => "image/x-icon",
        "avif" => "image/avif",
        "webp" => "image/webp",
        "jxl" => "image/jxl",
        "heic" => "image/heic",
        "heif" => "image/heif",
        "apng" => "image/apng",
        "bmp" => "image/bmp",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        "otf" => "font/otf",
        "ttc" | "otc" => "font/collection",
        "eot" => "application/vnd.ms-fontobject",
        "mp4" | "m4v" => "video/mp4",
        "webm" => "video/webm",
        "ogv" => "video/ogg",
        "mkv" => "video/matroska",
        "mov" => "video/quicktime",
        "ts" | "m2ts" => "video/mp2t",
        "m3u8" => "application/vnd.apple.mpegurl",
        "mpd" => "application/dash+xml",
        "mp3" => "audio/mpeg",
        "m4a" => "audio/mp4",
        "aac" => "audio/aac",
        "flac" => "audio/flac",
        "wav" => "audio/wav",
        "weba" => "audio/webm",
        "oga" | "ogg" | "opus" => "audio/ogg",
        "glb" => "model/gltf-binary",
        "gltf" => "model/gltf+json",
        "usdz" => "model/vnd.usdz+zip",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        "zst" => "application/zstd",
        "7z" => "application/x-7z-compressed",
        "apk" => "application/vnd.android.package-archive",
        "mobileconfig" => "application/x-apple-aspen-config",
        "pkpass" => "application/vnd.apple.pkpass",
        "bin" | "deb" | "dll" | "dmg" | "exe" | "img" | "iso" | "msi" | "rpm" => UNKNOWN,
        _ => return None,
    })
}

/// Returns the type in nginx's `mime.types`.
fn nginx_media_type(path: &str) -> &'static str {
    let mut buffer = [0; MAX_EXTENSION];
    let Some(extension) = extension(path, &mut buffer) else { return UNKNOWN };
    match extension {
        "html" | "htm" | "shtml" => "text/html",
        "css" => "text/css",
        "xml" => "text/xml",
        "gif" => "image/gif",
        "jpeg" | "jpg" => "image/jpeg",
        "js" => "application/javascript",
        "atom" => "application/atom+xml",
        "rss" => "application/rss+xml",
        "mml" => "text/mathml",
        "txt" => "text/plain",
        "jad" => "text/vnd.sun.j2me.app-descriptor",
        "wml" => "text/vnd.wap.wml",
        "htc" => "text/x-component",
        "avif" => "image/avif",
        "png" => "image/png",
        "svg" | "svgz" => "image/svg+xml",
        "tif" | "tiff" => "image/tiff",
        "wbmp" => "image/vnd.wap.wbmp",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "jng" => "image/x-jng",
        "bmp" => "image/x-ms-bmp",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "jar" | "war" | "ear" => "application/java-archive",
        "json" => "application/json",
        "hqx" => "application/mac-binhex40",
        "doc" => "application/msword",
        "pdf" => "application/pdf",
        "ps" | "eps" | "ai" => "application/postscript",
        "rtf" => "application/rtf",
        "m3u8" => "application/vnd.apple.mpegurl",
        "kml" => "application/vnd.google-earth.kml+xml",
        "kmz" => "application/vnd.google-earth.kmz",
        "xls" => "application/vnd.ms-excel",
        "eot" => "application/vnd.ms-fontobject",
        "ppt" => "application/vnd.ms-powerpoint",
        "odg" => "application/vnd.oasis.opendocument.graphics",
        "odp" => "application/vnd.oasis.opendocument.presentation",
        "ods" => "application/vnd.oasis.opendocument.spreadsheet",
        "odt" => "application/vnd.oasis.opendocument.text",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "wmlc" => "application/vnd.wap.wmlc",
        "wasm" => "application/wasm",
        "7z" => "application/x-7z-compressed",
        "cco" => "application/x-cocoa",
        "jardiff" => "application/x-java-archive-diff",
        "jnlp" => "application/x-java-jnlp-file",
        "run" => "application/x-makeself",
        "pl" | "pm" => "application/x-perl",
        "prc" | "pdb" => "application/x-pilot",
        "rar" => "application/x-rar-compressed",
        "rpm" => "application/x-redhat-package-manager",
        "sea" => "application/x-sea",
        "swf" => "application/x-shockwave-flash",
        "sit" => "application/x-stuffit",
        "tcl" | "tk" => "application/x-tcl",
        "der" | "pem" | "crt" => "application/x-x509-ca-cert",
        "xpi" => "application/x-xpinstall",
        "xhtml" => "application/xhtml+xml",
        "xspf" => "application/xspf+xml",
        "zip" => "application/zip",
        "mid" | "midi" | "kar" => "audio/midi",
        "mp3" => "audio/mpeg",
        "ogg" => "audio/ogg",
        "m4a" => "audio/x-m4a",
        "ra" => "audio/x-realaudio",
        "3gpp" | "3gp" => "video/3gpp",
        "ts" => "video/mp2t",
        "mp4" => "video/mp4",
        "mpeg" | "mpg" => "video/mpeg",
        "mov" => "video/quicktime",
        "webm" => "video/webm",
        "flv" => "video/x-flv",
        "m4v" => "video/x-m4v",
        "mng" => "video/x-mng",
        "asx" | "asf" => "video/x-ms-asf",
        "wmv" => "video/x-ms-wmv",
        "avi" => "video/x-msvideo",
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use representation::media_type::is_compressible;

    #[test]
    fn types_of_the_web() {
        for (name, wanted) in [
            ("/index.html", "text/html"),
            ("/APP.JS", "text/javascript"),
            ("/a/b.mjs", "text/javascript"),
            ("app.3f2a9c81.css", "text/css"),
            ("app.js.map", "application/json"),
            ("site.webmanifest", "application/manifest+json"),
            ("x.wasm", "application/wasm"),
            ("x.avif", "image/avif"),
            ("x.png", "image/png"),
            ("x.jpg", "image/jpeg"),
            ("x.woff2", "font/woff2"),
            ("feed.xml", "text/xml"),
            ("feed.rss", "application/rss+xml"),
            ("feed.atom", "application/atom+xml"),
            ("README.md", "text/markdown"),
            ("x.tar.gz", "application/gzip"),
            ("/.well-known/apple-app-site-association", "application/json"),
        ] {
            assert_eq!(media_type(name), wanted, "{name}");
        }
    }

    #[test]
    fn directories_and_unknown_extensions_give_no_type() {
        for name in ["", "/", "LICENSE", "/site.css/LICENSE", "x.", "x.averylongendingindeed", "x.ü", "."] {
            assert_eq!(media_type(name), UNKNOWN, "{name}");
        }
    }

    #[test]
    fn charsets() {
        let ours = |name| content_type(name, Some("UTF-8"), false);
        assert_eq!(ours("a.html"), "text/html; charset=UTF-8");
        assert_eq!(ours("a.css"), "text/css; charset=UTF-8");
        assert_eq!(ours("a.js"), "text/javascript; charset=UTF-8");
        assert_eq!(ours("a.xml"), "text/xml; charset=UTF-8");
        assert_eq!(ours("a.atom"), "application/atom+xml; charset=UTF-8");
        assert_eq!(ours("a.json"), "application/json");
        assert_eq!(ours("a.webmanifest"), "application/manifest+json");
        assert_eq!(ours("a.svg"), "image/svg+xml");
        assert_eq!(ours("a"), UNKNOWN);
        assert_eq!(content_type("a.html", None, false), "text/html");
    }

    #[test]
    fn charsets_as_nginx_sets_them() {
        let nginx = |name| content_type(name, Some("utf-8"), true);
        assert_eq!(nginx("a.html"), "text/html; charset=utf-8");
        assert_eq!(nginx("a.js"), "application/javascript; charset=utf-8");
        assert_eq!(nginx("a.rss"), "application/rss+xml; charset=utf-8");
        assert_eq!(nginx("a.xml"), "text/xml; charset=utf-8");
        assert_eq!(nginx("a.txt"), "text/plain; charset=utf-8");
        assert_eq!(nginx("a.wml"), "text/vnd.wap.wml; charset=utf-8");
        assert_eq!(nginx("a.css"), "text/css");
        assert_eq!(nginx("a.json"), "application/json");
        assert_eq!(nginx("a.atom"), "application/atom+xml");
        assert_eq!(nginx("a.md"), UNKNOWN);
    }

    #[test]
    fn compressible_types() {
        let names =
            ["html", "css", "js", "json", "svg", "wasm", "webmanifest", "rss", "ttf", "otf", "ico", "md"];
        for extension in names {
            assert!(is_compressible(media_type(&format!("x.{extension}"))), "{extension}");
        }
        let names =
            ["png", "jpg", "webp", "avif", "mp4", "mp3", "zip", "gz", "woff", "woff2", "pdf", "br", "usdz"];
        for extension in names {
            assert!(!is_compressible(media_type(&format!("x.{extension}"))), "{extension}");
        }
        assert!(nginx_compressible("text/css") && nginx_compressible("application/json; charset=x"));
        assert!(!nginx_compressible("application/javascript") && !nginx_compressible("image/svg+xml"));
    }

    proptest! {
        #[test]
        fn any_name_has_a_type_that_is_a_valid_field(name: String, compat: bool) {
            let value = content_type(&name, Some("UTF-8"), compat);
            prop_assert!(value.contains('/') && value.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        }

        #[test]
        fn letter_case_does_not_matter(name in "[a-zA-Z]{1,6}\\.[a-zA-Z0-9]{1,6}") {
            prop_assert_eq!(media_type(&name), media_type(&name.to_ascii_lowercase()));
        }
    }
}
