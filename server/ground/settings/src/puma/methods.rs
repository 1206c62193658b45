//! All methods of Puma's DSL and their effects.
//!
//! Contract: each method has one row, with its older names: its definition in Ruby, its class, the options
//! that it sets, and a text that says in one line what the method does here, or why it does nothing.
//! `worker/lib/firebrick/puma_file/methods.rb`, the mapping of calls, the classes of `firebrick check` and
//! the table of `docs/puma-rb.md` follow from the rows.

use super::mapping::Mapping;
use super::{Call, CallEffect, CallOutcome};
use crate::nearest::nearest;
use CallEffect::{Always, Background, Hook, Ignored, Mapped, Reads, Request};
use Form::{Switch, Text, Value, Whole};

/// How the method is defined for a puma.rb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ruby {
    /// Records its argument, and sets an option of its name to it.
    Setter,
    /// The same, with a default: Ruby's source.
    Optional(&'static str),
    /// Keeps its block.
    Hook,
    /// Written in `worker/lib/firebrick/puma_file/dsl.rb`.
    Own,
}

/// The value that an argument gives to an option.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Text,
    /// The argument as it would be in `firebrick.toml`.
    Value,
    /// The same; infinity is 0, which means off.
    Whole,
    /// True unless the argument is false or nil.
    Switch,
}

/// How a call is mapped.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// Not at all; the method's text says all.
    Told,
    Sets(&'static str, Form),
    /// By this function; `None`: the method's text says all.
    By(fn(&mut Mapping<'_>, &Call) -> Option<CallOutcome>),
}

#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// The name in Puma 8, or the last name that the method had.
    pub name: &'static str,
    /// Names in Puma 5 to 8 with the same meaning.
    pub also: &'static [&'static str],
    pub class: CallEffect,
    /// The effect here; for an ignored method, the reason.
    pub text: &'static str,
    pub(super) ruby: Ruby,
    pub(super) effect: Effect,
    /// Whether earlier calls keep their effect beside later ones.
    pub(super) adds_up: bool,
}

const fn own(name: &'static str, class: CallEffect, text: &'static str) -> Method {
    Method { name, also: &[], class, text, ruby: Ruby::Own, effect: Effect::Told, adds_up: false }
}

const fn setter(name: &'static str, class: CallEffect, text: &'static str) -> Method {
    Method { ruby: Ruby::Setter, ..own(name, class, text) }
}

const fn optional(
    name: &'static str,
    default: &'static str,
    class: CallEffect,
    text: &'static str,
) -> Method {
    Method { ruby: Ruby::Optional(default), ..own(name, class, text) }
}

const fn hook(name: &'static str, class: CallEffect, text: &'static str) -> Method {
    Method { ruby: Ruby::Hook, ..own(name, class, text) }
}

impl Method {
    const fn also(self, also: &'static [&'static str]) -> Method {
        Method { also, ..self }
    }

    const fn sets(self, key: &'static str, form: Form) -> Method {
        Method { effect: Effect::Sets(key, form), ..self }
    }

    const fn by(self, map: fn(&mut Mapping<'_>, &Call) -> Option<CallOutcome>) -> Method {
        Method { effect: Effect::By(map), ..self }
    }

    const fn adds_up(self) -> Method {
        Method { adds_up: true, ..self }
    }
}

