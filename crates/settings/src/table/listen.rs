//! Where the server listens, for clients and for its operator.

use super::entry::{Category, entries, long, short};
use crate::kind::lists::{Binds, ControlAddresses};
use crate::kind::numbers::Count;
use crate::kind::texts::{Choice, Host, Secret};
use crate::kind::wrappers::Maybe;
use crate::value::server_timing::ServerTiming;

entries! { Category::Listen;
    BIND: Binds = Binds, {
        key: "bind",
        flags: &[short('b', "bind", "URI")],
        default_shown: Some("tcp://HOST:PORT of --host and --port"),
        doc: "Address to listen on; may be repeated",
        more: "tcp://HOST:PORT, tcp://[::1]:3000, unix:///run/app.sock or unix://tmp/app.sock; also HOST:PORT, \
               unix:PATH and /PATH. Behind a ? may stand backlog=1024 and, for Unix sockets, umask=0117 or \
               mode=0660, joined with &. It replaces the default address; a --port next to it adds one more. \
               The variable PORT counts only when no bind is given.",
        known_as: &["listen"],
    }
    PORT: Count = Count { min: 0, max: 65_535 }, {
        key: "port",
        flags: &[short('p', "port", "PORT")],
        env: &["PORT"],
        default: "9292",
        doc: "TCP port; 0 lets the system choose",
    }
    HOST: Host = Host, {
        key: "host",
        flags: &[short('o', "host", "HOST")],
        default: "0.0.0.0",
        doc: "Address for --port",
        known_as: &["hostname", "address", "binding"],
    }
    CONTROL: ControlAddresses = ControlAddresses, {
        key: "control",
        flags: &[long("control", "ADDRESS|auto|off"), long("control-url", "ADDRESS")],
        default: "auto",
        doc: "Where `firebrick stats`, `top` and the dashboard ask; may be repeated",
        more: "A path, or tcp://HOST:PORT, which also answers browsers (/dashboard) and asks for control_token; port 0 \
               lets the system choose. auto is a path made from the app's directory, in $XDG_RUNTIME_DIR/firebrick \
               or else in /tmp/firebrick-UID, that only the same user can open; it stays when only ports are \
               given, unless there is also an off.",
        known_as: &["control_url", "control_app", "activate_control_app", "control_socket"],
    }
    CONTROL_TOKEN: Maybe<Secret> = Maybe(Secret), {
        key: "control_token",
        flags: &[long("control-token", "TOKEN"), long("token", "TOKEN")],
        env: &["FIREBRICK_CONTROL_TOKEN"],
        default: "",
        default_shown: Some("made at each start and printed"),
        doc: "What has to be shown at a control port (tcp://)",
        more: "Prefer the variable: other users of the machine can see flags. A port that other machines can reach needs \
               a token of at least 16 characters.",
        secret: true,
        known_as: &["auth_token", "control_auth_token"],
    }
    SERVER_TIMING: Choice<ServerTiming> = Choice(&[
        ("local", ServerTiming::Local),
        ("always", ServerTiming::Always),
        ("off", ServerTiming::Off),
    ]), {
        key: "server_timing",
        flags: &[long("server-timing", "WHO")],
        default: "local",
        doc: "Who may ask where a request's time went: local, always or off",
        more: "A request with Firebrick-Timing: 1 is answered with a Server-Timing field: how long it was queued, how long \
               the app took, and how much of that was CPU time and waiting for Ruby's global lock. firebrick bench and tune \
               ask for it. local answers clients on this machine that no proxy has spoken for.",
        reloadable: true,
    }
}
