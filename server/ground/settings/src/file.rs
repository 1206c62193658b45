//! Reads `firebrick.toml` into values with their line numbers.
//!
//! Contract: no text causes a panic; every key of the text is either added to [`WrittenValues`] or an error.

use std::path::Path;

use toml_edit::{Document, Item, TableLike, Value};

use crate::environment::Environment;
use crate::error::Error;
use crate::nearest::{nearest, nearest_within};
use crate::origin::ValueSource;
use crate::raw::Raw;
use crate::reference;
use crate::table;
use crate::written::{Named, Route, Table, Written, WrittenValues};

/// Reads `text` into `given`; messages call the file `path`. `environment` has the secrets that the file refers to.
pub(crate) fn read(
    path: &Path,
    text: &str,
    given: &mut WrittenValues,
    environment: &dyn Environment,
) -> Vec<Error> {
    let mut reader = Reader { path, text, given, environment, errors: Vec::new() };
    match Document::parse(text) {
        Ok(document) => reader.table(document.as_table(), ""),
        Err(error) => {
            let start = error.span().map_or(0, |span| span.start);
            reader.not_toml(start, error.message());
        }
    }
    reader.errors
}

pub(crate) const SITES: &str = "sites";
pub(crate) const ROUTES: &str = "routes";
pub(crate) const SENDFILE: &str = "sendfile";
pub(crate) const SERVICES: &str = "services";
pub(crate) const RATE_LIMITS: &str = "rate_limits";
pub(crate) const POOLS: &str = "pools";
pub(crate) const QUEUE_CLASSES: &str = "queue.classes";
/// The tables of the first level whose keys the user chooses.
pub(crate) const NAMED_TABLES: [&str; 6] = [SITES, ROUTES, SENDFILE, SERVICES, RATE_LIMITS, POOLS];
/// The tables of certificates to obtain.
pub(crate) const ORDERS: &str = "acme.certificates";
/// The tables of certificate files.
pub(crate) const FILES: &str = "tls.certificates";

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    given: &'a mut WrittenValues,
    environment: &'a dyn Environment,
    errors: Vec<Error>,
}

