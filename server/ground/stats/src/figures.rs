//! The table of figures: each figure is declared once, as a field in [`figures!`].
//!
//! Why: a figure has a field in JSON, often a metric, a sentence in the documentation, and a rule for adding
//! it up and for its change in an interval. One entry has all of them, and every format is made from the
//! entries:
//!
//! ```text
//! figures! {
//!     pub struct ConnectionCounts: Merged {
//!         /// Connections closed to make room for others, see `limits.max_connections`.
//!         displaced: u64 = counter("firebrick_displaced_connections"; "Connections closed to make room for others"),
//!     }
//! }
//! ```
//!
//! Contract of an entry, `field as "name in JSON": type = role("metric", label = "value"; "help" if condition)`:
//! 1. The comment is the text of docs/stats.md. It is also the metric's help, unless there is another one. Samples of one metric stand in
//!    several entries; the first has the help.
//! 2. The role says how the figure is added up over threads (`Merged`) and what an interval shows: `counter` (sum; the difference),
//!    `gauge` (sum), `peak` (the largest), `own` (not added up). `histogram` is for durations, which are added up before they
//!    are summarised; `part` is for a struct of figures, `flat` for one whose fields stand beside the others (`serde(flatten)`).
//! 3. A figure ending in `_ms` whose metric ends in `_seconds` is divided by 1,000. A metric of counts by kind has a label without value.
//!    A second name after `Merged` is that of a struct of atomic counters with the same fields.
//! 4. `[label = |it| text]` after a struct's name labels all its metrics. `part(method)` reads the part from a method.
//! 5. Figures that `/metrics` alone has are in scrape.rs.

use crate::counts::{CountedKind, Counts};
use crate::durations::DurationSummary;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::{SystemTime, UNIX_EPOCH};

/// An entry of the table.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// The field in JSON.
    pub name: &'static str,
    /// The comment of the entry.
    pub text: &'static str,
    pub metric: Option<Metric>,
    /// Of a `part` or `flat` figure.
    pub part: Option<FigureGroup>,
}

/// A struct of figures.
#[derive(Debug, Clone, Copy)]
pub struct FigureGroup {
    pub figures: &'static [Figure],
    /// The text between the names of the part and of its figures: `.`, `[].`, or nothing for a `flat` one.
    pub joint: &'static str,
    /// The names of the labels of its metrics.
    pub labels: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

/// A figure in `/metrics`.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Without `_total`, which the samples of counters have.
    pub name: &'static str,
    pub kind: MetricType,
    /// Labels; with an empty value if the value differs.
    pub labels: &'static [(&'static str, &'static str)],
    pub help: &'static str,
    /// The name of the figure's field.
    pub field: &'static str,
}

impl Metric {
    /// Returns how many units of the figure are one of the metric.
    fn scale(&self) -> f64 {
        if self.field.ends_with("_ms") && self.name.ends_with("_seconds") { 1e3 } else { 1.0 }
    }
}

/// A label with its value.
pub type Label<'a> = (&'static str, &'a str);

/// A page of metrics in one of Prometheus's formats.
pub trait Page {
    fn sample(&mut self, metric: &'static Metric, labels: &[Label<'_>], value: &dyn Display);
    fn histogram(&mut self, metric: &'static Metric, times: &DurationSummary);
}

/// A struct of figures.
pub trait Figures {
    const PART: FigureGroup;

