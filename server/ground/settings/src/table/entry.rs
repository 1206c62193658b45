//! The parts of an entry in the table of options.

use crate::kind::{Completion, Mistake, ValueKind};
use crate::raw::Raw;

/// The heading under which help and docs show an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    App,
    Listen,
    Tls,
    Acme,
    Workers,
    Rack,
    Reload,
    Maintenance,
    Files,
    Site,
    Compression,
    Cache,
    Hub,
    Mruby,
    Logs,
    Stats,
    Traces,
    Timeouts,
    Limits,
    Shared,
}

impl Category {
    /// Returns the heading above its options.
    pub fn title(self) -> &'static str {
        match self {
            Category::App => "The app",
            Category::Listen => "Listening",
            Category::Tls => "TLS and redirects",
            Category::Acme => "Certificates obtained automatically (ACME)",
            Category::Workers => "Workers and threads",
            Category::Rack => "Ruby and Rack",
            Category::Reload => "Reload",
            Category::Maintenance => "Maintenance",
            Category::Files => "Public files of an app",
            Category::Site => "Static sites",
            Category::Compression => "Compression of responses",
            Category::Cache => "Cache of responses",
            Category::Hub => "Live pages (Action Cable)",
            Category::Mruby => "Handlers on mruby",
            Category::Logs => "Logs",
            Category::Stats => "Statistics by route",
            Category::Traces => "Traces",
            Category::Timeouts => "Timeouts",
            Category::Limits => "Limits",
            Category::Shared => "Several servers",
        }
    }
}

/// A form of an option on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    pub short: Option<char>,
    pub long: &'static str,
    pub takes: Takes,
}

/// The value of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// A value with this name in help.
    Value(&'static str),
    /// No value; the flag alone stands for this one.
    Nothing(&'static str),
}

/// `--long VALUE`
pub(super) const fn long(long: &'static str, value: &'static str) -> Flag {
    Flag { short: None, long, takes: Takes::Value(value) }
}

/// `-s VALUE`, `--long VALUE`
pub(super) const fn short(short: char, long: &'static str, value: &'static str) -> Flag {
    Flag { short: Some(short), long, takes: Takes::Value(value) }
}

/// `--long`, standing for a value
pub(super) const fn bare(long: &'static str, means: &'static str) -> Flag {
    Flag { short: None, long, takes: Takes::Nothing(means) }
}

/// The description of an entry, apart from its type.
#[derive(Debug)]
pub struct About {
    /// The entry's name, and its dotted key in the file if `in_file`.
    pub key: &'static str,
    /// Whether the file may set the option.
    pub in_file: bool,
    /// The heading above the option.
    pub category: Category,
    /// The option's flags; messages name the first.
    pub flags: &'static [Flag],
    /// The name in the usage line, for a value that is given without a flag.
    pub positional: Option<&'static str>,
    /// Variables that set the option, strongest first.
    pub env: &'static [&'static str],
    /// The default in the form in which a user would write it.
    pub default: &'static str,
    /// The default as the docs show it, where the written form says little.
    pub default_shown: Option<&'static str>,
    /// One line of help, without a full stop.
    pub doc: &'static str,
    /// One line of help for the flag that turns the option off. Empty: help names the flag that turns the option on.
    pub off: &'static str,
    /// More text for `--help` and the docs; may be empty.
    pub more: &'static str,
    /// Whether a reload applies a new value: all readers take it from the current settings each time, or only the app's processes use it.
    pub reloadable: bool,
    /// Whether only `firebrick reload` applies a new value, because new workers, or a new look at the files,
    /// take it. `firebrick set` changes the other reloadable options at once.
    pub reload_only: bool,
    /// Whether the value is a secret that must not be printed.
    pub secret: bool,
    /// The names of this option in other servers, for suggestions in error messages.
    pub known_as: &'static [&'static str],
}

impl About {
    /// Returns whether `firebrick set` changes the option.
    pub fn changes_at_once(&self) -> bool {
        self.reloadable && !self.reload_only
    }

    /// Returns an entry of the category with all other fields at their usual values.
    pub(super) const fn under(category: Category) -> About {
        About {
            key: "",
            in_file: true,
            category,
            flags: &[],
            positional: None,
            env: &[],
            default: "",
            default_shown: None,
            doc: "",
            off: "",
            more: "",
            reloadable: false,
            reload_only: false,
            secret: false,
            known_as: &[],
        }
    }

    /// Returns the default as help and docs show it, or `None` if they show none.
    pub fn shown_default(&self) -> Option<&'static str> {
        self.default_shown.or((!self.default.is_empty()).then_some(self.default))
    }
}

/// An option whose values have the Rust type `T`.
pub(crate) struct OptionEntry<T: 'static> {
    pub(crate) about: About,
    pub(crate) kind: &'static dyn ValueKind<T>,
}

/// An entry of any value type.
pub trait AnyEntry: Sync {
    fn about(&self) -> &'static About;
    /// Checks a value without keeping it.
    ///
    /// # Errors
    /// Fails with the reason when the value is not accepted.
    fn check(&self, raw: &Raw) -> Result<(), Mistake>;
    /// Returns a description of accepted values that fits after "expected".
    fn expected(&self) -> String;
    /// Returns the fixed words that are accepted.
    fn words(&self) -> Vec<&'static str>;
    /// Returns which other values a shell may offer as completions.
    fn completion(&self) -> Completion;
    /// Returns whether the flag may be repeated.
    fn is_list(&self) -> bool;
}

/// Implemented for the reference because entries are statics and their texts are `'static`.
impl<T> AnyEntry for &'static OptionEntry<T> {
    fn about(&self) -> &'static About {
        &self.about
    }

    fn check(&self, raw: &Raw) -> Result<(), Mistake> {
        self.kind.read(raw).map(drop)
    }

    fn expected(&self) -> String {
        self.kind.expected()
    }

    fn words(&self) -> Vec<&'static str> {
        self.kind.words()
    }

    fn completion(&self) -> Completion {
        self.kind.completion()
    }

    fn is_list(&self) -> bool {
        self.kind.is_list()
    }
}

/// Declares one entry: `/// doc`, `name: Type = kind, { other fields }`.
macro_rules! entry {
    ($category:expr; $doc:literal $name:ident: $type:ty = $kind:expr, { $($field:ident: $text:expr),* $(,)? }) => {
        #[allow(non_upper_case_globals)]
        pub(crate) static $name: $crate::table::entry::OptionEntry<$type> = $crate::table::entry::OptionEntry {
            about: $crate::table::entry::About {
                doc: $doc.trim_ascii(),
                $($field: $text,)*
                ..$crate::table::entry::About::under($category)
            },
            kind: &$kind,
        };
    };
}
pub(crate) use entry;

/// Declares options that `resolve` combines with others, and lists them in `ALL`.
macro_rules! entries {
    ($category:expr; $(#[doc = $doc:literal] $name:ident: $type:ty = $kind:expr, $about:tt)*) => {
        $($crate::table::entry::entry! { $category; $doc $name: $type = $kind, $about })*
        pub(crate) static ALL: &[&dyn $crate::table::AnyEntry] = &[$(&&$name),*];
    };
}
pub(crate) use entries;