impl Reader<'_> {
    /// Reads a table whose keys are prefixed with `prefix`.
    fn table(&mut self, table: &dyn TableLike, prefix: &str) {
        for (name, item) in table.iter() {
            let span = table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
            let origin = self.origin(span.map_or(0, |span| span.start));
            let key = format!("{prefix}{name}");
            let entry =
                table::entries().map(|entry| entry.about()).find(|about| about.in_file && about.key == key);
            match (entry, item.as_table_like()) {
                (None, Some(sites)) if key == SITES => self.sites(sites),
                (None, Some(routes)) if key == ROUTES => self.routes(routes),
                (None, Some(rules)) if key == SENDFILE => self.sendfile(rules),
                (None, Some(services)) if key == SERVICES => {
                    let read = self.named(services, "command");
                    self.given.services.extend(read);
                }
                (None, Some(limits)) if key == RATE_LIMITS => {
                    let read = self.named(limits, "rate");
                    self.given.rate_limits.extend(read);
                }
                (None, Some(pools)) if key == POOLS => {
                    let read = self.named(pools, "paths");
                    self.given.pools.extend(read);
                }
                (None, Some(classes)) if key == QUEUE_CLASSES => {
                    let read = self.named(classes, "paths");
                    self.given.queue_classes.extend(read);
                }
                (None, _) if key == ORDERS && is_tables(item) => {
                    self.given.orders = self.tables(item, "acme.")
                }
                (None, _) if key == FILES && is_tables(item) => self.given.files = self.tables(item, "tls."),
                (Some(about), _) => {
                    self.remember_spelling(&key, item);
                    let written = self.referenced(about.key, Written { raw: raw(item), origin });
                    written.into_iter().for_each(|written| self.given.add(about.key, written));
                }
                (None, Some(inner)) if is_section(&key) => self.table(inner, &format!("{key}.")),
                (None, _) => self.unknown(&key, item, origin),
            }
        }
    }

    /// Remembers the spelling of a number, because messages quote the number as written.
    fn remember_spelling(&mut self, key: &str, item: &Item) {
        let shown = raw(item);
        let number = matches!(shown, Raw::Integer(_) | Raw::Float(_));
        let typed = item.span().and_then(|span| self.text.get(span)).filter(|_| number);
        if let Some(typed) = typed.filter(|typed| *typed != shown.to_string()) {
            self.given.spellings.push((format!("{key} = {shown}"), format!("{key} = {typed}")));
        }
    }

    /// Reads the table whose keys are paths; a value is a handler, a list of handlers, or a table with
    /// handlers and limits.
    fn routes(&mut self, routes: &dyn TableLike) {
        for (path, item) in routes.iter() {
            let written = self.written(routes, path, item);
            let keys = match item.as_table_like() {
                Some(table) => {
                    table.iter().map(|(key, item)| (key.to_owned(), self.written(table, key, item))).collect()
                }
                None => vec![("mruby".to_owned(), written.clone())],
            };
            self.given.routes.push(Route { path: path.to_owned(), written, keys });
        }
    }

    /// Reads a table whose keys are names chosen by the user. A value is a table, or a short form that sets
    /// the key `short`.
    fn named(&self, table: &dyn TableLike, short: &str) -> Vec<Named> {
        let one = |(name, item): (&str, &Item)| {
            let written = self.written(table, name, item);
            let mut keys = Vec::new();
            match item.as_table_like() {
                Some(inner) => self.nested(inner, "", &mut keys),
                None => keys.push((short.to_owned(), written.clone())),
            }
            Named { name: name.to_owned(), written, keys }
        };
        table.iter().map(one).collect()
    }

    /// Collects the keys of a table, and those of inner tables prefixed with the table's name.
    fn nested(&self, table: &dyn TableLike, prefix: &str, keys: &mut Vec<(String, Written)>) {
        for (key, item) in table.iter() {
            match item.as_table_like() {
                Some(inner) if prefix.is_empty() => self.nested(inner, &format!("{key}."), keys),
                _ => keys.push((format!("{prefix}{key}"), self.written(table, key, item))),
            }
        }
    }

    /// Reads tables; each of their keys is prefixed with `prefix` a setting, too.
    fn tables(&mut self, item: &Item, prefix: &str) -> Vec<Table> {
        let tables = item.as_array_of_tables().into_iter().flat_map(|tables| tables.iter());
        let tables = tables.map(|table| (table as &dyn TableLike, table.span()));
        let inline = item.as_array().into_iter().flatten().filter_map(Value::as_inline_table);
        let inline = inline.map(|table| (table as &dyn TableLike, table.span()));
        let all: Vec<_> = tables.chain(inline).collect();
        let mut read = |(table, span): (&dyn TableLike, Option<std::ops::Range<usize>>)| {
            let origin = self.origin(span.map_or(0, |span| span.start));
            let written = Written { raw: Raw::Other("a table"), origin };
            let one = |(key, item): (&str, &Item)| {
                let written = self.written(table, key, item);
                Some((key.to_owned(), self.referenced(&format!("{prefix}{key}"), written)?))
            };
            Table { written, keys: table.iter().filter_map(one).collect() }
        };
        all.into_iter().map(&mut read).collect()
    }

    /// Returns the value of a setting with its secret in place of a reference to a variable; `None` if there is none.
    fn referenced(&mut self, key: &str, Written { raw, origin }: Written) -> Option<Written> {
        let shown = format!("{key} = {raw}");
        match reference::resolved(key, raw, self.environment) {
            Ok(raw) => raw.map(|raw| Written { raw, origin }),
            Err(problem) => {
                self.errors.push(Error { origin, written: shown, problem, nearest: None });
                None
            }
        }
    }

    fn written(&self, table: &dyn TableLike, key: &str, item: &Item) -> Written {
        let span = table.key(key).and_then(toml_edit::Key::span).or_else(|| item.span());
        Written { raw: raw(item), origin: self.origin(span.map_or(0, |span| span.start)) }
    }

    /// Reads the table whose keys are host names.
    fn sites(&mut self, sites: &dyn TableLike) {
        for (host, item) in sites.iter() {
            let written = self.written(sites, host, item);
            self.given.sites.push((host.to_owned(), written));
        }
    }

    /// Reads the table whose keys are path prefixes.
    fn sendfile(&mut self, rules: &dyn TableLike) {
        for (prefix, item) in rules.iter() {
            let written = self.written(rules, prefix, item);
            self.given.sendfile.push((prefix.to_owned(), written));
        }
    }

    fn unknown(&mut self, key: &str, item: &Item, origin: ValueSource) {
        let (written, problem, nearest) = if is_section(key) {
            (format!("{key} = {}", raw(item)), format!("expected a table: [{key}]"), None)
        } else if key == QUEUE_CLASSES {
            (format!("{key} = {}", raw(item)), format!("expected a table for each class: [{key}.NAME]"), None)
        } else if [ORDERS, FILES].contains(&key) {
            (format!("{key} = {}", raw(item)), format!("expected tables: [[{key}]], one for each"), None)
        } else if let Some(tables) =
            [ORDERS, FILES].into_iter().find(|tables| tables.strip_suffix('s') == Some(key))
        {
            (key.to_owned(), "unknown key".to_owned(), Some(tables.to_owned()))
        } else if item.is_table_like() && !key.contains('.') {
            (format!("[{key}]"), "unknown table".to_owned(), nearest(key, sections()).map(str::to_owned))
        } else if let Some(about) = command_line_only(key) {
            (key.to_owned(), format!("can only be given on the command line{about}"), None)
        } else {
            (key.to_owned(), "unknown key".to_owned(), nearest_key(key).map(str::to_owned))
        };
        let written = written.escape_debug().to_string().replace("\\\"", "\"");
        self.errors.push(Error { origin, written, problem, nearest });
    }

    fn not_toml(&mut self, start: usize, message: &str) {
        let origin = self.origin(start);
        let message = message.lines().collect::<Vec<_>>().join("; ");
        let problem = format!("this is not TOML: {message}");
        let line = self.text.lines().nth(line_at(self.text, start) - 1).unwrap_or_default();
        let written: String = without_secret(line.trim()).chars().take(60).collect();
        self.errors.push(Error {
            origin,
            written: written.escape_debug().to_string(),
            problem,
            nearest: None,
        });
    }

    fn origin(&self, offset: usize) -> ValueSource {
        ValueSource::File { path: self.path.to_owned(), line: line_at(self.text, offset) }
    }
}

