//! Media types (RFC 9110 section 8.3.1): the type without its parameters, and whether content of it is worth
//! compressing.

use smallvec::SmallVec;

/// The longest media type that is looked up, in bytes.
const MAX_TYPE: usize = 96;

/// A media type without parameters, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Essence(SmallVec<[u8; MAX_TYPE]>);

impl Essence {
    /// Returns the type as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl std::ops::Deref for Essence {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

/// Returns a media type without parameters, in lower case; `None` if it is longer than 96 bytes.
pub fn essence(media_type: &str) -> Option<Essence> {
    let text = media_type.split(';').next().unwrap_or_default().trim();
    if text.len() > MAX_TYPE {
        return None;
    }
    let mut lower = SmallVec::from_slice(text.as_bytes());
    lower.make_ascii_lowercase();
    Some(Essence(lower))
}

/// Returns whether content of this type is worth compressing; parameters after `;` are ignored.
pub fn is_compressible(media_type: &str) -> bool {
    let Some(essence) = essence(media_type) else { return false };
    match essence.as_str() {
        "image/bmp" | "image/svg+xml" | "image/vnd.microsoft.icon" | "image/x-icon" | "image/x-ms-bmp" => {
            true
        }
        "font/collection" | "font/otf" | "font/sfnt" | "font/ttf" => true,
        "application/ecmascript" | "application/javascript" | "application/x-javascript" => true,
        "application/eot" | "application/vnd.ms-fontobject" => true,
        "application/x-font-ttf" | "application/x-font-opentype" | "application/x-font-truetype" => true,
        "application/dash+xml" | "application/vnd.apple.mpegurl" | "application/x-subrip" => true,
        "application/json" | "application/xml" | "application/xml-dtd" | "application/yaml" => true,
        "application/toml" | "application/graphql" | "application/sql" | "application/x-sh" => true,
        "application/rtf" | "application/wasm" | "application/x-ndjson" => true,
        other => {
            other.starts_with("text/")
                || (other.starts_with("application/") || other.starts_with("model/"))
                    && (other.ends_with("+json") || other.ends_with("+xml"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_letter_case_do_not_matter() {
        for name in [
            "text/html",
            "Text/HTML; charset=utf-8",
            " application/JSON",
            "image/svg+xml",
            "application/x+json;v=1",
        ] {
            assert!(is_compressible(name), "{name}");
        }
        for name in ["", "text", "image/png", "application/zip", "font/woff2", "video/mp4", "audio/x+json"] {
            assert!(!is_compressible(name), "{name}");
        }
        assert!(!is_compressible(&"text/".repeat(40)));
    }
}