/// All methods, in the order of docs/puma-rb.md.
pub const METHODS: &[Method] = &[
    own("port", Mapped, "`port`, and `host` if it is given; beside other addresses one more of `bind`").by(|mapping, call| mapping.port(call)).adds_up(),
    own("bind", Mapped, "`bind`; options such as `?backlog=`, `?umask=`, `?cert=` are Puma's").by(|mapping, call| mapping.bind(call)).adds_up(),
    own("ssl_bind", Mapped, "`bind = \"ssl://…\"`; without a certificate on localhost also `https = true`").by(|mapping, call| mapping.ssl_bind(call)).adds_up(),
    own("set_remote_address", Mapped, "`proxy_protocol: :v1` is an option of `bind`; else sets REMOTE_ADDR").by(|mapping, call| mapping.remote_address(call)),
    own("workers", Mapped, "`workers`; 0 is one worker, `:auto` is `\"auto\"`").by(|mapping, call| mapping.workers(call)),
    own("threads", Mapped, "`threads`; a minimum of 0 is 1").by(|mapping, call| mapping.threads(call)),
    setter("environment", Mapped, "`environment`").sets("environment", Text),
    own("rackup", Mapped, "the rackup file, unless one was typed").by(|mapping, call| mapping.rackup(call)).adds_up(),
    own("app", Mapped, "what is served, in place of `config.ru`").by(|mapping, call| mapping.app(call)),
    setter("directory", Mapped, "the app's directory, unless one was typed").by(|mapping, call| mapping.directory(call)),
    setter("pidfile", Mapped, "`pidfile`").sets("pidfile", Text),
    setter("state_path", Mapped, "`state_path`: Puma's state file, for `pumactl -S`").sets("state_path", Text),
    setter("state_permission", Mapped, "`state_permission`; 0600 unless set").by(|mapping, call| mapping.state_permission(call)),
    setter("tag", Mapped, "`tag`").sets("tag", Text),
    optional("log_requests", "true", Mapped, "`log.access`").by(|mapping, call| mapping.logging(call)),
    own("quiet", Mapped, "`log.access = \"off\"`").by(|mapping, call| mapping.logging(call)),
    own("stdout_redirect", Mapped, "`log.error`, and with `log_requests` `log.access`; what the app prints goes to the same files, which are always appended to").by(|mapping, call| mapping.redirect(call)).adds_up(),
    optional("early_hints", "true", Mapped, "`rack.early_hints`").sets("rack.early_hints", Switch),
    setter("worker_timeout", Mapped, "`timeouts.worker`: limits each request, not only a process that hangs").sets("timeouts.worker", Value),
    setter("worker_boot_timeout", Mapped, "`timeouts.worker_boot`").sets("timeouts.worker_boot", Value),
    setter("worker_shutdown_timeout", Mapped, "`timeouts.shutdown`").sets("timeouts.shutdown", Value),
    optional("force_shutdown_after", ":forever", Mapped, "`timeouts.shutdown`; `:immediately` is 0, `:forever` leaves it as it is").by(|mapping, call| mapping.force_shutdown(call)),
    setter("persistent_timeout", Mapped, "`timeouts.keep_alive`").sets("timeouts.keep_alive", Value),
    optional("enable_keep_alives", "true", Mapped, "`timeouts.keep_alive = 0` when it is false").by(|mapping, call| mapping.keep_alives(call)),
    setter("first_data_timeout", Mapped, "`timeouts.header`").sets("timeouts.header", Value),
    setter("max_keep_alive", Mapped, "`limits.max_requests_per_connection`").also(&["max_fast_inline"]).sets("limits.max_requests_per_connection", Whole),
    setter("http_content_length_limit", Mapped, "`limits.max_body`").sets("limits.max_body", Whole),
    optional("allow_underscore_headers", "true", Mapped, "`rack.allow_underscore_headers`").sets("rack.allow_underscore_headers", Switch),
    own("activate_control_app", Mapped, "`control` and `control_token`; `\"auto\"` is the default here").by(|mapping, call| mapping.control(call)).adds_up(),
    optional("fork_worker", "1000", Mapped, "`rack.refork_after`").by(|mapping, call| mapping.fork_worker(call)),
    hook("out_of_band", Hook, "runs between requests when a full garbage collection is due, in one worker at a time (`rack.out_of_band_gc`)").by(|mapping, call| mapping.out_of_band(call)),
    hook("before_fork", Hook, "runs in the template, before it forks its first worker (`Firebrick.before_fork`)"),
    hook("before_worker_boot", Hook, "runs in each worker before it takes requests (`Firebrick.after_fork`)").also(&["on_worker_boot"]),
    hook("before_worker_shutdown", Hook, "runs in each worker after its last request (`Firebrick.before_worker_exit`)").also(&["on_worker_shutdown"]),
    hook("before_worker_fork", Hook, "runs in the template before each fork").also(&["on_worker_fork"]),
    hook("after_worker_fork", Hook, "runs in the template after each fork").also(&["after_worker_boot"]),
    hook("after_worker_shutdown", Hook, "runs in the template when a worker has exited; gets its index, pid and status"),
    hook("before_refork", Hook, "runs in the process that becomes the next template (`Firebrick.before_refork`)").also(&["on_refork"]),
    hook("before_thread_start", Hook, "runs in each thread before its first request").also(&["on_thread_start"]),
    hook("before_thread_exit", Hook, "runs in each thread after its last request").also(&["on_thread_exit"]),
    own("lowlevel_error_handler", Hook, "makes the response when the app raises (`Firebrick.on_error`)"),
    optional("rack_url_scheme", "nil", Request, "sets `rack.url_scheme`"),
    setter("supported_http_methods", Request, "other methods get 501"),
    own("plugin", Background, "runs in a process beside the workers; `:tmp_restart` is built in").by(|mapping, call| mapping.plugin(call)),
    hook("after_booted", Background, "runs when the server serves").also(&["on_booted"]),
    hook("after_stopped", Background, "runs when the server stops").also(&["on_stopped"]),
    hook("before_restart", Background, "runs when this process ends: new code replaces it, or the server stops").also(&["on_restart"]),
    own("single", Reads, "evaluated when there is at most one worker"),
    own("cluster", Reads, "evaluated when there are several workers"),
    own("load", Reads, "evaluates another file, in its place"),
    own("inject", Reads, "evaluates the block"),
    own("get", Reads, "returns what the file has set so far"),
    own("set_default_host", Reads, "the host of each `port` behind it").by(|mapping, call| mapping.set_default_host(call)),
    own("default_host", Reads, "returns that host"),
    own("clear_binds!", Reads, "forgets the addresses before it").by(|mapping, call| mapping.clear_binds(call)),
    optional("preload_app!", "true", Always, "workers are forked from a template that has loaded the app, and a reload replaces it all the same").by(|mapping, call| mapping.preload(call)),
    optional("bind_to_activated_sockets", "true", Mapped, "`bind = \"systemd?optional=true\"`: all sockets that systemd has opened beside the other addresses; `\"only\"`: in their place").by(|mapping, call| mapping.activated(call)),
    optional("drain_on_shutdown", "true", Always, "requests that have arrived are served before the server ends (`timeouts.shutdown`)"),
    optional("queue_requests", "true", Always, "the front reads requests whole before a worker gets them"),
    optional("wait_for_less_busy_worker", "0.005", Always, "there is one queue for all workers; none takes a request while another is free"),
    optional("mutate_stdout_and_stderr_to_sync_on_write", "true", Always, "what workers print appears at once"),
    optional("nakayoshi_fork", "true", Always, "the heap is collected and compacted before workers are forked (`rack.compact`)"),
    optional("prune_bundler", "true", Ignored, "the server itself is no gem in your bundle, so a new release brings its own Gemfile without it"),
    optional("extra_runtime_dependencies", "[]", Ignored, "it belongs to prune_bundler, which is not needed"),
    optional("daemonize", "true", Ignored, "Puma 5 has removed it; the server stays in the foreground: let systemd or another supervisor start it (docs/systemd.md)"),
    setter("restart_command", Ignored, "`firebrick upgrade` starts the program again as it was started"),
    hook("after_refork", Ignored, "a worker that has been reforked serves no more, so nothing has to be opened again in it"),
    optional("fiber_per_request", "true", Ignored, "requests run on threads, whose locals stay: use ActiveSupport::CurrentAttributes or clear them").also(&["clean_thread_locals"]),
    setter("max_io_threads", Ignored, "there is one kind of thread; raise `threads` for work that waits"),
    setter("io_selector_backend", Ignored, "the front waits for sockets by epoll, outside of Ruby"),
    setter("worker_check_interval", Ignored, "the front sees at once when a worker ends or makes no progress"),
    setter("worker_culling_strategy", Ignored, "a reload replaces the youngest workers first"),
    setter("idle_timeout", Ignored, "the server does not end by itself"),
    optional("raise_exception_on_sigterm", "true", Ignored, "after TERM the server ends with exit code 0"),
    own("shutdown_debug", Ignored, "PWR makes a worker write the backtraces of its threads; `firebrick deaths` keeps those of workers that were killed"),
    own("log_formatter", Ignored, "the format of the access log is `log.format`"),
    setter("custom_logger", Ignored, "the access log is written by the front, where there is no Ruby (`log.access`, `log.format`)"),
    own("debug", Ignored, "there are no debug messages to switch on"),
    own("silence_single_worker_warning", Ignored, "there is no such warning"),
    own("silence_fork_callback_warning", Ignored, "there is no such warning: hooks run with one worker, too"),
];