/// Returns a line of text that may not be TOML, without the value if the key's name suggests a secret.
fn without_secret(line: &str) -> String {
    let Some((name, _)) = line.split_once('=') else { return line.to_owned() };
    let key = last(name.trim().trim_matches(['"', '\'']));
    let is_option =
        table::entries().map(|entry| entry.about()).any(|about| about.secret && last(about.key) == key);
    let sounds_secret =
        ["secret", "token", "password", "passwd", "hmac", "credential"].iter().any(|word| key.contains(word));
    if is_option || sounds_secret { format!("{} = (not shown)", name.trim()) } else { line.to_owned() }
}

fn is_tables(item: &Item) -> bool {
    item.is_array_of_tables()
        || item.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(Value::is_inline_table))
}

/// Returns the line number of a byte, counted from 1.
fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

fn raw(item: &Item) -> Raw {
    match item {
        Item::Value(value) => raw_value(value),
        _ => Raw::Other("a table"),
    }
}

fn raw_value(value: &Value) -> Raw {
    match value {
        Value::String(text) => Raw::Text(text.value().clone()),
        Value::Integer(number) => Raw::Integer(*number.value()),
        Value::Float(number) => Raw::Float(*number.value()),
        Value::Boolean(on) => Raw::Switch(*on.value()),
        Value::Datetime(_) => Raw::Other("a date"),
        Value::Array(parts) => Raw::List(parts.iter().map(raw_value).collect()),
        Value::InlineTable(_) => Raw::Other("a table"),
    }
}

/// Returns all keys that the file may set.
fn keys() -> impl Iterator<Item = &'static str> {
    table::entries().map(|entry| entry.about()).filter(|about| about.in_file).map(|about| about.key)
}

/// Returns the tables that hold keys, possibly with duplicates.
fn sections() -> impl Iterator<Item = &'static str> {
    keys().filter_map(|key| key.split_once('.')).map(|(section, _)| section).chain(NAMED_TABLES)
}

pub(crate) fn is_section(key: &str) -> bool {
    sections().any(|section| section == key)
}

/// Returns how to give an option on the command line that the file may not set.
pub(crate) fn command_line_only(key: &str) -> Option<String> {
    let about =
        table::entries().map(|entry| entry.about()).find(|about| !about.in_file && about.key == key)?;
    let flag = about.flags.first().map(|flag| format!(", with --{}", flag.long));
    Some(flag.unwrap_or_default())
}

/// Returns the key that was probably meant. Tries, in order: a nearly equal key, the same name in another
/// table, a name from another server, a similar key.
pub(crate) fn nearest_key(written: &str) -> Option<&'static str> {
    let name = last(written);
    nearest_within(0.85, written, keys())
        .or_else(|| keys().find(|key| last(key) == name))
        .or_else(|| known_as(&name))
        .or_else(|| nearest(written, keys()))
        .or_else(|| alike_in_any_table(&name))
}

/// Returns the key without its table, in the spelling of keys.
fn last(key: &str) -> String {
    key.rsplit('.').next().unwrap_or_default().replace('-', "_").to_ascii_lowercase()
}

fn known_as(name: &str) -> Option<&'static str> {
    let known = |about: &&table::About| about.in_file && about.known_as.contains(&name);
    table::entries().map(|entry| entry.about()).find(known).map(|about| about.key)
}

fn alike_in_any_table(name: &str) -> Option<&'static str> {
    let names = || keys().filter_map(|key| Some((key.rsplit_once('.')?.1, key)));
    let found = nearest(name, names().map(|(name, _)| name))?;
    names().find(|(name, _)| *name == found).map(|(_, key)| key)
}
