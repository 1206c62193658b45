//! Sections: structs of [`crate::Settings`] whose fields are one option each.

use std::path::Path;

use super::entry::AnyEntry;
use super::taker::Taker;
use crate::raw::Raw;
use crate::written::WrittenValues;

/// A group of fields of [`crate::Settings`] that are one option each; [`section!`] generates the implementation.
pub(crate) trait Section: Sized {
    /// The entries in the order of help.
    const OPTIONS: &'static [&'static dyn AnyEntry];

    /// Takes the strongest value of each option.
    fn take(taker: &Taker<'_>) -> Self;

    /// Sets the field `name`. Returns `None` if there is no such field, and an error with the expected form
    /// if the value is wrong.
    fn set(&mut self, name: &str, raw: &Raw) -> Option<Result<(), String>>;
}

/// Returns a section with all options at their defaults.
pub(crate) fn defaults<S: Section>() -> S {
    S::take(&Taker::new(&WrittenValues::default(), Path::new("/"), Path::new("/")))
}

/// Declares a struct of [`crate::Settings`] whose fields are one option each. A new option needs nothing but
/// its entry here.
macro_rules! section {
    ($category:expr; #[doc = $about_section:literal] $section:ident:
     $(#[doc = $doc:literal] $name:ident: $type:ty = $kind:expr, $about:tt)*) => {
        $($crate::table::entry::entry! { $category; $doc $name: $type = $kind, $about })*

        #[doc = $about_section]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $section {
            $(#[doc = $doc] pub $name: $type,)*
        }

        impl $crate::table::section::Section for $section {
            const OPTIONS: &'static [&'static dyn $crate::table::AnyEntry] = &[$(&&$name),*];

            fn take(taker: &$crate::table::taker::Taker<'_>) -> $section {
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

        impl $section {
            /// Returns what is in force after a reload with these options: those that the table marks as
            /// reloadable change, the others are as `now`.
            #[must_use]
            pub fn reloaded(self, now: &$section) -> $section {
                self.chosen(now, |about| about.reloadable)
            }

            /// Returns what is in force after `firebrick set`: the reloadable options change, except for those
            /// that only a reload applies.
            #[must_use]
            pub fn changed_at_once(self, now: &$section) -> $section {
                self.chosen(now, $crate::table::About::changes_at_once)
            }

            fn chosen(self, now: &$section, takes: impl Fn(&$crate::table::About) -> bool) -> $section {
                $section { $($name: if takes(&$name.about) { self.$name } else { now.$name.clone() }),* }
            }
        }

        /// The section with all options at their defaults.
        impl Default for $section {
            fn default() -> $section {
                $crate::table::section::defaults()
            }
        }
    };
}
pub(crate) use section;
