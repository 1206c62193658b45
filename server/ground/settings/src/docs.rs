//! Generates `docs/settings.md` from the table.

use std::fmt::Write;

use crate::table::{self, About, AnyEntry, Category, Takes};

const INTRODUCTION: &str = "\
<!-- Made from the table of options by `FIREBRICK_REGENERATE=1 cargo test -p settings docs`. -->

# Settings

Everything has a default; a new app needs no settings. A value comes from the first of these sources that has it:
flag, environment variable, `firebrick.toml`, [`config/puma.rb`](puma-rb.md), default. Blank variables count as unset.

`firebrick.toml` is read from the app's directory; without one, Puma's `config/puma.rb` is. `-C` names another file, and `-C -` reads none. A key such as
`limits.max_body` may be written in full or in its table:

```toml
workers = 2
threads = \"1:5\"
bind = [\"tcp://[::]:3000\", \"unix:///run/app.sock?mode=0660\"]

[limits]
max_body = \"10MB\"

[timeouts]
worker = \"30s\"
```

A secret may be in a variable: `hub.secret = \"${CABLE_SECRET}\"`. Every setting that is a secret takes such a value, which has to be the whole value.

In seven tables you choose the keys: `[sites]` maps host names to static sites, `[services]` names [processes beside the
workers](services.md), `[rate_limits]` names [limits](rate-limits.md), `[pools]` names [pools of workers](pools.md), `[queue.classes]` names [classes of requests](queue.md#classes), `[sendfile]` maps paths of [`X-Accel-Redirect`](sendfile.md) to folders, and `[routes]` maps paths to handlers on the built-in mruby. A route is a handler, a list of handlers that run in turn (one that returns 399 passes the request to the next,
the last one to the site or the app), or a table with the limits that differ there:

```toml
[sites]
\"docs.example.com\" = \"../docs/_site\"

[services]
jobs = \"bin/jobs\"

[rate_limits]
login = { rate = \"5/m\", paths = \"/login\", methods = \"POST\" }

[pools]
slow = { paths = \"/reports\", workers = 1, threads = 2 }

[queue.classes]
paid = { header = \"X-Plan: pro\", weight = 4 }

[sendfile]
\"/protected/\" = \"/srv/files\"

[routes]
\"/\" = \"auth.rb\"
\"/api\" = { mruby = [\"auth.rb\", \"api.rb\"], deadline = \"5s\", max_body = \"1MiB\" }
```

Settings are read when the server starts. `firebrick reload` reads them again and applies those marked \"On reload: takes effect\",
and `[services]`, `[rate_limits]`, `[queue.classes]`, `[sendfile]` and a part of `[pools]`. The others take effect at the next start, or with `firebrick upgrade`. `static.json`, `.htpasswd`,
handler files and certificates are reloaded when they change. [`firebrick set`](set.md) changes those marked \"With `firebrick set`\" at once, until the
change ends; it is stronger than all other sources.

Values have the same grammar in the file, in flags and in variables. Upper and lower case are the same, blanks may stand before a unit,
and `10_000` and `10,000` are 10000:

| value | accepted | meaning |
|---|---|---|
| count | `600`, `10k`, `1.5M`, `1e3` | `k` is 1000, `M` is a million |
| size | `65536`, `64KiB`, `50m`, `512Mi`, `10MB`, `1.5GiB`, `1e6` | bytes. `k`, `m`, `g`, `t` alone are powers of 1024, as in nginx and systemd, and so are `KiB` and `Ki`; `kB` and `MB` are powers of 1000 |
| time | `30`, `30s`, `500ms`, `1m30s`, `1h 30min`, `1.5h`, `365d`, `2w` | a number alone is seconds. Units: `ns`, `us`, `ms`, `s`, `m` or `min`, `h`, `d`, `w`, also as words (`5 minutes`), from the largest down |
| rate | `100/s`, `5/m`, `10/30s`, `10r/s`, `2k/s`, `300 per hour` | a number in a period |
| switch | `true`, `on`, `yes`, `\"1\"`; `false`, `off`, `no`, `\"0\"` | |

In the file, whatever has a unit is in quotes, and a number may be (`port = \"3000\"`). What may be read in two ways is refused, and the
message has both readings: `1,5` (1.5 or 15), `1:30` (`1m30s` or `1h30m`), `1M` as a time (a minute or a month). `bench`, `tune` and
`plan` read their flags in the same way, with two habits of load generators: `k`, `m` and `g` alone are powers of 1000 in sizes, and
`1M` is a minute.

Relative paths in the file start in the app's directory, paths in flags and variables in the
current directory. `firebrick check` shows the resulting settings and the source of each value.
";

/// Returns the text of `docs/settings.md`.
pub fn markdown() -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut category: Option<Category> = None;
    for entry in table::entries() {
        let about = entry.about();
        if category != Some(about.category) {
            category = Some(about.category);
            append(&mut text, format_args!("\n## {}\n", about.category.title()));
        }
        option(&mut text, entry);
    }
    text
}

fn option(text: &mut String, entry: &dyn AnyEntry) {
    let about = entry.about();
    append(text, format_args!("\n### `{}`\n\n{}.", about.key, about.doc));
    append(text, format_args!("{}{}\n\n", if about.more.is_empty() { "" } else { " " }, about.more));
    let mut row = |name: &str, value: String| append(text, format_args!("- {name}: {value}\n"));
    match about.default_shown {
        Some(shown) => row("Default", shown.to_owned()),
        None => row("Default", format!("`{}`", about.default)),
    }
    row("Expected", entry.expected());
    row("Flag", flags(about));
    if !about.env.is_empty() {
        row("Variables", code(about.env.iter().copied()));
    }
    row("In the file", if about.in_file { "yes" } else { "no" }.to_owned());
    if about.reloadable {
        row("On reload", "takes effect".to_owned());
    }
    if about.changes_at_once() {
        row("With `firebrick set`", "takes effect at once".to_owned());
    }
}

fn flags(about: &About) -> String {
    let flags = about.flags.iter().map(|flag| {
        let short = flag.short.map(|short| format!("-{short}, ")).unwrap_or_default();
        match flag.takes {
            Takes::Value(name) => format!("{short}--{} {name}", flag.long),
            Takes::Nothing(_) => format!("{short}--{}", flag.long),
        }
    });
    let all: Vec<String> = flags.chain(about.positional.map(str::to_owned)).collect();
    code(all.iter().map(String::as_str))
}

fn code<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

fn append(text: &mut String, part: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = text.write_fmt(part);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn docs_settings_md_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/settings.md");
        let made = super::markdown();
        if std::env::var_os("FIREBRICK_REGENERATE").is_some() {
            std::fs::write(&path, &made).expect("docs/settings.md can be written");
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == made, "docs/settings.md is old: FIREBRICK_REGENERATE=1 cargo test -p settings docs");
    }
}
