//! The table of `docs/puma-rb.md`, made from the methods.

use super::METHODS;

/// Returns the table with one row per method.
pub fn markdown() -> String {
    let mut text = "| method | | what it does here |\n|---|---|---|\n".to_owned();
    for method in METHODS {
        let names: Vec<String> = method.names().map(|name| format!("`{name}`")).collect();
        text += &format!("| {} | {} | {} |\n", names.join(", "), method.class.name(), method.text);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    const BEGIN: &str =
        "<!-- Made from the methods by `FIREBRICK_REGENERATE=1 cargo test -p settings docs`. -->\n";
    const END: &str = "<!-- The end of it. -->\n";

    #[test]
    fn docs_puma_rb_md_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/puma-rb.md");
        let kept = std::fs::read_to_string(&path).expect("docs/puma-rb.md");
        let (before, rest) = kept.split_once(BEGIN).expect("the place of the table");
        let (_, after) = rest.split_once(END).expect("the end of the table");
        let made = format!("{before}{BEGIN}{}{END}{after}", super::markdown());
        if std::env::var_os("FIREBRICK_REGENERATE").is_some() {
            std::fs::write(&path, &made).expect("docs/puma-rb.md can be written");
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == made, "docs/puma-rb.md is old: FIREBRICK_REGENERATE=1 cargo test -p settings docs");
    }
}
