//! Suggests the known name nearest to a misspelt one ("did you mean").

/// Returns the candidate nearest to `written`, if one is near enough; the first of equals.
pub(super) fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Long garbage resembles no name, and the distance takes quadratic time.
    let normal = |name: &str| -> String {
        name.chars()
            .take(64)
            .map(|c| if c == '-' || c == ' ' { '_' } else { c.to_ascii_lowercase() })
            .collect()
    };
    let written = normal(written);
    let mut best = (0.6, None);
    for candidate in candidates {
        let candidate_normal = normal(candidate);
        let begins = written.len() > 2 && candidate_normal.len() > 2;
        let begins =
            begins && (written.starts_with(&candidate_normal) || candidate_normal.starts_with(&written));
        let edits = strsim::normalized_damerau_levenshtein(&written, &candidate_normal);
        let likeness = if begins { edits.max(0.6) } else { edits };
        if likeness >= best.0 && (best.1.is_none() || likeness > best.0) {
            best = (likeness, Some(candidate));
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn misspelt_names_are_found() {
        let names = ["clean_urls", "https_only", "routes", "root"];
        assert_eq!(nearest("clean_url", names), Some("clean_urls"));
        assert_eq!(nearest("Clean-URLs", names), Some("clean_urls"));
        assert_eq!(nearest("route", names), Some("routes"));
        assert_eq!(nearest("https", names), Some("https_only"));
        assert_eq!(nearest("zzz", names), None);
        assert_eq!(nearest("", names), None);
    }
}
