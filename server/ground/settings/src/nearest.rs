//! Suggestions of similar names.

/// Returns the candidate most similar to `written`, if it is similar enough for a suggestion.
pub(crate) fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_within(0.6, written, candidates)
}

/// Returns the most similar candidate with a similarity of at least `least`, from 0 to 1.
pub(crate) fn nearest_within<'a>(
    least: f64,
    written: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let written = normal(written);
    candidates
        .into_iter()
        .map(|candidate| (likeness(&written, &normal(candidate)), candidate))
        .filter(|(likeness, _)| *likeness >= least)
        // The first of equals wins, so the order of the table decides.
        .fold(None, |best: Option<(f64, &str)>, next| match best {
            Some(best) if best.0 >= next.0 => Some(best),
            _ => Some(next),
        })
        .map(|(_, candidate)| candidate)
}

/// Returns the similarity of two names, 0 to 1: by edits, or by the same words in another order.
fn likeness(written: &str, candidate: &str) -> f64 {
    let edits = strsim::normalized_damerau_levenshtein(written, candidate);
    if sorted_words(written) == sorted_words(candidate) { edits.max(0.95) } else { edits }
}

fn normal(name: &str) -> String {
    // The distance is quadratic in the length, and long garbage is not similar to any name.
    name.trim_start_matches('-')
        .chars()
        .take(64)
        .map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() })
        .collect()
}

fn sorted_words(name: &str) -> Vec<&str> {
    let mut words: Vec<&str> = name.split(['_', '.']).collect();
    words.sort_unstable();
    words
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn slips_find_their_name() {
        let names = ["workers", "threads", "limits.max_body", "environment"];
        assert_eq!(nearest("worker", names), Some("workers"));
        assert_eq!(nearest("Thread", names), Some("threads"));
        assert_eq!(nearest("limits.max-body", names), Some("limits.max_body"));
        assert_eq!(nearest("limits.body_max", names), Some("limits.max_body"));
        assert_eq!(nearest("zzz", names), None);
        assert_eq!(nearest("", names), None);
    }
}