    /// Writes the metrics of all figures. `labels` are those of the struct around this one.
    fn metrics(&self, labels: &[Label<'_>], page: &mut dyn Page);
}

impl<T: Figures> Figures for Option<T> {
    const PART: FigureGroup = T::PART;

    fn metrics(&self, labels: &[Label<'_>], page: &mut dyn Page) {
        self.iter().for_each(|one| one.metrics(labels, page));
    }
}

impl<T: Figures> Figures for Vec<T> {
    const PART: FigureGroup = FigureGroup { joint: "[].", ..T::PART };

    fn metrics(&self, labels: &[Label<'_>], page: &mut dyn Page) {
        self.iter().for_each(|one| one.metrics(labels, page));
    }
}

/// A struct whose figures are added up over threads.
pub trait Merged {
    /// Adds the figures of another thread.
    fn add(&mut self, other: &Self);

    /// Returns these figures with the counters since `earlier`.
    fn since(&self, earlier: &Self) -> Self;
}

/// A figure that is added up, and of which an interval shows the difference. Both saturate.
pub(crate) trait Amount {
    fn plus(&mut self, other: &Self);
    fn minus(&self, earlier: &Self) -> Self;
}

macro_rules! amounts {
    ($($type:ty),+) => {$(
        impl Amount for $type {
            fn plus(&mut self, other: &$type) {
                *self = self.saturating_add(*other);
            }

            fn minus(&self, earlier: &$type) -> $type {
                self.saturating_sub(*earlier)
            }
        }
    )+};
}
amounts!(u32, u64, usize);

impl Amount for f64 {
    fn plus(&mut self, other: &f64) {
        *self += other;
    }

    fn minus(&self, earlier: &f64) -> f64 {
        (self - earlier).max(0.0)
    }
}

/// An unknown amount counts as none beside a known one.
impl<A: Amount + Default> Amount for Option<A> {
    fn plus(&mut self, other: &Option<A>) {
        if let Some(other) = other {
            self.get_or_insert_default().plus(other);
        }
    }

    fn minus(&self, earlier: &Option<A>) -> Option<A> {
        self.as_ref().map(|later| later.minus(earlier.as_ref().unwrap_or(&A::default())))
    }
}

/// A figure that can be a metric.
pub(crate) trait Value {
    fn sample(&self, metric: &'static Metric, labels: &[Label<'_>], page: &mut dyn Page);
}

macro_rules! whole {
    ($($type:ty),+) => {$(
        impl Value for $type {
            fn sample(&self, metric: &'static Metric, labels: &[Label<'_>], page: &mut dyn Page) {
                if metric.scale() == 1.0 {
                    page.sample(metric, labels, self);
                } else {
                    (*self as f64).sample(metric, labels, page);
                }
            }
        }
    )+};
}
whole!(u32, u64, usize);

impl Value for f64 {
    fn sample(&self, metric: &'static Metric, labels: &[Label<'_>], page: &mut dyn Page) {
        page.sample(metric, labels, &(self / metric.scale()));
    }
}

impl Value for bool {
    fn sample(&self, metric: &'static Metric, labels: &[Label<'_>], page: &mut dyn Page) {
        page.sample(metric, labels, &u8::from(*self));
    }
}

/// The sum of all.
impl Value for BTreeMap<String, u64> {
    fn sample(&self, metric: &'static Metric, labels: &[Label<'_>], page: &mut dyn Page) {
        self.values().sum::<u64>().sample(metric, labels, page);
    }
}

/// Seconds since the epoch.
impl Value for SystemTime {
    fn sample(&self, metric: &'static Metric, labels: &[Label<'_>], page: &mut dyn Page) {
        let since = self.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        page.sample(metric, labels, &since);
    }
}

impl Value for DurationSummary {
    fn sample(&self, metric: &'static Metric, _: &[Label<'_>], page: &mut dyn Page) {
        page.histogram(metric, self);
    }
}

/// A sample for each kind, including those with a count of 0.
impl<K: CountedKind> Value for Counts<K> {
    fn sample(&self, metric: &'static Metric, labels: &[Label<'_>], page: &mut dyn Page) {
        let label = metric.labels.first().map_or("", |(label, _)| label);
        for (kind, count) in self.iter() {
            let own: Vec<Label<'_>> = labels.iter().copied().chain([(label, kind.name())]).collect();
            page.sample(metric, &own, &count);
        }
    }
}

impl<T: Value> Value for Option<T> {
    fn sample(&self, metric: &'static Metric, labels: &[Label<'_>], page: &mut dyn Page) {
        self.iter().for_each(|one| one.sample(metric, labels, page));
    }
}

