//! The table of `docs/puma-rb.md`, and the definitions of methods in Ruby: made from the methods.

use super::METHODS;
use super::methods::{Method, Ruby};

/// Returns the table with one row per method.
pub fn markdown() -> String {
    let mut text = "| method | | what it does here |\n|---|---|---|\n".to_owned();
    for method in METHODS {
        let names: Vec<String> = method.names().map(|name| format!("`{name}`")).collect();
        text += &format!("| {} | {} | {} |\n", names.join(", "), method.class.name(), method.text);
    }
    text
}

/// Returns `worker/lib/firebrick/puma_file/methods.rb`.
pub fn ruby() -> String {
    let wrapped = |begin: &str, parts: Vec<String>, separator: &str, end: &str| {
        let mut text = format!("      {begin}\n");
        let mut line = "       ".to_owned();
        for (place, part) in parts.iter().enumerate() {
            let part = format!("{part}{}", if place + 1 < parts.len() { separator } else { "" });
            if line.len() + part.len() + 1 > 118 {
                text += &format!("{line}\n");
                line = "       ".to_owned();
            }
            line += &format!(" {part}");
        }
        format!("{text}{line}\n      {end}.freeze\n")
    };
    let all = |wanted: fn(&Method) -> Vec<String>| METHODS.iter().flat_map(wanted).collect();
    let setters = all(|method| match method.ruby {
        Ruby::Setter => method.names().map(str::to_owned).collect(),
        _ => Vec::new(),
    });
    let optional = all(|method| match method.ruby {
        Ruby::Optional(default) => method.names().map(|name| format!("{name}: {default}")).collect(),
        _ => Vec::new(),
    });
    let hooks = all(|method| match (method.ruby, method.also) {
        (Ruby::Hook, []) => vec![format!("{}: []", method.name)],
        (Ruby::Hook, also) => vec![format!("{}: %i[{}]", method.name, also.join(" "))],
        _ => Vec::new(),
    });
    format!(
        "\
# frozen_string_literal: true

# Made from server/ground/settings/src/puma/methods.rs by `FIREBRICK_REGENERATE=1 cargo test -p settings puma`.

module Firebrick
  class PumaFile
    # The methods of Puma's DSL that need no code of their own.
    module Methods
      # They set an option of their name to their argument.
{}
      # The same, with a default.
{}
      # They keep their blocks, under all their names.
{}    end
  end
end
",
        wrapped("SETTERS = %i[", setters, "", "]"),
        wrapped("OPTIONAL = {", optional, ",", "}"),
        wrapped("HOOKS = {", hooks, ",", "}"),
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    const BEGIN: &str =
        "<!-- Made from the methods by `FIREBRICK_REGENERATE=1 cargo test -p settings docs`. -->\n";
    const END: &str = "<!-- The end of it. -->\n";

    #[test]
    fn methods_rb_of_puma_is_up_to_date() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../worker/lib/firebrick/puma_file/methods.rb");
        let made = super::ruby();
        if std::env::var_os("FIREBRICK_REGENERATE").is_some() {
            std::fs::write(&path, &made).expect("methods.rb can be written");
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == made, "methods.rb is old: FIREBRICK_REGENERATE=1 cargo test -p settings puma");
    }

    #[test]
    fn docs_puma_rb_md_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/puma-rb.md");
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
