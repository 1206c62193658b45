//! Options of Ruby and the app.

use std::path::PathBuf;
use std::time::Duration;

use super::entry::{Category, bare, long, section};
use crate::kind::lists::{Generations, Proxies, RequestPaths};
use crate::kind::numbers::{Period, Size};
use crate::kind::texts::{Choice, HeaderName, Program, Switch};
use crate::kind::wrappers::OrOff;
use crate::value::allocator::Allocator;
use crate::value::proxies::TrustedProxies;
use crate::value::refork::ReforkAfter;
use crate::value::yjit::Yjit;

section! { Category::Rack;
    /// How Ruby and the app are run.
    Rack:

    /// The Ruby that runs the app
    ruby: PathBuf = Program, {
        key: "ruby",
        flags: &[long("ruby", "PATH")],
        default: "ruby",
        more: "A name without a slash is looked up in PATH.",
        reloadable: true,
    }
    /// Compile the app with YJIT: auto, on or off
    yjit: Yjit = Choice(Yjit::WORDS), {
        key: "rack.yjit",
        flags: &[long("yjit", "auto|on|off")],
        default: "auto",
        more: "auto switches it on with Ruby 3.3 and later, if that Ruby was built with it, when the app is loaded and before workers are \
               forked; where Rails 7.2 or later is loaded, its config.yjit decides instead. on does it with Ruby 3.1 and 3.2, too, and says so \
               when Ruby was built without it. off leaves it to RUBYOPT, RUBY_YJIT_ENABLE and the app. For an attached server auto means off. \
               docs/workers.md.",
        reloadable: true,
        known_as: &["yjit", "jit", "enable_yjit"],
    }
    /// Allocator of Ruby's processes: auto, jemalloc or system
    allocator: Allocator = Choice(Allocator::WORDS), {
        key: "rack.allocator",
        flags: &[long("allocator", "auto|jemalloc|system")],
        default: "auto",
        more: "auto takes jemalloc where libjemalloc.so.2 is installed, unless LD_PRELOAD or a variable of the C library's allocator \
               (MALLOC_ARENA_MAX…) is set. jemalloc does so in any case, and says so when it is not installed. system leaves it to Ruby and \
               LD_PRELOAD. Linux only. docs/workers.md.",
        reloadable: true,
        known_as: &["malloc", "jemalloc"],
    }
    /// Peers whose X-Forwarded-* headers are trusted
    trusted_proxies: TrustedProxies = Proxies, {
        key: "rack.trusted_proxies",
        flags: &[long("trusted-proxies", "LIST")],
        default: "127.0.0.0/8,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7,unix",
        default_shown: Some("loopback and private networks, unix"),
        more: "Networks such as 10.0.0.0/8 or ::1, and unix for every peer on a Unix socket; or none alone.",
        known_as: &["trusted_proxy"],
    }
    /// Offer rack.early_hints (103 responses)
    early_hints: bool = Switch, {
        key: "rack.early_hints",
        flags: &[bare("early-hints", "true"), bare("no-early-hints", "false")],
        default: "false",
        more: "Not all proxies and clients understand a response before the response: nginx before 1.29 waits for \
               ever, and some libraries take the 103 for the answer. Switch it on where browsers, or a proxy that \
               knows them, are at the other end.",
    }
    /// Paths requested once before workers are forked
    warmup: Vec<String> = RequestPaths, {
        key: "rack.warmup",
        flags: &[long("warmup", "PATHS")],
        default_shown: Some("none"),
        more: "What the app loads and caches on its first requests is then shared by all workers. Separate paths \
               with commas or repeat the flag.",
        reloadable: true,
    }
    /// Collect and compact the heap before workers are forked
    compact: bool = Switch, {
        key: "rack.compact",
        flags: &[bare("compact", "true"), bare("no-compact", "false")],
        default: "true",
        more: "Workers then share more memory. Turn it off if a native extension does not support GC.compact.",
        reloadable: true,
    }
    /// Make full garbage collections between requests
    out_of_band_gc: bool = Switch, {
        key: "rack.out_of_band_gc",
        flags: &[bare("out-of-band-gc", "true"), bare("no-out-of-band-gc", "false")],
        default: "false",
        more: "One worker at a time, which gets no requests meanwhile, and only while others have free threads. Best with Ruby 3.4 or \
               later, which makes none by itself then, unless one has waited for 30 s: docs/workers.md.",
        reloadable: true,
        known_as: &["oob_gc", "out_of_band_gc", "out_of_band", "oobgc"],
    }
    /// Requests after which a worker becomes the next template; 0 is off
    refork_after: ReforkAfter = Generations, {
        key: "rack.refork_after",
        flags: &[long("refork-after", "LIST")],
        default: "0",
        more: "What workers have loaded and cached since they were forked is then shared. A list has one figure for each \
               generation of workers, counted from its forks; the last one repeats, and a 0 at the end ends reforking. The app and its libraries \
               must be safe to fork while they are in use: read docs/refork.md first. Not in development, and not with a \
               single worker.",
        reloadable: true,
        known_as: &["refork_after", "fork_worker", "refork", "refork_condition"],
    }
    /// How long a fiber may compute while others are ready
    fiber_slice: Option<Duration> = OrOff(Period { min: Duration::from_millis(2), max: Duration::from_secs(1) }), {
        key: "rack.fiber_slice",
        flags: &[long("fiber-slice", "TIME|off")],
        default: "10ms",
        more: "In processor time. Then the other fibers of its thread run first, and the app has to be as safe as with threads. Only with \
               `fibers`. Not while a file is loaded, nor inside Firebrick.unsliced { }: docs/fiber-slices.md.",
        reloadable: true,
        known_as: &["slice", "fibers.slice", "time_slice", "quantum"],
    }
    /// Bytes of the stack of a fiber
    fiber_stack: Option<usize> = OrOff(Size { min: 64 << 10, max: 8 << 20 }), {
        key: "rack.fiber_stack",
        flags: &[long("fiber-stack", "SIZE|off")],
        default: "off",
        more: "How deep the calls of a request may be: 1MiB as with threads, about 9,300 levels. off leaves it to Ruby, whose 128KiB have \
               room for about 1,150, and to RUBY_FIBER_VM_STACK_SIZE. Only what is used takes memory. Only with `fibers`: docs/fibers.md.",
        reloadable: true,
        known_as: &["fiber_stack", "stack_size", "fiber_stack_size", "fiber_vm_stack_size"],
    }
    /// A call that stops a thread's fibers for so long is told in the log
    blocking_call: Option<Duration> = OrOff(Period { min: Duration::from_millis(10), max: Duration::from_mins(10) }), {
        key: "rack.blocking_call",
        flags: &[long("blocking-call", "TIME|off")],
        default: "100ms",
        more: "With its place in the app and its request, once a minute for each place, and counted. Only with `fibers`: docs/fibers.md.",
        reloadable: true,
        known_as: &["blocking_calls", "fibers.blocking_call", "slow_callback_duration"],
    }
    /// Header that carries the request id in and out
    request_id_header: Option<String> = OrOff(HeaderName), {
        key: "rack.request_id_header",
        flags: &[long("request-id-header", "NAME|off")],
        default: "X-Request-Id",
    }
}