impl Method {
    /// Returns the row of a method, by any of its names.
    pub fn find(name: &str) -> Option<&'static Method> {
        METHODS.iter().find(|method| method.names().any(|known| known == name))
    }

    /// Returns all its names.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.also.iter().copied())
    }
}

/// Returns the method with the most similar name.
pub fn nearest_method(written: &str) -> Option<&'static str> {
    nearest(written, METHODS.iter().flat_map(Method::names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The public methods of the DSL in Puma 5.0, 5.6, 6.0, 6.6, 7.0, 7.2 and 8.0 together, and one of Puma 4 that files still contain.
    const PUMA: &str = "activate_control_app after_booted after_refork after_stopped after_worker_boot after_worker_fork \
        after_worker_shutdown allow_underscore_headers app before_fork before_refork before_restart before_thread_exit \
        before_thread_start before_worker_boot before_worker_fork before_worker_shutdown bind bind_to_activated_sockets \
        clean_thread_locals clear_binds! cluster custom_logger daemonize debug default_host directory drain_on_shutdown early_hints \
        enable_keep_alives environment extra_runtime_dependencies fiber_per_request first_data_timeout force_shutdown_after \
        fork_worker get http_content_length_limit idle_timeout inject io_selector_backend load log_formatter log_requests \
        lowlevel_error_handler max_fast_inline max_io_threads max_keep_alive mutate_stdout_and_stderr_to_sync_on_write \
        nakayoshi_fork on_booted on_refork on_restart on_stopped on_thread_exit on_thread_start on_worker_boot on_worker_fork \
        on_worker_shutdown out_of_band persistent_timeout pidfile plugin port preload_app! prune_bundler queue_requests quiet \
        rack_url_scheme rackup raise_exception_on_sigterm restart_command set_default_host set_remote_address shutdown_debug \
        silence_fork_callback_warning silence_single_worker_warning single ssl_bind state_path state_permission \
        stdout_redirect supported_http_methods tag threads wait_for_less_busy_worker worker_boot_timeout \
        worker_check_interval worker_culling_strategy worker_shutdown_timeout worker_timeout workers";

    #[test]
    fn every_method_of_puma_has_a_row_and_only_one() {
        let theirs: BTreeSet<&str> = PUMA.split_whitespace().collect();
        let ours: Vec<&str> = METHODS.iter().flat_map(Method::names).collect();
        assert_eq!(ours.iter().copied().collect::<BTreeSet<_>>(), theirs);
        assert_eq!(ours.len(), theirs.len(), "a name is there twice");
    }

    #[test]
    fn texts_are_one_sentence() {
        for method in METHODS {
            assert!(!method.text.ends_with('.') && !method.text.contains(['|', '\n']), "{}", method.name);
        }
    }

    #[test]
    fn slips_find_their_method() {
        assert_eq!(nearest_method("worker"), Some("workers"));
        assert_eq!(nearest_method("preload_app"), Some("preload_app!"));
        assert!(nearest_method("on_worker_start").is_some());
        assert_eq!(nearest_method("xyzzy"), None);
    }
}
