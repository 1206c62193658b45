//! Renders directory listings as HTML.
//!
//! Contract:
//! 1. The page is one self-contained document: no scripts, fonts or images. It follows the reader's light or
//!    dark scheme.
//! 2. Directories come first, then files, sorted by name ignoring case. Names that begin with a dot are left out.
//! 3. Any name is shown as text, and its link leads to it: `./` and percent-encoding keep `a:b`, `?`, `#` and
//!    `//` from being read as anything but a name.
//! 4. At most [`MAX_NAMES`] names are listed; a line gives the number of those left out.

use std::cmp::Reverse;
use std::fmt::Write;
use std::time::SystemTime;
use text::percent::{SEGMENT, encode};

/// The most names on one page.
pub const MAX_NAMES: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListingEntry {
    /// The name, without a slash.
    pub name: String,
    pub directory: bool,
    /// The length in bytes; not shown for directories.
    pub size: u64,
    /// The last modification, if known.
    pub modified: Option<SystemTime>,
}

/// Renders the listing of the directory at `path` (decoded, begins and ends with `/`): a complete HTML
/// document in UTF-8.
pub fn page(path: &str, entries: Vec<ListingEntry>) -> String {
    page_of_some(path, entries, 0)
}

/// Renders some of the names; the directory has `more`.
pub fn page_of_some(path: &str, mut entries: Vec<ListingEntry>, more: usize) -> String {
    entries.retain(|entry| !entry.name.starts_with('.'));
    entries.sort_by_cached_key(order);
    let mut page = String::with_capacity(1500 + entries.len().min(MAX_NAMES) * 160);
    top(&mut page, path);
    if path != "/" {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for entry in entries.iter().take(MAX_NAMES) {
        row(&mut page, entry);
    }
    page.push_str("</tbody>\n</table>\n");
    let more = more + entries.len().saturating_sub(MAX_NAMES);
    if more > 0 {
        let _ = writeln!(page, "<p>{more} more entries are not shown: a page has at most {MAX_NAMES}.</p>");
    } else if entries.is_empty() {
        page.push_str("<p>This directory is empty.</p>\n");
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// Directories first; then by lower-case name; the exact name breaks ties.
fn order(entry: &ListingEntry) -> (Reverse<bool>, String, String) {
    (Reverse(entry.directory), entry.name.to_lowercase(), entry.name.clone())
}

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}\
h1{font-size:1.3rem;overflow-wrap:anywhere}\
table{border-collapse:collapse;width:100%}\
th,td{padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top}\
th{border-bottom:1px solid;font-weight:600}\
td:first-child{overflow-wrap:anywhere}\
td:nth-child(n+2),th:nth-child(n+2){white-space:nowrap;font-variant-numeric:tabular-nums}\
td:nth-child(2),th:nth-child(2){text-align:right}\
a{text-decoration:none}a:hover,a:focus{text-decoration:underline}";

fn top(page: &mut String, path: &str) {
    page.push_str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str(
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Index of ",
    );
    escape(page, path);
    // An empty icon: the browser would request /favicon.ico otherwise.
    page.push_str("</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>");
    page.push_str(STYLE);
    page.push_str("</style>\n</head>\n<body>\n<main>\n<h1>Index of ");
    escape(page, path);
    page.push_str("</h1>\n<table>\n<thead><tr><th scope=\"col\">Name</th><th scope=\"col\">Size</th>");
    page.push_str("<th scope=\"col\">Modified (UTC)</th></tr></thead>\n<tbody>\n");
}

fn row(page: &mut String, entry: &ListingEntry) {
    let slash = if entry.directory { "/" } else { "" };
    page.push_str("<tr><td><a href=\"./");
    page.extend(encode(entry.name.as_bytes(), SEGMENT));
    page.push_str(slash);
    page.push_str("\">");
    escape(page, &entry.name);
    page.push_str(slash);
    page.push_str("</a></td><td>");
    if !entry.directory {
        size(page, entry.size);
    }
    page.push_str("</td><td>");
    if let Some(time) = entry.modified.and_then(|time| jiff::Timestamp::try_from(time).ok()) {
        let _ = write!(page, "<time datetime=\"{time:.0}\">{}</time>", time.strftime("%Y-%m-%d %H:%M"));
    }
    page.push_str("</td></tr>\n");
}

/// Formats three digits and a binary unit; the exact number of bytes up to 1023.
fn size(page: &mut String, bytes: u64) {
    let digits = |scaled: f64| format!("{scaled:.*}", usize::from(scaled < 99.95));
    page.push_str(&text::people::size(bytes as f64, digits));
}

/// Escapes text for an element or a quoted attribute. Control and bidirectional formatting characters become �.
fn escape(page: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => page.push('\u{fffd}'),
            letter if letter.is_control() => page.push('\u{fffd}'),
            letter => page.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn entry(name: &str, directory: bool) -> ListingEntry {
        let modified = Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_999));
        ListingEntry { name: name.into(), directory, size: 4096, modified }
    }

    /// Returns the links in document order.
    fn links(page: &str) -> Vec<&str> {
        page.split("<a href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn directories_come_first() {
        let names = [("b.txt", false), ("Zoo", true), ("A.txt", false), ("apes", true), (".git", true)];
        let page = page("/x/", names.map(|(name, directory)| entry(name, directory)).into());
        assert_eq!(links(&page), ["../", "./apes/", "./Zoo/", "./A.txt", "./b.txt"]);
        assert!(page.contains("<title>Index of /x/</title>") && page.contains("4.0 KiB"));
        assert!(page.contains("<time datetime=\"2023-11-14T22:13:20Z\">2023-11-14 22:13</time>"));
    }

    #[test]
    fn the_root_has_no_parent_link() {
        let page = page("/", vec![entry(".hidden", false)]);
        assert!(
            links(&page).is_empty() && page.contains("This directory is empty") && !page.contains("hidden")
        );
    }

    #[test]
    fn names_are_escaped() {
        let odd = "<script>alert('1')</script>";
        let shown =
            page("/a&b/", vec![entry(odd, false), entry("a:b", false), entry("x?y#z%41 \"ü\u{202e}", true)]);
        assert_eq!(
            links(&shown)[1..],
            [
                "./x%3Fy%23z%2541%20%22%C3%BC%E2%80%AE/",
                "./%3Cscript%3Ealert%28%271%27%29%3C%2Fscript%3E",
                "./a%3Ab"
            ]
        );
        assert!(!shown.contains("<script") && shown.contains("&lt;script&gt;alert(&#39;1&#39;)"));
        assert!(shown.contains("x?y#z%41 &quot;ü\u{fffd}/</a>") && shown.contains("/a&amp;b/"));
    }

    #[test]
    fn a_page_is_limited() {
        let many = |count: usize| (0..count).map(|n| entry(&n.to_string(), false)).collect();
        let page_of = |count| page("/", many(count));
        assert_eq!(links(&page_of(MAX_NAMES)).len(), MAX_NAMES);
        assert!(!page_of(MAX_NAMES).contains("not shown"));
        let over = page_of(MAX_NAMES + 2);
        assert_eq!(links(&over).len(), MAX_NAMES);
        assert!(over.contains("<p>2 more entries are not shown"));
    }

    #[test]
    fn sizes() {
        for (bytes, wanted) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (102_348, "99.9 KiB"),
            (102_400, "100 KiB"),
            (1_048_064, "1.0 MiB"),
            (5_368_709_120, "5.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            let mut shown = String::new();
            size(&mut shown, bytes);
            assert_eq!(shown, wanted);
        }
    }

    #[test]
    fn times_out_of_range_are_left_out() {
        let far = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(1 << 50));
        let page = page("/", vec![ListingEntry { modified: far, ..entry("a", false) }]);
        assert!(far.is_some() && !page.contains("<time"));
    }

    proptest! {
        #[test]
        fn no_name_breaks_out(name: String, path: String) {
            let plain = page("/x/", vec![entry("a", false)]);
            let odd = page(&format!("/{path}/x"), vec![entry(&format!("a{name}"), false)]);
            for mark in ['<', '>', '"', '\''] {
                prop_assert_eq!(odd.matches(mark).count(), plain.matches(mark).count(), "{}", mark);
            }
        }

        #[test]
        fn each_link_leads_to_its_name(name in "[^./\u{0}][^/\u{0}]{0,20}") {
            let page = page("/", vec![entry(&name, false)]);
            let link = links(&page)[0].strip_prefix("./").unwrap();
            let mut bytes = Vec::new();
            let mut rest = link.as_bytes();
            while let [first, tail @ ..] = rest {
                if *first == b'%' {
                    bytes.push(u8::from_str_radix(str::from_utf8(&tail[..2]).unwrap(), 16).unwrap());
                    rest = &tail[2..];
                } else {
                    bytes.push(*first);
                    rest = tail;
                }
            }
            prop_assert_eq!(bytes, name.into_bytes());
        }
    }
}