/// Declares structs of figures; see the top of this file.
macro_rules! figures {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident $([$($key:ident = $of:expr),+])? $(: $merged:ident $(, $cells:ident)?)? {
            $(
                $(#[doc = $doc:literal])*
                $(#[serde $serde:tt])*
                $field:ident $(as $json:literal)?: $type:ty $(= $role:ident $(($($how:tt)*))?)?
            ),* $(,)?
        }
    )+) => {$(
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        $(#[$about])*
        pub struct $name {$(
            $(#[doc = $doc])*
            $(#[serde $serde])*
            $(#[serde(rename = $json)])?
            pub $field: $type,
        )*}

        impl $crate::figures::Figures for $name {
            const PART: $crate::figures::FigureGroup = $crate::figures::FigureGroup {
                figures: &[$($crate::figures::Figure {
                    name: figures!(@name $field $($json)?),
                    text: concat!($($doc),*),
                    metric: figures!(@metric [$field] [$($doc),*] $($role $(($($how)*))?)?),
                    part: figures!(@part $type $(, $role)?),
                }),*],
                joint: ".",
                labels: &[$($(stringify!($key)),+)?],
            };

            #[allow(unused_variables)]
            fn metrics(&self, labels: &[$crate::figures::Label<'_>], page: &mut dyn $crate::figures::Page) {
                $(
                    let own = [$({
                        let of: fn(&$name) -> String = $of;
                        of(self)
                    }),+];
                    let own = own.iter().map(String::as_str);
                    let own: Vec<_> = labels.iter().copied().chain([$(stringify!($key)),+].into_iter().zip(own)).collect();
                    let labels = own.as_slice();
                )?
                $(figures!(@write self [$field] [$($doc),*] labels page $($role $(($($how)*))?)?);)*
            }
        }

        figures!(@more [$($merged $($cells)?)?] $name {$($field $($role)?),*});
    )+};

    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $json:literal) => { $json };

    (@part $type:ty, part) => { Some(<$type as $crate::figures::Figures>::PART) };
    (@part $type:ty, flat) => {
        Some($crate::figures::FigureGroup { joint: "", ..<$type as $crate::figures::Figures>::PART })
    };
    (@part $($other:tt)*) => { None };

    (@kind counter) => { $crate::figures::MetricType::Counter };
    (@kind histogram) => { $crate::figures::MetricType::Histogram };
    (@kind $other:ident) => { $crate::figures::MetricType::Gauge };

    (@help [$($doc:literal),*]) => { concat!($($doc),*) };
    (@help [$($doc:literal),*] $help:literal) => { $help };

    (@metric $field:tt $doc:tt) => { None };
    (@metric $field:tt $doc:tt $role:ident) => { None };
    (@metric $field:tt $doc:tt part $method:tt) => { None };
    (@metric $field:tt $doc:tt $role:ident $how:tt) => { Some(figures!(@one $field $doc $role $how)) };
    (@one [$field:ident] $doc:tt $role:ident (
        $metric:literal $(, $key:ident $(= $value:literal)?)* $(; $help:literal)? $(if $($condition:tt)+)?
    )) => {
        $crate::figures::Metric {
            name: $metric,
            kind: figures!(@kind $role),
            labels: &[$((stringify!($key), concat!($($value)?))),*],
            help: figures!(@help $doc $($help)?),
            field: stringify!($field),
        }
    };

    (@write $self:ident $field:tt $doc:tt $labels:ident $page:ident) => {};
    (@write $self:ident [$field:ident] $doc:tt $labels:ident $page:ident part) => {
        $crate::figures::Figures::metrics(&$self.$field, $labels, $page)
    };
    (@write $self:ident [$field:ident] $doc:tt $labels:ident $page:ident flat) => {
        $crate::figures::Figures::metrics(&$self.$field, $labels, $page)
    };
    (@write $self:ident $field:tt $doc:tt $labels:ident $page:ident part($method:ident)) => {
        $self.$method().for_each(|one| $crate::figures::Figures::metrics(one, $labels, $page))
    };
    (@write $self:ident $field:tt $doc:tt $labels:ident $page:ident $role:ident) => {};
    (@write $self:ident [$field:ident] $doc:tt $labels:ident $page:ident $role:ident (
        $metric:literal $(, $key:ident $(= $value:literal)?)* $(; $help:literal)? if $($condition:tt)+
    )) => {
        if $self.$($condition)+ {
            figures!(@write $self [$field] $doc $labels $page $role($metric $(, $key $(= $value)?)* $(; $help)?));
        }
    };
    (@write $self:ident [$field:ident] $doc:tt $labels:ident $page:ident $role:ident $how:tt) => {{
        const METRIC: $crate::figures::Metric = figures!(@one [$field] $doc $role $how);
        $crate::figures::Value::sample(&$self.$field, &METRIC, $labels, $page);
    }};

    (@more [] $($other:tt)*) => {};
    (@more [Merged $cells:ident] $name:ident {$($field:ident $role:ident),*}) => {
        figures!(@more [Merged] $name {$($field $role),*});

        /// The counters of a thread, which other threads read.
        #[derive(Debug, Default)]
        pub(crate) struct $cells {$(pub(crate) $field: std::sync::atomic::AtomicU64),*}

        impl $cells {
            pub(crate) fn load(&self) -> $name {
                $name {$($field: self.$field.load(std::sync::atomic::Ordering::Relaxed).into()),*}
            }
        }
    };
    (@more [Merged] $name:ident {$($field:ident $role:ident),*}) => {
        impl $crate::figures::Merged for $name {
            fn add(&mut self, other: &$name) {
                $(figures!(@add self other $field $role);)*
            }

            fn since(&self, earlier: &$name) -> $name {
                $name {$($field: figures!(@since self earlier $field $role)),*}
            }
        }
    };
    (@add $all:ident $other:ident $field:ident own) => {};
    (@add $all:ident $other:ident $field:ident histogram) => {};
    (@add $all:ident $other:ident $field:ident peak) => {
        if $other.$field > $all.$field {
            $all.$field = $other.$field;
        }
    };
    (@add $all:ident $other:ident $field:ident $sum:ident) => {
        $crate::figures::Amount::plus(&mut $all.$field, &$other.$field)
    };
    (@since $later:ident $earlier:ident $field:ident counter) => {
        $crate::figures::Amount::minus(&$later.$field, &$earlier.$field)
    };
    (@since $later:ident $earlier:ident $field:ident histogram) => { $later.$field.since(&$earlier.$field) };
    (@since $later:ident $earlier:ident $field:ident $other:ident) => { $later.$field.clone() };
}
pub(crate) use figures;
