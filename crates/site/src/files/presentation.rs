//! How a file is presented at a path: everything that does not change from one request to the next.

use super::document::Document;
use crate::coding::Coding;
use crate::media_type;
use handler::Fields;
use std::borrow::Cow;

/// What a site says about all its files.
#[derive(Debug, Clone)]
pub(crate) struct Style {
    /// Charset of text; `None` for none.
    pub charset: Option<String>,
    /// The buildpack's types, codings and limits.
    pub compat: bool,
    /// Whether to compress on the fly.
    pub compress: bool,
    /// Whether to look for precompressed side-cars.
    pub precompressed: bool,
}

impl Style {
    /// Whether compressing makes such content smaller.
    pub(crate) fn compresses(&self, content_type: &str) -> bool {
        if self.compat {
            media_type::nginx_compressible(content_type)
        } else {
            media_type::is_compressible(content_type)
        }
    }
}

/// How a file is presented at a path.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Presentation {
    /// All fields of a 200 with the file as it is.
    pub whole: Fields,
    /// Names the file together with these fields, never reused.
    pub id: u64,
    /// Other codings than identity come into question: the answer varies.
    pub codable: bool,
    pub content_type: Cow<'static, str>,
    /// Fields of the site's rules: a name that is there already is replaced.
    rules: Box<[(String, String)]>,
}

impl Presentation {
    /// `id` is of [`super::store::Store::next_id`].
    pub(crate) fn new(
        id: u64,
        document: &Document,
        rules: Vec<(String, String)>,
        style: &Style,
    ) -> Presentation {
        let content_type = media_type::content_type(&document.path, style.charset.as_deref(), style.compat);
        let compressible = style.compresses(&content_type);
        let mut presentation = Presentation {
            id,
            content_type,
            codable: compressible && (style.compress || style.precompressed),
            rules: rules.into(),
            whole: Fields::default(),
        };
        presentation.whole = presentation.fields(&Labels::of(document, false), Coding::Identity, true);
        presentation.whole = std::mem::take(&mut presentation.whole).freeze();
        presentation
    }

    /// The fields of a 200 or 206 of a representation.
    pub(crate) fn fields(&self, labels: &Labels, coding: Coding, ranges: bool) -> Fields {
        let mut fields = Fields::with_capacity(8, 256);
        fields.push(b"Content-Type", self.content_type.as_bytes());
        self.version(&mut fields, labels, coding);
        if ranges {
            fields.push(b"Accept-Ranges", b"bytes");
        }
        self.finish(&mut fields);
        fields
    }

    /// The fields of a 304: those that the cache of the client has to update (RFC 9110 section 15.4.5).
    pub(crate) fn not_modified(&self, labels: &Labels) -> Fields {
        let mut fields = Fields::with_capacity(6, 192);
        self.version(&mut fields, labels, Coding::Identity);
        self.finish(&mut fields);
        fields.retain(|name, _| !name.eq_ignore_ascii_case(b"content-type"));
        fields
    }

    /// Fields that have nothing to do with a version of the file.
    pub(crate) fn bare(&self) -> Fields {
        let mut fields = Fields::default();
        self.finish(&mut fields);
        fields
    }

    fn version(&self, fields: &mut Fields, labels: &Labels, coding: Coding) {
        fields.push(b"Last-Modified", labels.modified.as_bytes());
        if labels.weak {
            fields.push(b"ETag", format!("W/{}", labels.tag).as_bytes());
        } else {
            fields.push(b"ETag", labels.tag.as_bytes());
        }
        if let Some(token) = coding.token() {
            fields.push(b"Content-Encoding", token.as_bytes());
        }
        if self.codable {
            fields.push(b"Vary", b"Accept-Encoding");
        }
    }

    fn finish(&self, fields: &mut Fields) {
        apply(fields, self.rules.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    }
}

/// Sets fields: a name that is there already is replaced. `Vary` is added to, because caches need all of it.
pub(crate) fn apply<'a>(fields: &mut Fields, rules: impl Iterator<Item = (&'a str, &'a str)>) {
    for (name, value) in rules {
        if !name.eq_ignore_ascii_case("vary") {
            fields.retain(|there, _| !there.eq_ignore_ascii_case(name.as_bytes()));
        }
        // An empty value takes a field away, as nginx's add-on for headers does.
        if !value.is_empty() {
            fields.push(name.as_bytes(), value.as_bytes());
        }
    }
}

/// What a response says about the version of its representation.
#[derive(Debug)]
pub(crate) struct Labels {
    /// The opaque part of the entity tag, with quotes.
    pub tag: String,
    pub weak: bool,
    pub modified: String,
}

impl Labels {
    pub(crate) fn of(document: &Document, weak: bool) -> Labels {
        Labels { tag: document.tag(), weak, modified: httpdate::fmt_http_date(document.modified) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_replace_and_take_away() {
        let mut fields = Fields::default();
        fields.push(b"Content-Type", b"text/html");
        fields.push(b"ETag", b"\"1\"");
        fields.push(b"Vary", b"Accept-Encoding");
        apply(
            &mut fields,
            [("content-type", "text/x"), ("etag", ""), ("Vary", "Origin"), ("X", "1")].into_iter(),
        );
        let all: Vec<_> = fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        let text = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
        assert_eq!(
            all,
            [
                text(b"Vary", b"Accept-Encoding"),
                text(b"content-type", b"text/x"),
                text(b"Vary", b"Origin"),
                text(b"X", b"1")
            ]
        );
    }
}
