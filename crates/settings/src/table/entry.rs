//! What an entry of the table says.

use crate::kind::{Completion, Kind, Mistake};
use crate::raw::Raw;
use crate::resolve::Taker;

/// Where help and docs show an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// What is served.
    App,
    /// Where it listens.
    Listen,
    /// Encryption and redirects to it.
    Tls,
    /// Certificates that are obtained.
    Acme,
    /// Processes and threads.
    Workers,
    /// How Ruby and Rack are run.
    Rack,
    /// How new code is loaded.
    Reload,
    /// Files served without Ruby.
    Files,
    /// Static sites.
    Site,
    /// Handlers inside the server.
    Mruby,
    /// Log lines.
    Logs,
    /// Distributed traces.
    Traces,
    /// Bounds on waiting.
    Timeouts,
    /// Bounds on size and number.
    Limits,
    /// What several servers share.
    Shared,
}

impl Category {
    /// The heading above its options.
    pub fn title(self) -> &'static str {
        match self {
            Category::App => "The app",
            Category::Listen => "Listening",
            Category::Tls => "TLS and redirects",
            Category::Acme => "Certificates obtained automatically (ACME)",
            Category::Workers => "Workers and threads",
            Category::Rack => "Ruby and Rack",
            Category::Reload => "Reload",
            Category::Files => "Public files of an app",
            Category::Site => "Static sites",
            Category::Mruby => "Handlers on mruby",
            Category::Logs => "Logs",
            Category::Traces => "Traces",
            Category::Timeouts => "Timeouts",
            Category::Limits => "Limits",
            Category::Shared => "Several servers",
        }
    }
}

/// One way to give an option on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The letter behind `-`.
    pub short: Option<char>,
    /// The name behind `--`.
    pub long: &'static str,
    /// What follows it.
    pub takes: Takes,
}

/// What follows a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// A value, called this in help.
    Value(&'static str),
    /// Nothing; the flag stands for this value.
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

/// What an entry says, apart from its type.
#[derive(Debug)]
pub struct About {
    /// Its name, and its dotted key in the file when `in_file`.
    pub key: &'static str,
    /// Whether the file may set it.
    pub in_file: bool,
    /// The heading it stands under.
    pub category: Category,
    /// Its flags; the first is the one that messages name.
    pub flags: &'static [Flag],
    /// The name of its place among the arguments, for what is given without a flag.
    pub positional: Option<&'static str>,
    /// Variables that set it, strongest first.
    pub env: &'static [&'static str],
    /// The default as a user would write it.
    pub default: &'static str,
    /// How docs show the default when the text itself says little.
    pub default_shown: Option<&'static str>,
    /// One line, without a full stop.
    pub doc: &'static str,
    /// More, for `--help` and the docs; may be empty.
    pub more: &'static str,
    /// Whether a reload puts a new value in force: all its users read it from the current settings each time, or it belongs to the
    /// app's processes.
    pub reloadable: bool,
    /// Whether its value must not be shown.
    pub secret: bool,
    /// Names that other servers have for it, to suggest the right one in error messages.
    pub known_as: &'static [&'static str],
}

impl About {
    /// An entry to which only what is special must be added.
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
            more: "",
            reloadable: false,
            secret: false,
            known_as: &[],
        }
    }

    /// The default as help and docs show it; `None` when there is nothing to show.
    pub fn shown_default(&self) -> Option<&'static str> {
        self.default_shown.or((!self.default.is_empty()).then_some(self.default))
    }
}

/// An option whose values have the Rust type `T`.
pub(crate) struct Entry<T: 'static> {
    pub(crate) about: About,
    pub(crate) kind: &'static dyn Kind<T>,
}

/// An entry whatever its type.
pub trait AnyEntry: Sync {
    /// What its entry says.
    fn about(&self) -> &'static About;
    /// Whether a value would be accepted.
    ///
    /// # Errors
    /// Why not.
    fn check(&self, raw: &Raw) -> Result<(), Mistake>;
    /// What is accepted, to be read after "expected".
    fn expected(&self) -> String;
    /// Fixed words that are accepted.
    fn words(&self) -> Vec<&'static str>;
    /// What else a shell may offer to complete a value.
    fn completion(&self) -> Completion;
    /// Whether its flag may be repeated.
    fn is_list(&self) -> bool;
}

/// Implemented for the reference, because entries are statics and their text is `'static`.
impl<T> AnyEntry for &'static Entry<T> {
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

/// The fields of [`crate::Settings`] that are options one to one: what [`section!`] generates.
pub(crate) trait Section: Sized {
    /// Its entries, in the order in which help shows them.
    const OPTIONS: &'static [&'static dyn AnyEntry];

    /// The section with the strongest value of each option.
    fn take(taker: &Taker<'_>) -> Self;

    /// Sets the field `name`; `None` when there is none, an error with what was expected when the value is wrong.
    fn set(&mut self, name: &str, raw: &Raw) -> Option<Result<(), String>>;
}

/// One entry: `/// doc`, `name: Type = kind, { what is special about it }`.
macro_rules! entry {
    ($category:expr; $doc:literal $name:ident: $type:ty = $kind:expr, { $($field:ident: $text:expr),* $(,)? }) => {
        #[allow(non_upper_case_globals)]
        pub(crate) static $name: $crate::table::entry::Entry<$type> = $crate::table::entry::Entry {
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

/// Declares options that `resolve` puts together with others, and lists them in `ALL`.
macro_rules! entries {
    ($category:expr; $(#[doc = $doc:literal] $name:ident: $type:ty = $kind:expr, $about:tt)*) => {
        $($crate::table::entry::entry! { $category; $doc $name: $type = $kind, $about })*
        /// The entries of this category.
        pub(crate) static ALL: &[&dyn $crate::table::AnyEntry] = &[$(&&$name),*];
    };
}
pub(crate) use entries;

/// Declares options that are each a field of a struct of [`crate::Settings`], and that struct: nothing else has to be
/// written for a new one.
macro_rules! section {
    ($category:expr; #[doc = $about_section:literal] $section:ident:
     $(#[doc = $doc:literal] $name:ident: $type:ty = $kind:expr, $about:tt)*) => {
        $($crate::table::entry::entry! { $category; $doc $name: $type = $kind, $about })*

        #[doc = $about_section]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $section {
            $(#[doc = $doc] pub $name: $type,)*
        }

        impl $crate::table::entry::Section for $section {
            const OPTIONS: &'static [&'static dyn $crate::table::AnyEntry] = &[$(&&$name),*];

            fn take(taker: &$crate::resolve::Taker<'_>) -> $section {
                $section { $($name: taker.take(&$name).value),* }
            }

            fn set(&mut self, name: &str, raw: &$crate::raw::Raw) -> Option<Result<(), String>> {
                match name {
                    $(stringify!($name) => Some(match $name.kind.read(raw) {
                        Ok(value) => {
                            self.$name = value;
                            Ok(())
                        }
                        Err(_) => Err($name.kind.expected()),
                    }),)*
                    _ => None,
                }
            }
        }

        /// Every option at its default.
        impl Default for $section {
            fn default() -> $section {
                $crate::resolve::defaults()
            }
        }
    };
}
pub(crate) use section;
